"""Direct preference optimisation: a loss over pairs of samples, which the service takes as a custom gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from samplekit.errors import SampleError
from samplekit.sample.kinds import is_sequence, is_whole_number, shown
from samplekit.training.ranges import refuse_outside
from samplekit.training.reference import as_tensors
from samplekit.training.rows import as_rows, refuse_missing, refuse_not_finite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samplekit.sample import Sample
    from samplekit.training.rows import LogprobRows

_REQUIRED = frozenset({"target_tokens", "reference_logprobs"})


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
    policy_logprobs: LogprobRows,
    samples: Sequence[Sample],
    *,
    beta: float = 0.1,
    pairs: Sequence[tuple[int, int]] | None = None,
    normalizer: float | None = None,
) -> DpoOutput:
    """Compute the mean of ``-log sigmoid(chosen - rejected)`` over pairs of rewards.

    A sample's reward is ``beta`` times the sum of ``lp - ref`` over its trained positions. The service has no such
    loss: send ``loss_gradients(dpo_loss, logprobs, samples)`` through ``session.custom_forward_backward``, both samples
    of a pair in one call.

    Args:
        policy_logprobs: one (T_i,) tensor or array of floats a sample, in nats.
        samples: chosen, rejected, chosen, rejected ... unless ``pairs`` says otherwise; each with ``weights`` or
            ``mask`` (not 0 is 1) and ``reference_logprobs``, and each training somewhere.
        beta: how strongly the policy is held to the reference, above 0.
        pairs: (chosen, rejected) as indices into samples.
        normalizer: what the sum over pairs is divided by, instead of their number. For a batch in several calls, pass
            the whole batch's number of pairs to each: losses and gradients then add up to those of one call.

    Returns:
        The loss, in float64 where a row is, else float32, and as metrics ``dpo/accuracy`` (share of pairs whose chosen
        reward is higher), ``dpo/margin/mean``, ``dpo/chosen_reward/mean`` and ``dpo/rejected_reward/mean``.

    Raises:
        LossInputError: a sample lacks an input.
        AlignmentError: policy_logprobs and samples disagree about a length.
        SampleError: samples do not pair up, one trains nowhere, a logprob is NaN or infinite where its sample trains,
            or beta or normalizer is not above 0.

    Source: Rafailov et al. 2023, Direct Preference Optimization, equation 7.
    """
    refuse_outside("beta", beta, "0.1 is common")
    if normalizer is not None:
        refuse_outside("normalizer", normalizer, "pass a count of pairs")
    for index, (row, sample) in enumerate(zip(as_rows(policy_logprobs, samples), samples, strict=True)):
        _refuse_unread(sample, index)
        refuse_not_finite(row, sample.weights != 0, f"policy_logprobs[{index}]")
    rows = as_tensors(policy_logprobs)
    chosen, rejected = zip(*_paired(len(samples), pairs), strict=True)
    rewards = beta * torch.stack([_gain(row, item) for row, item in zip(rows, samples, strict=True)])
    margins = rewards[list(chosen)] - rewards[list(rejected)]  # (P,)
    pair_losses = -torch.nn.functional.logsigmoid(margins)
    doubled = any(row.dtype == torch.float64 for row in rows)
    metrics = {
        "dpo/accuracy": (margins > 0).double().mean(),
        "dpo/margin/mean": margins.mean(),
        "dpo/chosen_reward/mean": rewards[list(chosen)].mean(),
        "dpo/rejected_reward/mean": rewards[list(rejected)].mean(),
    }
    loss = pair_losses.sum() / (normalizer or len(pair_losses))
    loss = loss.to(torch.float64 if doubled else torch.float32)
    return DpoOutput(loss, {name: float(value.detach()) for name, value in metrics.items()}, pair_losses.detach())


def _refuse_unread(sample: Sample, index: int) -> None:
    """Refuse a sample whose reward cannot be told."""
    refuse_missing(sample, index, _REQUIRED if "mask" in sample.loss_fn_inputs else _REQUIRED | {"weights"}, "dpo_loss")
    if not sample.num_trained:
        raise SampleError(
            f"samples[{index}] has no position that trains, so that its reward is always 0, expected at least one: "
            "leave its pair out"
        )


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
    try:
        given: object = getattr(pairs, "tolist", lambda: pairs)()  # of an array or a tensor
    except RuntimeError as error:
        raise SampleError(
            f"pairs is a tensor that cannot be read ({error!s:.80}): pass a dense one, or a list"
        ) from error
    if not is_sequence(given) or not given:
        raise SampleError(f"pairs is {shown(given)}, expected a list of at least one (chosen, rejected)")
    for index, pair in enumerate(given):
        if not _is_pair(pair, num_samples):
            raise SampleError(
                f"pairs[{index}] is {shown(pair)}, expected two different indices into {num_samples} samples: name the "
                "chosen one, then the rejected one"
            )
    return [(chosen, rejected) for chosen, rejected in given]


def _is_pair(pair: object, num_samples: int) -> bool:
    if not is_sequence(pair) or len(pair) != 2 or not all(map(is_whole_number, pair)):
        return False
    return pair[0] != pair[1] and all(0 <= index < num_samples for index in pair)
