"""How far the policy being trained is from the one that sampled, and why where it should not be; without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from samplekit.errors import SampleError
from samplekit.losses import PPO
from samplekit.sample.kinds import LOGPROB_LIMIT, describe_kind
from samplekit.training.explanations import Cause, explain
from samplekit.training.positions import read_batch
from samplekit.training.ranges import refuse_outside
from samplekit.training.rows import FloatsArray, as_rows, refuse_not_finite
from samplekit.training.terms import HIGH, LOW, RATIO, kl_terms

if TYPE_CHECKING:
    from samplekit.sample import Sample

_READER = "the comparison with the sampler"
_REQUIRED = frozenset({"logprobs"})
_OPTIONAL = frozenset({"advantages"})


@dataclass(frozen=True)
class FirstStep:
    """What a comparison before the first step found.

    Attributes:
        ok: whether the policy gives the sampler's logprobs back.
        cause: what explains the gap best; ``"none"`` where there is none to explain, ``"nothing_trained"`` where
            nothing could be compared.
        message: where, what was found, and what to do.
        metrics: as `policy_diagnostics`.
    """

    ok: bool
    cause: Cause
    message: str
    metrics: dict[str, float]


def policy_diagnostics(
    policy_logprobs: Sequence[Any], samples: Sequence[Sample], *, clip_low: float = 0.8, clip_high: float = 1.2
) -> dict[str, float]:
    """Compare the policy with the sampler over trained positions.

    Args:
        policy_logprobs: one (T_i,) tensor or array of floats a sample, in nats.
        samples: as many, with ``logprobs``; with ``advantages`` too, clip fractions are counted.
        clip_low: the lowest ratio that PPO would keep, absolute.
        clip_high: the highest one.

    Returns:
        Plain floats, for any logger, in the service's style: ``loss/ratio/mean``, ``/min`` and ``/max``;
        ``loss/kl_policy/k1``, ``/k2`` and ``/k3``, three estimates of KL(sampler || policy) in nats;
        ``loss/log_ratio/abs_mean`` and ``/abs_max``; ``loss/clip/high_fraction`` and ``/low_fraction`` as in
        `compute_loss`. Empty where nothing trains.

    Raises:
        LossInputError: a sample has no logprobs.
        AlignmentError: policy_logprobs and samples disagree about a length.
        SampleError: a bound is no absolute ratio, or a logprob is NaN or infinite where its sample trains.
    """
    PPO(clip_low, clip_high)  # refuses bounds that are offsets
    batch = read_batch(policy_logprobs, samples, _READER, _REQUIRED, _OPTIONAL)
    if not batch.num_trained:
        return {}
    blocks = [block for _, block in batch.blocks()]
    log_ratio = np.concatenate([(item.policy - item.inputs["logprobs"])[item.trained] for item in blocks])
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = np.exp(log_ratio)
        found = {
            RATIO: ratio.mean(),
            "loss/ratio/min": ratio.min(),
            "loss/ratio/max": ratio.max(),
            "loss/kl_policy/k1": kl_terms(log_ratio, "k1")[0].mean(),
            "loss/kl_policy/k2": kl_terms(log_ratio, "k2")[0].mean(),
            "loss/kl_policy/k3": kl_terms(log_ratio, "k3")[0].mean(),
            "loss/log_ratio/abs_mean": np.abs(log_ratio).mean(),
            "loss/log_ratio/abs_max": np.abs(log_ratio).max(),
        }
    if "advantages" in batch.names:
        advantages = np.concatenate([item.inputs["advantages"][item.trained] for item in blocks])
        found[HIGH] = ((ratio > clip_high) & (advantages > 0)).mean()
        found[LOW] = ((ratio < clip_low) & (advantages < 0)).mean()
    return {name: float(value) for name, value in found.items()}


def diagnose_first_step(
    policy_logprobs: Sequence[Any],
    samples: Sequence[Sample],
    *,
    tolerance: float = 0.02,
    at_temperatures: Mapping[float, Sequence[Any]] | None = None,
) -> FirstStep:
    """Tell whether the policy gives the sampler's logprobs back before the first step, and what is wrong where not.

    While policy and sampler hold the same weights every ratio is 1. Where it is not, logprobs that agree better one
    position on are off by one, and those that agree better at another temperature were drawn at it. A cause is named
    only where it was measured: of 16 trained positions or more, and a temperature only where it was tried. Values above
    0.001 where a sample trains are no natural logs, and are told before anything else.

    Args:
        policy_logprobs: one (T_i,) tensor or array of floats a sample, of the weights that sampled.
        samples: as many, with ``logprobs``.
        tolerance: the largest mean of ``abs(log ratio)`` that still counts as equal, in nats, 0 to 1: engines that
            compute in bfloat16 differ by about 0.01.
        at_temperatures: policy_logprobs at other temperatures, as ``target_logprobs(..., temperature=t)`` gives them;
            without them no temperature is told.

    Returns:
        Whether all is well, the cause and a sentence.

    Raises:
        LossInputError: a sample has no logprobs.
        AlignmentError: policy_logprobs and samples disagree about a length.
        SampleError: tolerance or a temperature is out of its range, or a logprob is NaN or infinite where its sample
            trains.
    """
    refuse_outside("tolerance", tolerance, "0.02 is common", low=0.0, high=1.0)
    others = _checked_temperatures(at_temperatures, samples)
    metrics = policy_diagnostics(policy_logprobs, samples)
    if not metrics:
        message = f"no position of {len(samples)} samples trains, so nothing can be compared: look at their weights"
        return FirstStep(False, "nothing_trained", message, metrics)
    rows = as_rows(policy_logprobs, samples)
    if (positive := _first_positive(rows, samples, others)) is not None:
        return FirstStep(False, "unknown", positive, metrics)
    gap = metrics["loss/log_ratio/abs_mean"]
    if gap <= tolerance:
        return FirstStep(True, "none", f"ratios are 1: logprobs differ by {gap:.3g} nats on average", metrics)
    cause, text = explain(rows, samples, others, gap)
    start = f"ratios at the first step are not 1: logprobs differ by {gap:.3g} nats on average"
    return FirstStep(False, cause, f"{start}, {text}", metrics)


def _first_positive(
    rows: Sequence[FloatsArray], samples: Sequence[Sample], others: Mapping[float, Sequence[FloatsArray]]
) -> str | None:
    """Say which value is no natural log of a probability, at a position that trains; None where all are."""
    told = [(f"policy_logprobs[{index}]", row) for index, row in enumerate(rows)]
    for index, sample in enumerate(samples):
        told.append((f"samples[{index}].loss_fn_inputs['logprobs']", sample.loss_fn_inputs["logprobs"].data))
    for temperature, given in others.items():
        told += [(f"at_temperatures[{temperature!r}][{index}]", row) for index, row in enumerate(given)]
    for number, (label, row) in enumerate(told):
        wrong = (row > LOGPROB_LIMIT) & (samples[number % len(samples)].weights != 0)
        if wrong.any():
            place = int(wrong.argmax())
            return (
                f"{label} is {row[place]:.6g} at position {place}, which trains, expected a natural log of a "
                "probability, at most 0: are they negated, or probabilities?"
            )
    return None


def _checked_temperatures(at_temperatures: object, samples: Sequence[Sample]) -> dict[float, list[FloatsArray]]:
    """Read policy_logprobs at other temperatures as carefully as those at 1."""
    if at_temperatures is None:
        return {}
    if not isinstance(at_temperatures, Mapping):
        raise SampleError(
            f"at_temperatures is {describe_kind(at_temperatures)}, expected a mapping of temperatures to rows: pass "
            "{0.7: target_logprobs(model, samples, temperature=0.7)}"
        )
    found: dict[float, list[FloatsArray]] = {}
    for temperature, given in cast("Mapping[float, Any]", at_temperatures).items():
        refuse_outside("a key of at_temperatures", temperature, "pass the temperature that its rows are taken at")
        label = f"at_temperatures[{temperature!r}]"
        found[temperature] = as_rows(given, samples, label)
        for index, (row, sample) in enumerate(zip(found[temperature], samples, strict=True)):
            refuse_not_finite(row, sample.weights != 0, f"{label}[{index}]")
    return found
