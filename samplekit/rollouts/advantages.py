"""Rewards compared within their group: how much better a completion did than the others of its prompt."""

from __future__ import annotations

from typing import Any

import numpy as np

from samplekit.errors import AlignmentError
from samplekit.rollouts.numbering import any_in_group, group_codes, refuse_single
from samplekit.rollouts.scores import DoubleArray, finite_numbers
from samplekit.rollouts.settings import Baseline, Scale, refuse_settings
from samplekit.sample.arrays import IntArray

_ROUNDINGS = 4  # how many units in the last place two rewards may differ by and still be called equal
_LEAST_UNIT, _LEAST_NARROW_UNIT = 2.0**-53, 2.0**-24  # the step below 1.0 in float64 and in float32


def group_advantages(
    rewards: object,
    groups: object = None,
    *,
    scale: Scale = "std",
    baseline: Baseline = "mean",
    ddof: int = 1,
    floor: float = 1e-6,
) -> DoubleArray:
    """Give every reward's advantage over its own group: ``(reward - baseline) / scale``, in the order of the input.

    A group whose rewards are equal up to float rounding gets exactly 0. Equal means: apart by at most 4 units in the
    last place of the largest one, in float32 where a reward of the group is a float32 number (and not a whole one),
    else in float64. Near 0 rewards are what is left of larger terms (0.1 + 0.2 - 0.3 gives 6e-17), so that unit counts
    as at least the one below 1.0: 1.1e-16, or 6e-8 where every reward is a float32 number. Whole numbers are equal only
    where they are the same.

        >>> group_advantages([1, 0, 2, 5], ["a", "b", "a", "b"], scale="none").tolist()
        [-0.5, -2.5, 0.5, 2.5]

    Args:
        rewards: one finite number (or bool) a completion, shape (N,).
        groups: what tells each reward's group, shape (N,): text or whole numbers, in any order. None puts all in
            one group.
        scale: ``"std"`` divides by the group's standard deviation, ``"none"`` by 1 (Dr. GRPO).
        baseline: ``"mean"`` of the group, or ``"leave_one_out"``: the mean of the others.
        ddof: 1 divides the squares by G - 1 as torch does, 0 by G as numpy does; read where scale is ``"std"``.
        floor: the least that is divided by, above or equal to 0: a standard deviation below it counts as it.

    Returns:
        float64 (N,). With the mean as the baseline, each group sums to 0 up to rounding.

    Raises:
        AlignmentError: groups and rewards differ in length, or rewards are empty or not 1-D.
        SampleError: a reward is no finite number, or a whole one that float64 would round (the message names its group
            and index), an id is neither text nor a whole number, rewards or ids have no order (a set, a dict) or hide
            a value (a masked array), a group holds one completion only, or a setting is none.

    Source: Shao et al. 2024, DeepSeekMath, section 4.1.2; without the division: Liu et al. 2025, Understanding
    R1-Zero-Like Training, section 3; leave_one_out: Ahmadian et al. 2024, Back to Basics, section 2.2. Departs from
    them in the exact zero of equal rewards and in a floor where they add an epsilon.
    """
    refuse_settings(scale, baseline, ddof, floor)
    codes, names = group_codes(groups)
    values = finite_numbers(rewards, "rewards", lambda index: _place(index, codes, names))
    if codes is None:
        codes, names = np.zeros(len(values), dtype=np.int64), [None]
    if len(codes) != len(values):
        raise AlignmentError(
            f"groups holds {len(codes)} ids, rewards {len(values)} values, expected one id for every reward: "
            f"{_unmatched(len(values), codes, names)} has no counterpart"
        )
    refuse_single(codes, lambda index: _place(index, codes, names), "sample several completions of every prompt")
    return _advantages(values, codes, len(names), scale, baseline, ddof, floor)


def _advantages(
    rewards: DoubleArray, codes: IntArray, num_groups: int, scale: str, baseline: str, ddof: int, floor: float
) -> DoubleArray:
    """Do the arithmetic, in float64 and without a loop over groups."""
    sizes = np.bincount(codes, minlength=num_groups).astype(np.float64)
    low = np.full(num_groups, np.inf)
    np.minimum.at(low, codes, rewards)
    shifted = rewards - low[codes]  # near 0, so that a large reward that all share takes no digits away
    spread = np.zeros(num_groups)
    np.maximum.at(spread, codes, shifted)
    centered = shifted - (np.bincount(codes, shifted, num_groups) / sizes)[codes]
    factor = np.where(spread <= _rounding(rewards, codes, low, spread), 0.0, 1.0)
    if baseline == "leave_one_out":
        factor *= sizes / (sizes - 1)  # r - mean(others) = (r - mean(all)) * G / (G - 1)
    if scale == "std":
        deviation = np.sqrt(np.bincount(codes, centered * centered, num_groups) / (sizes - ddof))
        factor /= np.where(factor == 0, 1.0, np.maximum(deviation, floor))
    advantages: DoubleArray = centered * factor[codes] + 0.0  # + 0.0: none reads -0.0
    return advantages


def _rounding(rewards: DoubleArray, codes: IntArray, low: DoubleArray, spread: DoubleArray) -> DoubleArray:
    """Say how far apart each group's rewards may be and still be one number that was rounded differently."""
    largest = np.maximum(np.abs(low), np.abs(low + spread))
    broken = rewards != np.rint(rewards)
    # where one was rounded to float32, the doubles beside it may be the same number before it was
    fits = rewards == rewards.astype(np.float32)
    narrow = any_in_group(broken & fits, codes, len(low))
    unit = np.where(narrow, np.spacing(largest.astype(np.float32)), np.spacing(largest))
    least = np.where(any_in_group(~fits, codes, len(low)), _LEAST_UNIT, _LEAST_NARROW_UNIT)
    unit = np.maximum(unit, least)
    return np.where(any_in_group(broken, codes, len(low)), _ROUNDINGS * unit, 0.0)


def _place(index: int, codes: IntArray | None, names: list[Any]) -> str:
    """Name a reward by its index and its group."""
    if codes is None or index >= len(codes) or names[codes[index]] is None:
        return f"rewards[{index}]"
    return f"rewards[{index}] (group {names[codes[index]]!r})"


def _unmatched(num_rewards: int, codes: IntArray, names: list[Any]) -> str:
    """Name the first value of the longer of both."""
    if num_rewards > len(codes):
        return f"rewards[{len(codes)}]"
    return f"groups[{num_rewards}] (group {names[codes[num_rewards]]!r})"
