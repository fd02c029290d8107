"""Row "advantages": interleaved groups of 8 rewards are compared; 200 groups for every sample of the size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.forms import RECIPE
from benchmarks.meters import cpu_time
from benchmarks.row import FLOOR, OURS, Case, Gate, Reading, Row, Size, Work, offer

ARRAYS = "ours on arrays"
GROUP_SIZE = 8
GROUPS_A_SAMPLE = 200  # 512 samples: 102,400 groups


def _prepare(size: Size) -> Case:
    loads: Mapping[str, Callable[[Size], Work]] = {OURS: _ours, ARRAYS: _on_arrays, RECIPE: _recipe, FLOOR: _floor}
    contenders, skipped = offer({name: partial(load, size) for name, load in loads.items()})
    return Case(contenders, lambda _name, found: np.round(np.asarray(found), 6).tolist(), skipped)


def _batch(size: Size) -> tuple[Any, Any]:
    """Make rewards as verifiers give them, and the number of each one's group, in the order in which they finish."""
    rng = np.random.default_rng(0)
    num_groups = size.num_samples * GROUPS_A_SAMPLE
    numbers = rng.permutation(np.repeat(np.arange(num_groups), GROUP_SIZE))
    return rng.choice([0.0, 0.1, 0.25, 1.0], len(numbers)), numbers


def _lists(size: Size) -> tuple[list[float], list[str]]:
    rewards, numbers = _batch(size)
    return rewards.tolist(), [f"operation/{number}" for number in numbers.tolist()]


def _ours(size: Size) -> Work:
    from samplekit import group_advantages

    rewards, groups = _lists(size)
    return lambda: group_advantages(rewards, groups)


def _on_arrays(size: Size) -> Work:
    from samplekit import group_advantages

    rewards, numbers = _batch(size)
    return lambda: group_advantages(rewards, numbers)


def _recipe(size: Size) -> Work:
    """Do the same by hand: collect each group's rewards, then compare member by member."""
    rewards, groups = _lists(size)

    def work() -> list[float]:
        members: dict[str, list[float]] = {}
        for reward, group in zip(rewards, groups, strict=True):
            members.setdefault(group, []).append(reward)
        means = {group: fmean(values) for group, values in members.items()}
        scales = {group: _scale(values, means[group]) for group, values in members.items()}
        return [(reward - means[group]) / scales[group] for reward, group in zip(rewards, groups, strict=True)]

    return work


def _scale(values: list[float], mean: float) -> float:
    if max(values) == min(values):
        return 1.0
    return max(1e-6, (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5)


def _floor(size: Size) -> Work:
    """Compare rows of 8 that were sorted beforehand, with nothing checked: what a reshape costs."""
    rewards, numbers = _batch(size)
    order = np.argsort(numbers, kind="stable")
    rows = rewards[order].reshape(-1, GROUP_SIZE)

    def work() -> Any:
        centered = rows - rows.mean(axis=1, keepdims=True)
        found = np.empty(rows.size)
        found[order] = (centered / np.maximum(rows.std(axis=1, ddof=1, keepdims=True), 1e-6)).ravel()
        return found

    return work


ROW = Row(
    key="advantages",
    work="advantages, groups of 8",
    prepare=_prepare,
    readings=[Reading("CPU time", cpu_time, (Gate(RECIPE), Gate(ARRAYS, sense="floor"), Gate(FLOOR, sense="floor")))],
)
