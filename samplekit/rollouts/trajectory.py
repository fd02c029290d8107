"""Several steps of one episode: what was read, what was sampled, and what the world answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from samplekit.errors import SampleError
from samplekit.rollouts.completion import Completion
from samplekit.rollouts.frozen import rebuild
from samplekit.rollouts.listed import one_or_more
from samplekit.rollouts.names import group_id
from samplekit.rollouts.sampled import sampled_ids
from samplekit.rollouts.scores import checked_reward
from samplekit.sample.arrays import IntArray, freeze
from samplekit.sample.kinds import describe_kind


@dataclass(frozen=True, eq=False)
class Step:
    """One call of the policy: the whole prompt it read, and the completion it gave.

    An observation (a tool's answer, the user's next message) has no place of its own: it is what the next step's prompt
    adds behind this completion. `ChatTemplate.next_prompt` makes that prompt, with this step's tokens as they are.

    Args:
        prompt: token ids, int64 (P,), read-only; everything the policy read, earlier steps included.
        completion: what it sampled.

    Raises:
        SampleError: a token is no id, or the completion is no Completion.
    """

    prompt: IntArray
    completion: Completion

    def __init__(self, prompt: object, completion: Completion) -> None:
        if not isinstance(completion, Completion):
            raise SampleError(f"step.completion is {describe_kind(completion)}, expected a Completion")
        object.__setattr__(self, "prompt", sampled_ids(prompt, "step.prompt"))
        object.__setattr__(self, "completion", completion)

    @property
    def tokens(self) -> IntArray:
        """What the policy had read and written when the step was done: prompt and completion, int64 (P + T,)."""
        return freeze(np.concatenate([self.prompt, self.completion.tokens]))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Step)
            and np.array_equal(self.prompt, other.prompt)
            and self.completion == other.completion
        )

    def __hash__(self) -> int:
        return hash((self.prompt.tobytes(), self.completion))

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), dict(vars(self)))

    def __repr__(self) -> str:
        return f"Step({len(self.prompt)} prompt tokens, {self.completion!r})"


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The steps of one episode, which share one reward.

    Args:
        steps: one or more, in the order in which they were taken.
        reward: the episode's score, finite; None while unscored.
        group: what the episodes have in common that are compared with this one, such as their task's id: text or a
            whole number of 64 bits.

    Raises:
        SampleError: there is no step, one is no Step, the reward is not finite, or the group is neither text nor
            a whole number.
    """

    steps: tuple[Step, ...]
    reward: float | None
    group: str | int | None

    def __init__(self, steps: Sequence[Step], *, reward: float | None = None, group: str | int | None = None) -> None:
        object.__setattr__(self, "steps", one_or_more(steps, Step, "steps"))
        object.__setattr__(self, "reward", None if reward is None else checked_reward(reward, "trajectory.reward"))
        object.__setattr__(self, "group", group_id(group, "group"))

    def with_reward(self, reward: float) -> Trajectory:
        """Give the same trajectory with a score."""
        return Trajectory(self.steps, reward=reward, group=self.group)

    def __len__(self) -> int:
        return len(self.steps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trajectory) and (
            (self.steps, self.reward, self.group) == (other.steps, other.reward, other.group)
        )

    def __hash__(self) -> int:
        return hash((self.steps, self.reward, self.group))

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), dict(vars(self)))

    def __repr__(self) -> str:
        return f"Trajectory({len(self)} steps, reward={self.reward}, group={self.group!r})"


def group_keys(items: Sequence[Trajectory]) -> list[str | int | None]:
    """Give every trajectory's group; all of them name one, or none does.

    Raises:
        SampleError: some do and some do not.
    """
    keys = [item.group for item in items]
    if None in keys and any(key is not None for key in keys):
        raise SampleError(
            f"trajectories[{keys.index(None)}].group is None while others name theirs, expected an id: "
            "name the group of every trajectory, or of none"
        )
    return keys
