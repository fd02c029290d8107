"""How everyone in a batch stands within the group it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from samplekit.errors import AlignmentError, SampleError
from samplekit.rollouts.advantages import group_advantages
from samplekit.rollouts.listed import listed
from samplekit.rollouts.numbering import BoolArray, any_in_group
from samplekit.rollouts.scores import DoubleArray, finite_numbers
from samplekit.rollouts.settings import Baseline, Scale
from samplekit.sample.arrays import IntArray


@dataclass(frozen=True)
class Standing:
    """What comparing gives, value i for member i, shape (N,).

    Attributes:
        advantages: over the member's group; 0 for who is not compared.
        sizes: how many members of its group are compared.
        alone: it is the only one of its group that is left to compare.
        degenerate: it counts, and every advantage of its group is 0.
    """

    advantages: DoubleArray
    sizes: IntArray
    alone: BoolArray
    degenerate: BoolArray

    def reason(self, index: int, drop_degenerate: bool) -> str | None:
        """Say why member ``index`` trains in no sample, ``"alone"`` or ``"degenerate"``; None where it may."""
        if self.alone[index]:
            return "alone"
        return "degenerate" if drop_degenerate and self.degenerate[index] else None


def compare(
    rewards: Sequence[float] | DoubleArray, codes: IntArray, counts: BoolArray, scale: Scale, baseline: Baseline
) -> Standing:
    """Compare members with their groups.

    Args:
        rewards: shape (N,).
        codes: each member's group, numbered from 0, int64 (N,).
        counts: who enters its group's baseline, bool (N,).
        scale: as group_advantages takes it.
        baseline: as group_advantages takes it.
    """
    sizes = _sizes(codes, counts)
    compared = counts & (sizes > 1)
    advantages = np.zeros(len(codes))
    if compared.any():
        values = np.asarray(rewards, dtype=np.float64)[compared]
        advantages[compared] = group_advantages(values, codes[compared], scale=scale, baseline=baseline)
    return Standing(advantages, sizes, counts & (sizes == 1), compared & _flat(advantages, codes))


def given_advantages(advantages: object, codes: IntArray, counts: BoolArray, member: str) -> Standing:
    """Take advantages as they are given: a group whose are all 0 is degenerate, and nobody is alone.

    Args:
        advantages: one number a member.
        codes: each member's group, numbered from 0, int64 (N,); N may be 0.
        counts: whose advantages are looked at, bool (N,).
        member: what each of them belongs to, ``"completion"`` or ``"trajectory"``.

    Raises:
        AlignmentError: there is another number of them than of members.
        SampleError: one is no finite float32 number.
    """
    wanted = {"completion": "completions", "trajectory": "trajectories"}[member]
    if not len(codes):
        values = np.array(listed(advantages, "advantages", f"one value for every {member}"), dtype=object)
    else:
        advice = f"repair what gives the {wanted} their advantages"
        values = finite_numbers(advantages, "advantages", member=member, advice=advice)
    if len(values) != len(codes):
        raise AlignmentError(f"advantages holds {len(values)} values, expected one for each of {len(codes)} {wanted}")
    nobody = np.zeros(len(codes), dtype=np.bool_)
    numbers = values.astype(np.float64)
    return Standing(numbers, _sizes(codes, counts), nobody, counts & _flat(np.where(counts, numbers, 0.0), codes))


def refuse_beyond_float32(advantages: DoubleArray, scores: DoubleArray, place: Callable[[int], str]) -> None:
    """Refuse an advantage that no sample can hold.

    Args:
        advantages: shape (N,).
        scores: the rewards it comes from, shape (N,).
        place: names a member in the error.

    Raises:
        SampleError: naming the first such member and its reward.
    """
    wide = np.flatnonzero(np.abs(advantages) > np.finfo(np.float32).max)
    if len(wide):
        index = int(wide[0])
        raise SampleError(
            f"{place(index)} has the reward {scores[index]:g} and with it an advantage of {advantages[index]:g}, "
            "expected one that float32 holds: scale the rewards"
        )


def _sizes(codes: IntArray, counts: BoolArray) -> IntArray:
    """Count who counts in each member's group, int64 (N,)."""
    return np.bincount(codes[counts], minlength=len(codes))[codes]


def _flat(advantages: DoubleArray, codes: IntArray) -> BoolArray:
    """Tell whose group has no advantage but 0, bool (N,)."""
    return ~any_in_group(advantages != 0, codes, len(codes))[codes]
