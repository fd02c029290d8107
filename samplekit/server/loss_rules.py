"""What a loss says about the logprobs of a request: its value and metrics, and its gradient for every token.

Every loss is the reference of `samplekit.training.compute_loss`. What the real service does not document is the
reference's default here, for the wire has no place to say otherwise:

- ``"fixed_horizon"`` and the losses without an aggregation (importance sampling, PPO, CISPO, DPPO, DRO) are plain sums
  over the trained positions (no horizon); ``"token_mean"`` divides by the trained positions of the whole request,
  ``"sequence_mean"`` averages the means of its samples, of those that train;
- GRPO's penalty is the k3 estimate, and it is part of the loss;
- logprobs of the policy are taken at temperature 1, whatever temperature the tokens were drawn at. Generated tokens
  carry the logprobs they were drawn by, after temperature, top_k and top_p, so ratios of the first step are 1 only
  where nothing bent the distribution (temperature 1, top_p 1, top_k -1);
- a negative weight of cross-entropy pushes a token down;
- gradients of several calls before one optimizer step are added, each as it would be alone.
"""

# pyright: reportUnknownMemberType=false
# (torch annotates only part of what is used here)

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from samplekit.training.evaluate import Settings, divisor, evaluate

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from samplekit.losses import Loss
    from samplekit.sample import Sample
    from samplekit.sample.arrays import FloatArray
    from samplekit.training.positions import Float64Array


@dataclass(frozen=True)
class Verdict:
    """What a loss is for a request.

    Attributes:
        loss: of the whole request.
        sample_losses: what each sample adds to it, float64 (S,).
        metrics: means over the trained positions, by the service's names.
    """

    loss: float
    sample_losses: Float64Array
    metrics: dict[str, float] = field(default_factory=dict[str, float])


class LossRule(Protocol):
    """How logprobs become a loss and its gradient."""

    def wanted(self, row: int) -> npt.NDArray[np.bool_]:
        """Give the positions of a sample that the loss reads, (T_i,); the others may read logprob 0."""
        ...

    def gradients(self, logprobs: Sequence[torch.Tensor], rows: Sequence[int]) -> list[torch.Tensor]:
        """Give the gradient of a few samples, so that only one padded batch of activations is alive.

        Args:
            logprobs: of the target tokens, detached, (T_i,) a sample.
            rows: which samples of the request these are.

        Returns:
            d loss / d logprob, (T_i,) a sample, of the loss of the whole request.
        """
        ...

    def judge(self, logprobs: Sequence[FloatArray]) -> Verdict:
        """Give the loss of the whole request.

        Args:
            logprobs: of the target tokens, (T_i,) a sample, in the request's order.
        """
        ...


class ReferenceRule:
    """Any loss of the service, as `samplekit.training.compute_loss` computes it for the whole request."""

    def __init__(self, samples: Sequence[Sample], loss: Loss) -> None:
        """Take from the whole request what the gradient of a part of it needs.

        Args:
            samples: the request, each with the inputs that the loss reads.
            loss: which loss, with its settings.
        """
        self._samples = samples
        self._loss = loss
        self._masks = [sample.weights != 0 for sample in samples]
        counts = np.array([np.count_nonzero(mask) for mask in self._masks], dtype=np.int64)
        self._settings = Settings(normalizer=divisor(counts, loss, Settings()))

    def wanted(self, row: int) -> npt.NDArray[np.bool_]:
        """Read the positions whose weight is not 0."""
        mask: npt.NDArray[np.bool_] = self._masks[row]
        return mask

    def gradients(self, logprobs: Sequence[torch.Tensor], rows: Sequence[int]) -> list[torch.Tensor]:
        """Evaluate some samples alone, divided by what the whole request is divided by."""
        found = evaluate(logprobs, [self._samples[row] for row in rows], self._loss, self._settings)
        parts = torch.split(torch.from_numpy(found.gradients), found.lengths)
        return [part.to(like) for part, like in zip(parts, logprobs, strict=True)]

    def judge(self, logprobs: Sequence[FloatArray]) -> Verdict:
        """Evaluate the request in one piece, so that no digit depends on how it was grouped."""
        found = evaluate(logprobs, self._samples, self._loss, self._settings)
        return Verdict(found.loss, found.sample_losses, found.metrics)


class GivenGradientRule:
    """A gradient that the caller computed, used as it is; the loss is the caller's and reported as 0."""

    def __init__(self, gradients: Sequence[FloatArray]) -> None:
        self._gradients = list(gradients)

    def wanted(self, row: int) -> npt.NDArray[np.bool_]:
        """Read the positions whose gradient is not 0."""
        mask: npt.NDArray[np.bool_] = self._gradients[row] != 0
        return mask

    def gradients(self, logprobs: Sequence[torch.Tensor], rows: Sequence[int]) -> list[torch.Tensor]:
        """Hand the gradients through."""
        given = [torch.tensor(self._gradients[row]) for row in rows]
        return [item.to(like) for item, like in zip(given, logprobs, strict=True)]

    def judge(self, logprobs: Sequence[FloatArray]) -> Verdict:
        """Know nothing of the loss."""
        return Verdict(0.0, np.zeros(len(logprobs)))
