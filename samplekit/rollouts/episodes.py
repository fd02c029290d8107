"""Scored trajectories -> samples: steps that continue each other share one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from samplekit.errors import SampleError
from samplekit.rollouts.listed import several
from samplekit.rollouts.numbering import BoolArray, numbered, refuse_single
from samplekit.rollouts.prefixes import prefix_runs
from samplekit.rollouts.sample_list import Drop, SampleList
from samplekit.rollouts.sequence import Part, build_sequence
from samplekit.rollouts.settings import (
    Baseline,
    Overlong,
    Scale,
    refuse_builder_settings,
    refuse_no_flag,
)
from samplekit.rollouts.standing import Standing, compare, given_advantages, refuse_beyond_float32
from samplekit.rollouts.trajectory import Trajectory, group_keys
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
    overlong: Overlong = "keep",
    max_length: int | None = None,
) -> SampleList:
    """Build the samples of whole episodes: every sampled token trains once, with its trajectory's advantage.

    Where a step's prompt begins, token for token, with all that an earlier step read and wrote, both share one sample
    (a tool's answer between them has weight 0, logprob 0 and advantage 0); a step continues the longest such run.
    Anything else, such as a history that was rewritten, starts a sample of its own. Nothing is encoded again.

    A fork inside one trajectory (two steps that continue the same one) trains the shared part once. Trajectories know
    nothing of each other: two that begin with the same step both train it, each with its own advantage.

    Args:
        trajectories: scored, unless advantages are given; two or more a group.
        advantages: one number a trajectory, shape (N,), instead of comparing rewards.
        merge: False builds one sample a step; the same tokens train with the same values.
        scale: as `group_advantages` takes it, which divides squares by G - 1.
        baseline: as `group_advantages` takes it.
        drop_degenerate: leave out groups whose advantages are all 0; False keeps them.
        overlong: as `build_grpo_samples` takes it, for trajectories: one is overlong where a completion of it was
            cut (`Completion.was_cut`), or a step holds more than max_length tokens.
        max_length: the most tokens of a sample. Steps join only where they fit together; the end of a single one that
            is longer is cut off.

    Returns:
        The samples in the order of the input, each with weights, logprobs and advantages, and its group, group_size,
        reward, source, steps (their indices) and stop_reason (of the last of them) in info; and, where its trajectory
        trains in several, run (its number among them, from 0) and num_runs, which `SampleList.num_split` counts.
        ``.dropped`` counts the completions that train in none of them, one a step, by reason: degenerate, overlong,
        empty (no token was sampled), no_room (the prompt alone fills max_length), alone (``overlong="drop"`` left one
        trajectory of a group).

    Raises:
        SampleError: a trajectory has no reward and no advantage is given, is the only one of its group, has an
            advantage that float32 cannot hold, or only some name their group (where none does, all are one group); or a
            setting is none.
        AlignmentError: advantages and trajectories differ in number.
    """
    refuse_builder_settings(scale, baseline, overlong, max_length, drop_degenerate)
    refuse_no_flag(merge, "merge")
    items = several(trajectories, Trajectory, "trajectories")
    codes, _ = numbered(group_keys(items))
    too_long = np.array([overlong != "keep" and _is_overlong(item, max_length) for item in items], dtype=np.bool_)
    counts = ~too_long if overlong == "drop" else np.ones(len(items), dtype=np.bool_)
    if advantages is not None:
        standing = given_advantages(advantages, codes, counts, "trajectory")
    elif items:
        standing = _of_rewards(items, codes, counts, scale, baseline)
    else:
        return SampleList()
    samples: list[Sample] = []
    drops: list[Drop] = []
    for number, item in enumerate(items):
        parts = [Part(step.prompt, step.completion, float(standing.advantages[number])) for step in item.steps]
        dropped = "overlong" if too_long[number] else standing.reason(number, drop_degenerate)
        reasons = [dropped or part.without_room(max_length) for part in parts]
        drops += _drops(number, item, reasons)
        info = _info(number, item, int(standing.sizes[number]))
        kept = [index for index, reason in enumerate(reasons) if reason is None]
        runs = _runs(item, kept, merge, max_length)
        samples += [
            build_sequence(
                [parts[index] for index in run],
                max_length,
                {**info, **_stop(item, run), "steps": run, **_split(place, runs)},
            )
            for place, run in enumerate(runs)
        ]
    return SampleList(samples, drops)


def _is_overlong(item: Trajectory, max_length: int | None) -> bool:
    """Tell whether a completion of it was cut, or a step does not fit into max_length."""
    if any(step.completion.was_cut for step in item.steps):
        return True
    return max_length is not None and any(len(step.prompt) + step.completion.length > max_length for step in item.steps)


def _stop(item: Trajectory, run: Sequence[int]) -> dict[str, str]:
    """Note why the last step of a sample ended."""
    reason = item.steps[run[-1]].completion.stop_reason
    return {} if reason is None else {"stop_reason": reason}


def _split(place: int, runs: Sequence[object]) -> dict[str, int]:
    """Note which of several samples of one trajectory a sample is."""
    return {"run": place, "num_runs": len(runs)} if len(runs) > 1 else {}


def _of_rewards(
    items: Sequence[Trajectory], codes: IntArray, counts: BoolArray, scale: Scale, baseline: Baseline
) -> Standing:
    for number, item in enumerate(items):
        if item.reward is None:
            raise SampleError(
                f"trajectories[{number}].reward is None, expected a number: "
                "score it with Trajectory.with_reward, or pass advantages"
            )
    advice = "run every task several times, or pass advantages"
    refuse_single(codes, lambda number: _place(number, items[number]), advice, "trajectory")
    rewards = [item.reward for item in items if item.reward is not None]
    standing = compare(rewards, codes, counts, scale, baseline)
    refuse_beyond_float32(standing.advantages, np.array(rewards), lambda number: _place(number, items[number]))
    return standing


def _place(number: int, item: Trajectory) -> str:
    named = "" if item.group is None else f" (group {item.group!r})"
    return f"trajectories[{number}]{named}"


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
