"""The completions of one prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from samplekit.errors import AlignmentError
from samplekit.rollouts.completion import Completion
from samplekit.rollouts.frozen import rebuild
from samplekit.rollouts.listed import listed, one_or_more
from samplekit.rollouts.names import group_id
from samplekit.rollouts.sampled import sampled_ids, sampled_logprobs
from samplekit.rollouts.scores import checked_reward
from samplekit.sample.arrays import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Group:
    """The completions of one prompt.

    Args:
        prompt: token ids, int64 (P,), read-only.
        completions: G of them.
        id: what tells this group from every other: text or a whole number of 64 bits; groups are formed by it, never
            by position or prompt.
        prompt_logprobs: nats of the prompt's tokens, float32 (P,), read-only, at most 0, where they were asked for;
            value 0 is a placeholder.

    Raises:
        SampleError: a token is no id, there is no completion, one is no Completion, completions have no order (a set, a
            dict), the id is neither text nor a whole number, or a logprob after the first is none that a Completion
            takes.
        AlignmentError: prompt and prompt_logprobs differ in length.
    """

    prompt: IntArray
    completions: tuple[Completion, ...]
    id: str | int | None
    prompt_logprobs: FloatArray | None

    def __init__(
        self,
        prompt: object,
        completions: Sequence[Completion],
        *,
        id: str | int | None = None,  # noqa: A002 - the public name
        prompt_logprobs: FloatArray | None = None,
    ) -> None:
        ids = sampled_ids(prompt, "prompt")
        object.__setattr__(self, "prompt", ids)
        object.__setattr__(self, "completions", one_or_more(completions, Completion, "completions"))
        object.__setattr__(self, "id", group_id(id, "id"))
        logprobs = None if prompt_logprobs is None else _prompt_logprobs(prompt_logprobs, len(ids))
        object.__setattr__(self, "prompt_logprobs", logprobs)

    def with_rewards(self, fn_or_sequence: Callable[[Completion], float] | Sequence[float]) -> Group:
        """Give the same group with every completion scored.

        Args:
            fn_or_sequence: a function of a completion, or one number for each.

        Raises:
            AlignmentError: a sequence of another length than the completions.
            SampleError: a reward is no finite number, or what is given is neither a function nor a sequence (a set and
                a dict are none: their order is not that of the completions).
        """
        wanted = "one value for every completion"
        values = (
            [fn_or_sequence(item) for item in self.completions]
            if callable(fn_or_sequence)
            else listed(fn_or_sequence, "rewards", wanted)
        )
        if len(values) != len(self.completions):
            raise AlignmentError(
                f"rewards holds {len(values)} values, expected one for each of {len(self)} completions"
            )
        scored = tuple(
            item.with_reward(checked_reward(value, f"rewards[{index}]"))
            for index, (item, value) in enumerate(zip(self.completions, values, strict=True))
        )
        copied: Group = rebuild(type(self), {**vars(self), "completions": scored})
        return copied

    def __len__(self) -> int:
        return len(self.completions)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Group)
            and self.id == other.id
            and np.array_equal(self.prompt, other.prompt)
            and self.completions == other.completions
            and _equal(self.prompt_logprobs, other.prompt_logprobs)
        )

    def __hash__(self) -> int:
        return hash((self.id, self.prompt.tobytes(), len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), dict(vars(self)))

    def __repr__(self) -> str:
        return f"Group({len(self.prompt)} prompt tokens, {len(self)} completions, id={self.id!r})"


def _prompt_logprobs(given: object, length: int) -> FloatArray:
    values = sampled_logprobs(given, "prompt_logprobs", start=1)
    if len(values) != length:
        raise AlignmentError(
            f"prompt_logprobs holds {len(values)} values, the prompt {length} tokens, expected one for each, the first "
            "a placeholder: take both from one record"
        )
    return values


def _equal(left: FloatArray | None, right: FloatArray | None) -> bool:
    if left is None or right is None:
        return left is right
    return np.array_equal(left, right)
