"""The reference of every loss the service knows: what it computes from logprobs, in numbers that can be checked.

Each loss is evaluated in float64 on flat arrays, with a gradient derived by hand that autograd hands on. Inputs are
masked before any arithmetic, so whatever stands at an untrained position, NaN included, changes nothing.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportIncompatibleMethodOverride=false
# (torch annotates only part of what is used here)

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from samplekit.errors import SampleError
from samplekit.training.evaluate import Evaluation, Settings, evaluate
from samplekit.training.positions import views
from samplekit.training.rows import entries_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samplekit.losses import Loss
    from samplekit.sample import Sample
    from samplekit.training.evaluate import SequenceMean
    from samplekit.training.rows import FloatsArray, LogprobRows
    from samplekit.training.terms import KlEstimator


@dataclass(frozen=True)
class LossOutput:
    """What a loss gives.

    Attributes:
        loss: a scalar to call ``backward`` on.
        metrics: means over the trained positions under the service's names, plain floats; empty where none trains.
        token_losses: one (T_i,) tensor a sample, detached: the terms before they are added up and divided, 0.0 where
            nothing trains.
        sample_losses: what each sample adds to the loss, detached, float64 (S,).
        num_trained: positions that train; where it is 0, so is the loss.
    """

    loss: torch.Tensor
    metrics: dict[str, float]
    token_losses: list[torch.Tensor]
    sample_losses: torch.Tensor
    num_trained: int


def compute_loss(
    policy_logprobs: LogprobRows,
    samples: Sequence[Sample],
    loss: Loss,
    *,
    horizon: float | None = None,
    normalizer: float | None = None,
    sequence_mean: SequenceMean = "means",
    kl: KlEstimator = "k3",
) -> LossOutput:
    """Compute a loss from the logprobs of the policy being trained; ``.loss.backward()`` gives its gradient.

    A sum over trained positions, unless a setting or GRPO's aggregation says otherwise. Documented by the service:
    cross-entropy is a sum and reads fractional weights; elsewhere any weight that is not 0 counts as 1. NOT documented,
    hence chosen here: the exact terms of GRPO, importance sampling, DRO and DPPO (the published ones, see
    docs/losses.md), what a negative cross-entropy weight does (it pushes the token down), that logprobs are taken at
    temperature 1, that GRPO's KL term enters the loss, and all that the keywords below decide.

    Args:
        policy_logprobs: one (T_i,) tensor or array of floats a sample, in nats, as `target_logprobs` or a session gives
            them; a gradient needs tensors.
        samples: as many; inputs that the loss does not read are ignored.
        loss: which loss, with its settings.
        horizon: positions of a full-length sample: GRPO's ``"fixed_horizon"`` and every loss without an aggregation
            give ``sum / (horizon * S)``, and the plain sum where it is None. Other aggregations do not read it.
        normalizer: what the sum is divided by, instead of all that the horizon or aggregation says. For a batch in
            several calls, pass the whole batch's count of trained tokens (samples, for ``"sequence_mean"``) to each:
            the losses and gradients then add up to those of one call.
        sequence_mean: whether GRPO's ``"sequence_mean"`` averages the ``"means"`` or the ``"sums"`` of the samples;
            one that does not train leaves the average.
        kl: the estimator of GRPO's penalty and of the KL metrics: with d = ref - lp, ``"k1"`` is -d, ``"k2"`` d**2 / 2
            and ``"k3"`` exp(d) - d - 1.

    Returns:
        The loss in float64 where a row of policy_logprobs is, else float32; accumulated in float64 on the CPU. GRPO's
        metrics hold ``loss/kl_ref/mean`` only where every sample has reference_logprobs.

    Raises:
        LossInputError: a sample lacks an input that the loss reads; the message names both.
        AlignmentError: policy_logprobs and samples disagree about a length.
        SampleError: there is no sample, a setting is out of its range, or a logprob is NaN or infinite where its sample
            trains; the message names both.
    """
    found = evaluate(policy_logprobs, samples, loss, Settings(horizon, normalizer, sequence_mean, kl))
    rows = as_tensors(policy_logprobs)
    terms = torch.from_numpy(found.values)
    value = torch.tensor(found.loss, dtype=terms.dtype, device=rows[0].device)
    if torch.is_grad_enabled() and any(row.requires_grad for row in rows):
        value = _Given.apply(value, found, *rows)  # type: ignore[no-untyped-call]
    return LossOutput(
        value,
        found.metrics,
        list(torch.split(terms.to(rows[0].device), found.lengths)),
        torch.from_numpy(found.sample_losses),
        found.num_trained,
    )


def as_tensors(policy_logprobs: Sequence[Any]) -> list[torch.Tensor]:
    """Give rows as tensors: those that are stay as they are, arrays are copied."""
    return [
        row if isinstance(row, torch.Tensor) else _copied(row) for row in entries_of(policy_logprobs, "policy_logprobs")
    ]


def _copied(row: Any) -> torch.Tensor:  # noqa: ANN401 - whatever numpy reads
    values = np.asarray(row)
    return torch.tensor(values.astype(np.float64) if values.dtype == np.longdouble else values)


def closed_form_gradients(
    policy_logprobs: Sequence[Any],
    samples: Sequence[Sample],
    loss: Loss,
    *,
    horizon: float | None = None,
    normalizer: float | None = None,
    sequence_mean: SequenceMean = "means",
    kl: KlEstimator = "k3",
) -> list[FloatsArray]:
    """Give d loss / d logprob without autograd: what ``compute_loss(...).loss.backward()`` leaves in ``.grad``.

    Args:
        policy_logprobs: one (T_i,) tensor or array of floats a sample.
        samples: as in `compute_loss`, and so is all that follows.
        loss: which loss.
        horizon: as in `compute_loss`.
        normalizer: as in `compute_loss`.
        sequence_mean: as in `compute_loss`.
        kl: as in `compute_loss`.

    Returns:
        One (T_i,) array a sample, 0.0 where nothing trains: what ``session.custom_forward_backward`` takes. In float64
        where a row of policy_logprobs is, else float32.

    Raises:
        SampleError: as `compute_loss`, and where a gradient is not finite; the message names the position.
    """
    found = evaluate(policy_logprobs, samples, loss, Settings(horizon, normalizer, sequence_mean, kl))
    rows = views(found.gradients, found.lengths)
    if not np.isfinite(found.gradients).all():
        index = next(index for index, row in enumerate(rows) if not np.isfinite(row).all())
        place = int(np.flatnonzero(~np.isfinite(rows[index]))[0])
        raise SampleError(
            f"the gradient of samples[{index}] at position {place} is {rows[index][place]}, expected a finite number: "
            "look for logprobs that are far from the sampler's"
        )
    return rows


class _Given(torch.autograd.Function):
    """A value whose gradient is known before anyone asks."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, found: Evaluation, *rows: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
        ctx.found = found
        ctx.rows = [(row.dtype, row.device) for row in rows]
        return value.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, scale: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401
        parts = torch.split(torch.from_numpy(ctx.found.gradients) * float(scale), ctx.found.lengths)
        found = [part.to(device=device, dtype=dtype) for part, (dtype, device) in zip(parts, ctx.rows, strict=True)]
        return None, None, *found
