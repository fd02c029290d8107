"""Direct preference optimisation: a loss over pairs of samples, which the service takes as a custom gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from samplekit.errors import SampleError
from samplekit.training.evaluate import is_positive
from samplekit.training.positions import as_rows, refuse_missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samplekit.sample import Sample

_REQUIRED = frozenset({"target_tokens", "weights", "reference_logprobs"})


@dataclass(frozen=True)
class DpoOutput:
    """What `dpo_loss` gives.

    Attributes:
        loss: a scalar to call ``backward`` on.
        metrics: plain floats, for any logger.
        pair_losses: one number a pair, detached, float64 (P,).
    """

    loss: torch.Tensor
    metrics: dict[str, float]
    pair_losses: torch.Tensor


def dpo_loss(
    policy_logprobs: Sequence[torch.Tensor],
    samples: Sequence[Sample],
    *,
    beta: float = 0.1,
    pairs: Sequence[tuple[int, int]] | None = None,
) -> DpoOutput:
    """Compute the mean of ``-log sigmoid(chosen - rejected)`` over pairs of rewards.

    A sample's reward is ``beta`` times the sum of ``lp - ref`` over its trained positions. The service has no such
    loss: send ``loss_gradients(dpo_loss, logprobs, samples)`` through ``session.custom_forward_backward``, both samples
    of a pair in one call.

    Args:
        policy_logprobs: one (T_i,) tensor of floats a sample, in nats.
        samples: chosen, rejected, chosen, rejected ... unless ``pairs`` says otherwise; each with ``weights`` (not 0 is
            1) and ``reference_logprobs``.
        beta: how strongly the policy is held to the reference, above 0.
        pairs: (chosen, rejected) as indices into samples.

    Returns:
        The loss, in float64 where a row is, else float32, and as metrics ``dpo/accuracy`` (share of pairs whose chosen
        reward is higher), ``dpo/margin/mean``, ``dpo/chosen_reward/mean`` and ``dpo/rejected_reward/mean``.

    Raises:
        LossInputError: a sample lacks an input.
        AlignmentError: policy_logprobs and samples disagree about a length.
        SampleError: samples do not pair up, or beta is not above 0.

    Source: Rafailov et al. 2023, Direct Preference Optimization, equation 7.
    """
    if not is_positive(beta):
        raise SampleError(f"beta is {beta!r:.80}, expected a finite number above 0: 0.1 is common")
    as_rows(policy_logprobs, samples)
    for index, sample in enumerate(samples):
        refuse_missing(sample, index, _REQUIRED, "dpo_loss")
    chosen, rejected = zip(*_paired(len(samples), pairs), strict=True)
    rewards = beta * torch.stack([_gain(row, item) for row, item in zip(policy_logprobs, samples, strict=True)])
    margins = rewards[list(chosen)] - rewards[list(rejected)]  # (P,)
    pair_losses = -torch.nn.functional.logsigmoid(margins)
    doubled = any(row.dtype == torch.float64 for row in policy_logprobs)
    metrics = {
        "dpo/accuracy": (margins > 0).double().mean(),
        "dpo/margin/mean": margins.mean(),
        "dpo/chosen_reward/mean": rewards[list(chosen)].mean(),
        "dpo/rejected_reward/mean": rewards[list(rejected)].mean(),
    }
    loss = pair_losses.mean().to(torch.float64 if doubled else torch.float32)
    return DpoOutput(loss, {name: float(value.detach()) for name, value in metrics.items()}, pair_losses.detach())


def _gain(row: torch.Tensor, sample: Sample) -> torch.Tensor:
    """Sum ``lp - ref`` over trained positions, float64; masked before the subtraction, so NaN elsewhere is harmless."""
    trained = torch.tensor(sample.weights != 0, device=row.device)
    reference = torch.tensor(sample.loss_fn_inputs["reference_logprobs"].data, device=row.device).double()
    return (torch.where(trained, row.double(), 0.0) - torch.where(trained, reference, 0.0)).sum()


def _paired(num_samples: int, pairs: Sequence[tuple[int, int]] | None) -> list[tuple[int, int]]:
    if pairs is None:
        if num_samples % 2:
            raise SampleError(
                f"samples holds {num_samples}, expected chosen and rejected in turn: add what is missing, or say pairs="
            )
        return [(index, index + 1) for index in range(0, num_samples, 2)]
    kept = [(int(chosen), int(rejected)) for chosen, rejected in pairs]
    for index, (chosen, rejected) in enumerate(kept):
        if chosen == rejected or not (0 <= chosen < num_samples and 0 <= rejected < num_samples):
            raise SampleError(
                f"pairs[{index}] is ({chosen}, {rejected}), expected two different indices into {num_samples} samples"
            )
    if not kept:
        raise SampleError("pairs is empty, expected at least one (chosen, rejected)")
    return kept
