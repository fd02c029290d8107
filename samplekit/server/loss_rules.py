"""What a loss says about the logprobs of a batch: its value for every sample and its gradient for every token.

A rule sees a few samples at a time, so that only one padded batch of activations is alive; whatever it needs from the
whole request (a count of trained tokens, say) it takes when it is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from samplekit.sample import Sample
    from samplekit.sample.arrays import FloatArray


class LossRule(Protocol):
    """How logprobs become a loss and its gradient."""

    def wanted(self, row: int) -> npt.NDArray[np.bool_]:
        """Give the positions of a sample that the loss reads, (T_i,); the others may read logprob 0."""
        ...

    def __call__(self, logprobs: Sequence[torch.Tensor], rows: Sequence[int]) -> tuple[list[float], list[torch.Tensor]]:
        """Judge some samples of the request.

        Args:
            logprobs: of the target tokens, detached, (T_i,) a sample.
            rows: which samples of the request these are.

        Returns:
            The loss of every sample, and d loss / d logprob, (T_i,) a sample.
        """
        ...


class CrossEntropyRule:
    """The sum of ``-weight * logprob`` over all tokens, as the service documents it."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._weights = [sample.weights for sample in samples]

    def wanted(self, row: int) -> npt.NDArray[np.bool_]:
        """Read the positions whose weight is not 0."""
        mask: npt.NDArray[np.bool_] = self._weights[row] != 0
        return mask

    def __call__(self, logprobs: Sequence[torch.Tensor], rows: Sequence[int]) -> tuple[list[float], list[torch.Tensor]]:
        """Weigh the logprobs, summed in float64."""
        losses: list[float] = []
        gradients: list[torch.Tensor] = []
        for found, row in zip(logprobs, rows, strict=True):
            weights = as_tensor(self._weights[row], found)
            losses.append(-float((found.double() * weights.double()).sum()))
            gradients.append(-weights)
        return losses, gradients


class GivenGradientRule:
    """A gradient that the caller computed, used as it is; the loss is the caller's and reported as 0."""

    def __init__(self, gradients: Sequence[FloatArray]) -> None:
        self._gradients = list(gradients)

    def wanted(self, row: int) -> npt.NDArray[np.bool_]:
        """Read the positions whose gradient is not 0."""
        mask: npt.NDArray[np.bool_] = self._gradients[row] != 0
        return mask

    def __call__(self, logprobs: Sequence[torch.Tensor], rows: Sequence[int]) -> tuple[list[float], list[torch.Tensor]]:
        """Hand the gradients through."""
        given = [as_tensor(self._gradients[row], found) for found, row in zip(logprobs, rows, strict=True)]
        return [0.0] * len(rows), given


def as_tensor(values: npt.NDArray[np.float32], like: torch.Tensor) -> torch.Tensor:
    """Copy an array into a tensor of the dtype and device of another."""
    return torch.tensor(values, dtype=like.dtype, device=like.device)
