"""What a batch of groups or trajectories looks like in numbers, for any logger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from samplekit.errors import SampleError
from samplekit.rollouts.completion import Completion
from samplekit.rollouts.group import Group
from samplekit.rollouts.listed import listed, several
from samplekit.rollouts.members import members_of
from samplekit.rollouts.numbering import any_in_group, numbered
from samplekit.rollouts.scores import DoubleArray
from samplekit.rollouts.standing import compare
from samplekit.rollouts.trajectory import Trajectory, group_keys
from samplekit.sample.arrays import IntArray


@dataclass(frozen=True)
class _Batch:
    """What is compared (completions, or trajectories of several) laid out flat, and its groups.

    Groups are formed as build_grpo_samples and build_trajectory_samples form them.

    Attributes:
        members: the completions of each that is compared.
        codes: the group of each, int64 (N,).
        names: the groups by number.
        prompt_lengths: of each prompt that was sampled from.
        rewards: of each that is compared, float64 (N,); None where none is scored.
        are_trajectories: whether trajectories are compared.
    """

    members: list[tuple[Completion, ...]]
    codes: IntArray
    names: list[str | int | None]
    prompt_lengths: list[int]
    rewards: DoubleArray | None
    are_trajectories: bool = False

    @property
    def completions(self) -> list[Completion]:
        """All of them, one after the other."""
        return [completion for member in self.members for completion in member]


def rollout_metrics(groups: Iterable[Group] | Iterable[Trajectory]) -> dict[str, float]:
    """Describe a batch of groups, or of trajectories, in numbers named as the service names its own, for any logger.

    Every value is finite; what cannot be told is left out (rewards of groups that are not scored, the entropy of no
    tokens). Lengths count tokens. ``entropy/mean`` is minus the mean logprob of the sampled tokens in nats: an estimate
    of the sampling policy's entropy a token, without bias where it sampled at temperature 1 from all tokens.
    ``group/degenerate_fraction`` is the share of groups that teach nothing, for all their rewards are equal (or there
    is one only); ``reward/group_std/mean`` is over groups of two or more, with G - 1.
    ``completion/cut_fraction`` is the share that something else than the model ended (`Completion.was_cut`); of the
    builders' max_length it knows nothing.

    Of trajectories, rewards and groups are theirs, completions and prompts those of their steps, and
    ``trajectory/count`` and ``trajectory/steps/...`` are told too.

        >>> from samplekit import Completion, Group
        >>> group = Group([1, 2], [Completion([3], [-0.5]), Completion([4, 5], [-0.25, -0.75])]).with_rewards([1, 0])
        >>> found = rollout_metrics([group])
        >>> found["reward/mean"], found["completion/length/mean"], found["entropy/mean"]
        (0.5, 1.5, 0.5)

    Raises:
        SampleError: groups are none, hold both kinds, or some completions (or trajectories) are scored and others are
            not.
    """
    batch = _batch(groups)
    completions = batch.completions
    found = {"group/count": float(len(batch.names)), "completion/count": float(len(completions))}
    if not completions:
        return found
    sizes = np.bincount(batch.codes).astype(np.float64)
    if batch.are_trajectories:
        steps = np.array([len(member) for member in batch.members], dtype=np.float64)
        found |= {"trajectory/count": float(len(steps)), **_spread("trajectory/steps", steps)}
    found["group/size/mean"] = float(sizes.mean())
    found["prompt/length/mean"] = sum(batch.prompt_lengths) / len(batch.prompt_lengths)
    lengths = _lengths(completions)
    found |= _spread("completion/length", lengths)
    found["completion/cut_fraction"] = sum(completion.was_cut for completion in completions) / len(completions)
    found["completion/empty_fraction"] = float((lengths == 0).mean())
    entropy = _entropy(completions)
    if entropy is not None:
        found["entropy/mean"] = entropy
    return found | _reward_metrics(batch, sizes)


def group_metrics(groups: Iterable[Group] | Iterable[Trajectory]) -> list[dict[str, float | str | None]]:
    """Describe every group of a batch, or of trajectories: one row a group, in the order in which they first appear.

    Returns:
        Rows of ``group`` (its id), ``size`` (of what is compared), ``degenerate`` (1.0 or 0.0), and of
        ``reward/...``, ``completion/length/...`` and ``entropy/mean`` as in `rollout_metrics`.

    Raises:
        SampleError: as `rollout_metrics`.
    """
    batch = _batch(groups)
    if not batch.members:
        return []
    ends = np.cumsum(np.bincount(batch.codes))[:-1]
    members: list[IntArray] = np.split(np.argsort(batch.codes, kind="stable"), ends)
    flat = None if batch.rewards is None else _degenerate(batch.rewards, batch.codes)
    return [_row(batch, flat, number, places) for number, places in enumerate(members)]


def _row(batch: _Batch, flat: DoubleArray | None, number: int, places: IntArray) -> dict[str, float | str | None]:
    members = [completion for place in places for completion in batch.members[int(place)]]
    row: dict[str, float | str | None] = {"group": batch.names[number], "size": float(len(places))}
    if batch.rewards is not None and flat is not None:
        row["degenerate"] = float(flat[number])
        row |= _spread("reward", batch.rewards[places])
    row |= _spread("completion/length", _lengths(members))
    entropy = _entropy(members)
    return row if entropy is None else {**row, "entropy/mean": entropy}


def _reward_metrics(batch: _Batch, sizes: DoubleArray) -> dict[str, float]:
    rewards = batch.rewards
    if rewards is None:
        return {}
    found = _spread("reward", rewards)
    found["group/degenerate_fraction"] = float(_degenerate(rewards, batch.codes).mean())
    means = np.bincount(batch.codes, rewards) / sizes
    squares = np.bincount(batch.codes, (rewards - means[batch.codes]) ** 2)
    if (sizes > 1).any():
        found["reward/group_std/mean"] = float(np.sqrt(squares[sizes > 1] / (sizes[sizes > 1] - 1)).mean())
    return found


def _degenerate(rewards: DoubleArray, codes: IntArray) -> DoubleArray:
    """Tell of every group whether it teaches nothing, 1.0 or 0.0."""
    standing = compare(rewards, codes, np.ones(len(codes), dtype=np.bool_), "none", "mean")
    return any_in_group(standing.degenerate | standing.alone, codes, int(codes.max()) + 1).astype(np.float64)


def _spread(name: str, values: DoubleArray) -> dict[str, float]:
    deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return {
        f"{name}/mean": float(values.mean()),
        f"{name}/std": deviation,
        f"{name}/min": float(values.min()),
        f"{name}/max": float(values.max()),
    }


def _lengths(completions: Sequence[Completion]) -> DoubleArray:
    """Sampled tokens of each completion."""
    return np.array([completion.length for completion in completions], dtype=np.float64)


def _entropy(completions: Sequence[Completion]) -> float | None:
    num_tokens = sum(completion.length for completion in completions)
    total = sum(float(completion.logprobs.sum(dtype=np.float64)) for completion in completions)
    return -total / num_tokens + 0.0 if num_tokens else None


def _batch(groups: object) -> _Batch:
    given = listed(groups, "groups", "a list of Group, or of Trajectory")
    if any(isinstance(item, Trajectory) for item in given):
        return _episodes(several(given, Trajectory, "trajectories"))
    members = members_of(given)
    codes, _ = numbered([member.key for member in members])
    firsts: list[int] = np.unique(codes, return_index=True)[1].tolist()
    return _Batch(
        [(member.completion,) for member in members],
        codes,
        [members[place].group.id for place in firsts],
        [len(member.group.prompt) for member in members if member.index == 0],
        _rewards([member.completion.reward for member in members], "completions", "Group.with_rewards"),
    )


def _episodes(items: Sequence[Trajectory]) -> _Batch:
    codes, names = numbered(group_keys(items))
    return _Batch(
        [tuple(step.completion for step in item.steps) for item in items],
        codes,
        names,
        [len(step.prompt) for item in items for step in item.steps],
        _rewards([item.reward for item in items], "trajectories", "Trajectory.with_reward"),
        are_trajectories=True,
    )


def _rewards(given: Sequence[float | None], what: str, how: str) -> DoubleArray | None:
    scored = [reward for reward in given if reward is not None]
    if scored and len(scored) < len(given):
        raise SampleError(
            f"{len(given) - len(scored)} of {len(given)} {what} have no reward, expected all or none of them to: "
            f"score every one with {how}"
        )
    return np.array(scored, dtype=np.float64) if scored else None
