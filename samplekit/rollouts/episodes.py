"""Scored trajectories -> samples: steps that continue each other share one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from samplekit.errors import AlignmentError, SampleError
from samplekit.rollouts.listed import listed, several
from samplekit.rollouts.numbering import numbered, refuse_single
from samplekit.rollouts.prefixes import prefix_runs
from samplekit.rollouts.sample_list import Drop, SampleList
from samplekit.rollouts.scores import DoubleArray, finite_numbers
from samplekit.rollouts.sequence import Part, build_sequence
from samplekit.rollouts.settings import Baseline, Scale, refuse_length, refuse_no_flag, refuse_settings
from samplekit.rollouts.standing import Standing, compare, constant, refuse_beyond_float32
from samplekit.rollouts.trajectory import Trajectory
from samplekit.sample import Sample
from samplekit.sample.arrays import IntArray


def build_trajectory_samples(
    trajectories: Iterable[Trajectory],
    *,
    advantages: object = None,
    merge: bool = True,
    scale: Scale = "std",
    baseline: Baseline = "mean",
    drop_degenerate: bool = True,
    max_length: int | None = None,
) -> SampleList:
    """Build the samples of whole episodes: every sampled token trains once, with its trajectory's advantage.

    Where a step's prompt begins, token for token, with all that an earlier step read and wrote, both share one sample
    (a tool's answer between them has weight 0, logprob 0 and advantage 0); a step continues the longest such run.
    Anything else, such as a history that was rewritten, starts a sample of its own. Nothing is encoded again.

    Args:
        trajectories: scored, unless advantages are given; two or more a group.
        advantages: one number a trajectory, shape (N,), instead of comparing rewards.
        merge: False builds one sample a step; the same tokens train with the same values.
        scale: as `group_advantages` takes it, which divides squares by G - 1.
        baseline: as `group_advantages` takes it.
        drop_degenerate: leave out groups whose advantages are all 0; False keeps them.
        max_length: the most tokens of a sample. Steps join only where they fit together; the end of a single one that
            is longer is cut off.

    Returns:
        The samples in the order of the input, each with weights, logprobs and advantages, and its group, group_size,
        reward, source and steps (their indices) in info. ``.dropped`` counts the completions that train in none of
        them, one a step, by reason: degenerate, empty (no token was sampled), no_room (the prompt alone fills
        max_length).

    Raises:
        SampleError: a trajectory has no reward and no advantage is given, is the only one of its group, has an
            advantage that float32 cannot hold, or only some name their group (where none does, all are one group); or a
            setting is none.
        AlignmentError: advantages and trajectories differ in number.
    """
    refuse_settings(scale, baseline)
    refuse_length(max_length)
    refuse_no_flag(merge, "merge")
    refuse_no_flag(drop_degenerate, "drop_degenerate")
    items = several(trajectories, Trajectory, "trajectories")
    if not items:
        _refuse_surplus(advantages)
        return SampleList()
    codes, _ = numbered(_group_keys(items))
    standing = _compared(items, codes, scale, baseline) if advantages is None else _given(advantages, codes)
    samples: list[Sample] = []
    drops: list[Drop] = []
    for number, item in enumerate(items):
        parts = [Part(step.prompt, step.completion, float(standing.advantages[number])) for step in item.steps]
        dropped = "degenerate" if drop_degenerate and standing.degenerate[number] else None
        reasons = [dropped or part.without_room(max_length) for part in parts]
        drops += _drops(number, item, reasons)
        info = _info(number, item, int(standing.sizes[number]))
        kept = [index for index, reason in enumerate(reasons) if reason is None]
        samples += [
            build_sequence([parts[index] for index in run], max_length, {**info, "steps": run})
            for run in _runs(item, kept, merge, max_length)
        ]
    return SampleList(samples, drops)


def _group_keys(items: Sequence[Trajectory]) -> list[str | int | None]:
    """Give every trajectory's group; all of them name one, or none does."""
    keys = [item.group for item in items]
    if None in keys and any(key is not None for key in keys):
        raise SampleError(
            f"trajectories[{keys.index(None)}].group is None while others name theirs, expected an id: "
            "name the group of every trajectory, or of none"
        )
    return keys


def _compared(items: Sequence[Trajectory], codes: IntArray, scale: Scale, baseline: Baseline) -> Standing:
    for number, item in enumerate(items):
        if item.reward is None:
            raise SampleError(
                f"trajectories[{number}].reward is None, expected a number: "
                "score it with Trajectory.with_reward, or pass advantages"
            )
    advice = "run every task several times, or pass advantages"
    refuse_single(codes, lambda number: _place(number, items[number]), advice, "trajectory")
    rewards = [item.reward for item in items if item.reward is not None]
    standing = compare(rewards, codes, np.ones(len(items), dtype=np.bool_), scale, baseline)
    refuse_beyond_float32(standing.advantages, np.array(rewards), lambda number: _place(number, items[number]))
    return standing


def _place(number: int, item: Trajectory) -> str:
    named = "" if item.group is None else f" (group {item.group!r})"
    return f"trajectories[{number}]{named}"


def _refuse_surplus(advantages: object) -> None:
    """Refuse advantages where there is no trajectory."""
    given = [] if advantages is None else listed(advantages, "advantages", "one value for every trajectory")
    if given:
        raise AlignmentError(f"advantages holds {len(given)} values, expected one for each of 0 trajectories")


def _given(advantages: object, codes: IntArray) -> Standing:
    """Take advantages as they are given."""
    advice = "repair what gives the trajectories their advantages"
    values: DoubleArray = finite_numbers(advantages, "advantages", member="trajectory", advice=advice)
    if len(values) != len(codes):
        raise AlignmentError(
            f"advantages holds {len(values)} values, expected one for each of {len(codes)} trajectories"
        )
    nobody = np.zeros(len(codes), dtype=np.bool_)
    return Standing(values, np.bincount(codes)[codes], nobody, constant(values, codes))


def _runs(item: Trajectory, kept: Sequence[int], merge: bool, max_length: int | None) -> list[list[int]]:
    """Say which of the steps that train share a sample."""
    if not merge:
        return [[index] for index in kept]
    return [[kept[place] for place in run] for run in prefix_runs([item.steps[index] for index in kept], max_length)]


def _drops(number: int, item: Trajectory, reasons: Sequence[str | None]) -> Iterator[Drop]:
    for index, reason in enumerate(reasons):
        if reason is not None:
            yield Drop(reason, f"trajectories[{number}].steps[{index}]", item.group)


def _info(number: int, item: Trajectory, group_size: int) -> dict[str, object]:
    named = {} if item.group is None else {"group": item.group}
    scored = {} if item.reward is None else {"reward": item.reward}
    return {**named, "group_size": group_size, **scored, "source": f"trajectories[{number}]"}
