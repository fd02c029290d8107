"""What may lie behind logprobs that should agree and do not: a shift, a temperature, another base of the logarithm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from samplekit.training.positions import Float64Array

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from samplekit.sample import Sample
    from samplekit.training.rows import BoolArray, FloatsArray

Cause: TypeAlias = Literal[
    "none", "nothing_trained", "shifted_early", "shifted_late", "temperature", "other_base", "unknown"
]

_FEWEST = 16  # positions: among fewer, chance explains as well
_BETTER = 0.25  # an explanation must leave at most this share of the gap
_EXACT = 0.05  # and another base, which is a mere factor, this one
_MARGIN = 2.0  # and every other cause must leave this many times as much
_BASES = {10: math.log(10), 2: math.log(2)}
_CLOSE = 0.01  # how near a factor must be to a base's, relative
_ONE_SIDED = 0.95  # share of positions at which logprobs normalised again are the higher ones
_MOST_RAISED = 1.0  # nats: half the mass, kept and normalised again, raises them by 0.69
_ROUNDING = 1e-3  # nats


@dataclass(frozen=True)
class _Explanation:
    cause: Cause
    gap: float
    text: str
    share: float = _BETTER


def explain(
    rows: Sequence[FloatsArray],
    samples: Sequence[Sample],
    at_temperatures: Mapping[float, Sequence[FloatsArray]],
    gap: float,
) -> tuple[Cause, str]:
    """Give the cause that leaves the least of a gap, and the rest of a sentence that begins with the gap.

    Only what was measured is named: a shift, another base, or a temperature that was tried. How logprobs are scaled
    tells no temperature: other weights, and logprobs normalised again after top_p, are as well fitted by a factor.

    Args:
        rows: the policy's logprobs, (T_i,) a sample, in nats.
        samples: as many, with ``logprobs``.
        at_temperatures: the policy's at other temperatures.
        gap: the mean of ``abs(log ratio)`` over trained positions, in nats.
    """
    count = sum(sample.num_trained for sample in samples)
    if count < _FEWEST:
        return "unknown", f"and {count} trained positions are too few to tell why: compare {_FEWEST} or more"
    found = [*_shifts(rows, samples), *_tempered(samples, at_temperatures), *_scaled(rows, samples)]
    fitting = [item for item in found if item.gap <= item.share * gap]
    if fitting:
        best = min(fitting, key=lambda item: item.gap)
        if all(item.cause == best.cause or item.gap > _MARGIN * best.gap for item in found):
            return best.cause, f"but by {best.gap:.3g} if {best.text}"
    return "unknown", _unexplained(rows, samples, at_temperatures)


def _unexplained(
    rows: Sequence[FloatsArray], samples: Sequence[Sample], at_temperatures: Mapping[float, Sequence[FloatsArray]]
) -> str:
    """Say what was tried, what was not, and where to look."""
    if at_temperatures:
        tried = ", ".join(f"{temperature:g}" for temperature in at_temperatures)
        told = f"and neither a shift nor a temperature of {tried} explains it"
    else:
        told = (
            "no shift explains it, and no temperature was tried: pass "
            "at_temperatures={t: target_logprobs(..., temperature=t)}"
        )
    log_ratio = np.concatenate([policy - sampler for policy, sampler in _trained_pairs(rows, samples)])
    raised = float((log_ratio <= _ROUNDING).mean())
    if raised >= _ONE_SIDED and log_ratio.min() >= -_MOST_RAISED:
        told += (
            f"; the sampler's are the higher ones at {raised:.0%} of positions: were they normalised again after top_p "
            "or top_k?"
        )
    return f"{told}; are the weights the sampler's?"


def _shifts(rows: Sequence[FloatsArray], samples: Sequence[Sample]) -> list[_Explanation]:
    """Compare value i of the policy with the sampler's values before and after it."""
    early: list[Float64Array] = []
    late: list[Float64Array] = []
    for row, (sampler, trained) in zip(rows, map(_sampled, samples), strict=True):
        early.append((row[1:] - sampler[:-1])[trained[:-1] & trained[1:]])
        late.append((row[:-1] - sampler[1:])[trained[:-1] & trained[1:]])
    if min(sum(map(len, early)), sum(map(len, late))) < _FEWEST:
        return []
    advice = "pass full-length, unshifted logprobs to build_sample, which shifts them once"
    return [
        _Explanation("shifted_early", _mean_abs(early), f"the sampler's are moved one position later: {advice}"),
        _Explanation("shifted_late", _mean_abs(late), f"the sampler's are moved one position earlier: {advice}"),
    ]


def _tempered(
    samples: Sequence[Sample], at_temperatures: Mapping[float, Sequence[FloatsArray]]
) -> Iterator[_Explanation]:
    """Compare the policy at other temperatures with the sampler."""
    advice = "compute target_logprobs at the temperature of sampling, or sample at 1.0"
    for temperature, given in at_temperatures.items():
        gap = _mean_abs([one - other for one, other in _trained_pairs(given, samples)])
        yield _Explanation("temperature", gap, f"the policy's are taken at temperature {temperature:g}: {advice}")


def _scaled(rows: Sequence[FloatsArray], samples: Sequence[Sample]) -> Iterator[_Explanation]:
    """Find the factor that brings the policy nearest to the sampler, where it is that of another base."""
    pairs = _trained_pairs(rows, samples)
    policy, sampler = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
    if not (square := float(policy @ policy)) > 0:
        return
    factor = float(policy @ sampler) / square
    gap = _mean_abs([factor * policy - sampler])
    for base, natural in _BASES.items():
        for side, wanted in (("policy", natural), ("sampler", 1 / natural)):
            if abs(factor / wanted - 1) <= _CLOSE:
                text = (
                    f"the policy's are multiplied by {factor:.3f}, which is another base of the logarithm: "
                    f"the {side}'s are log{base}, pass natural logs"
                )
                yield _Explanation("other_base", gap, text, _EXACT)


def _trained_pairs(rows: Sequence[FloatsArray], samples: Sequence[Sample]) -> list[tuple[Float64Array, Float64Array]]:
    """Give the policy's and the sampler's logprobs at trained positions, float64."""
    told = zip(rows, map(_sampled, samples), strict=True)
    return [(row[trained].astype(np.float64), sampler[trained]) for row, (sampler, trained) in told]


def _sampled(sample: Sample) -> tuple[Float64Array, BoolArray]:
    return sample.loss_fn_inputs["logprobs"].data.astype(np.float64), sample.weights != 0


def _mean_abs(parts: Sequence[Float64Array]) -> float:
    values = np.abs(np.concatenate(parts))
    return float(values.mean()) if len(values) else float("inf")
