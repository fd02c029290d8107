"""Scored groups -> samples: one a completion, each with its advantage over its own group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from samplekit.errors import SampleError
from samplekit.rollouts.group import Group
from samplekit.rollouts.members import Member, members_of
from samplekit.rollouts.numbering import BoolArray, numbered, refuse_single
from samplekit.rollouts.sample_list import Drop, SampleList
from samplekit.rollouts.sequence import Part, build_sequence
from samplekit.rollouts.settings import (
    Baseline,
    Overlong,
    Scale,
    refuse_builder_settings,
)
from samplekit.rollouts.standing import Standing, compare, given_advantages, refuse_beyond_float32
from samplekit.sample.arrays import IntArray


def build_grpo_samples(
    groups: Iterable[Group],
    *,
    advantages: object = None,
    scale: Scale = "std",
    baseline: Baseline = "mean",
    drop_degenerate: bool = True,
    overlong: Overlong = "keep",
    max_length: int | None = None,
) -> SampleList:
    """Build one sample a completion, its advantage on every sampled token, and say what trains in none.

    A group is what shares an id: completions of one id are compared however many `Group` objects hold them, and a Group
    without an id stands for itself. A completion is overlong where it was cut (`Completion.was_cut`: something else
    than the model ended it, a limit, an abort, a filter), or where prompt and completion together hold more than
    max_length tokens.

        >>> from samplekit import Completion, Group
        >>> group = Group([1, 2], [Completion([3], [-0.5]), Completion([4, 5], [-0.5, -0.1])], id="task 7")
        >>> samples = build_grpo_samples([group.with_rewards([1.0, 0.0])], scale="none")
        >>> [sample.loss_fn_inputs["advantages"].data.tolist() for sample in samples]
        [[0.0, 0.5], [0.0, -0.5, -0.5]]

    Args:
        groups: every completion of them scored, unless advantages are given; two or more a group.
        advantages: one number a completion, in the order of the groups, shape (N,), instead of comparing rewards.
        scale: as `group_advantages` takes it, which divides squares by G - 1.
        baseline: as `group_advantages` takes it.
        drop_degenerate: leave out groups whose advantages are all 0, for their rewards are equal; False keeps them.
        overlong: ``"keep"`` trains overlong completions, cut to max_length; ``"mask"`` lets them count in their group's
            baseline and builds no sample of them; ``"drop"`` does as if they had not been sampled.
        max_length: the most tokens of prompt and completion together; the end of what is longer is cut off.

    Returns:
        The samples in the order of the input, each with weights, logprobs and advantages, and its group, group_size,
        reward and source in info. ``.dropped`` counts the completions that train in none of them, by reason:
        degenerate, overlong, empty (no token was sampled), no_room (the prompt alone fills max_length), alone
        (``"drop"`` left one completion of a group).

    Raises:
        SampleError: a completion has no reward and no advantage is given, or a reward so large that float32 cannot hold
            its advantage, a group has one completion only, or a setting is none.
        AlignmentError: advantages and completions differ in number.

    Source: Shao et al. 2024, DeepSeekMath, section 4.1.2; leaving out degenerate groups and overlong completions: Yu et
    al. 2025, DAPO, sections 3.2 and 3.4.
    """
    refuse_builder_settings(scale, baseline, overlong, max_length, drop_degenerate)
    members = members_of(groups)
    codes, _ = numbered([member.key for member in members])
    too_long = np.array([overlong != "keep" and _is_overlong(member, max_length) for member in members], dtype=np.bool_)
    counts = ~too_long if overlong == "drop" else np.ones(len(members), dtype=np.bool_)
    if advantages is not None:
        standing = given_advantages(advantages, codes, counts, "completion")
    elif members:
        standing = _of_rewards(members, codes, counts, scale, baseline)
    else:
        return SampleList()
    parts = [_part(member, standing, index) for index, member in enumerate(members)]
    reasons = [
        "overlong" if too_long[index] else standing.reason(index, drop_degenerate) or part.without_room(max_length)
        for index, part in enumerate(parts)
    ]
    drops = [
        Drop(reason, member.source, member.group.id)
        for member, reason in zip(members, reasons, strict=True)
        if reason is not None
    ]
    built = [
        build_sequence([part], max_length, _info(member, int(standing.sizes[index])))
        for index, (member, part) in enumerate(zip(members, parts, strict=True))
        if reasons[index] is None
    ]
    return SampleList(built, drops)


def _rewards(members: Sequence[Member]) -> list[float]:
    """Give every completion's score; refuse what is not scored."""
    found = [member.completion.reward for member in members]
    if None in found:
        raise SampleError(
            f"{members[found.index(None)].source}.reward is None, expected a number: score the group with "
            "Group.with_rewards, or pass advantages"
        )
    return [reward for reward in found if reward is not None]


def _is_overlong(member: Member, max_length: int | None) -> bool:
    """Tell whether something else than the model ended it, or it does not fit into max_length."""
    length = len(member.group.prompt) + member.completion.length
    return member.completion.was_cut or (max_length is not None and length > max_length)


def _part(member: Member, standing: Standing, index: int) -> Part:
    return Part(member.group.prompt, member.completion, float(standing.advantages[index]))


def _of_rewards(
    members: Sequence[Member], codes: IntArray, counts: BoolArray, scale: Scale, baseline: Baseline
) -> Standing:
    rewards = _rewards(members)
    refuse_single(codes, lambda index: members[index].place, "generate several of every prompt, or pass advantages")
    standing = compare(rewards, codes, counts, scale, baseline)
    refuse_beyond_float32(standing.advantages, np.array(rewards), lambda index: members[index].place)
    return standing


def _info(member: Member, group_size: int) -> dict[str, object]:
    named = {} if member.group.id is None else {"group": member.group.id}
    reward = member.completion.reward
    scored = {} if reward is None else {"reward": reward}
    stop = {} if member.completion.stop_reason is None else {"stop_reason": member.completion.stop_reason}
    return {**named, "group_size": group_size, **scored, "source": member.source, **stop}
