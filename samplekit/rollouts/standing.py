"""How everyone in a batch stands within the group it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from samplekit.errors import SampleError
from samplekit.rollouts.advantages import BoolArray, group_advantages
from samplekit.rollouts.scores import DoubleArray
from samplekit.rollouts.settings import Baseline, Scale
from samplekit.sample.arrays import IntArray


@dataclass(frozen=True)
class Standing:
    """What comparing gives, value i for member i, shape (N,).

    Attributes:
        advantages: over the member's group; 0 for who is not compared.
        sizes: how many members of its group are compared.
        alone: it is the only one of its group that is left to compare.
        degenerate: it is compared, and every advantage of its group is 0.
    """

    advantages: DoubleArray
    sizes: IntArray
    alone: BoolArray
    degenerate: BoolArray


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
    sizes = np.bincount(codes[counts], minlength=int(codes.max()) + 1)[codes]
    compared = counts & (sizes > 1)
    advantages = np.zeros(len(codes))
    if compared.any():
        values = np.asarray(rewards, dtype=np.float64)[compared]
        advantages[compared] = group_advantages(values, codes[compared], scale=scale, baseline=baseline)
    return Standing(advantages, sizes, counts & (sizes == 1), compared & constant(advantages, codes))


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


def constant(advantages: DoubleArray, codes: IntArray) -> BoolArray:
    """Tell whose group has no advantage but 0, bool (N,)."""
    moved = np.zeros(int(codes.max()) + 1, dtype=np.bool_)
    moved[codes[advantages != 0]] = True
    return ~moved[codes]
