"""The completions of one prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from samplekit.errors import AlignmentError, SampleError
from samplekit.rollouts.completion import Completion, checked_reward, ids_from_decimal
from samplekit.rollouts.frozen import rebuild, refuse_no_id, several
from samplekit.rollouts.scores import plain_list
from samplekit.sample.arrays import FloatArray, IntArray, floats_array, ids_array
from samplekit.sample.kinds import LOGPROB_LIMIT


@dataclass(frozen=True, eq=False)
class Group:
    """The completions of one prompt.

    Args:
        prompt: token ids, int64 (P,), read-only.
        completions: G of them.
        id: what tells this group from every other; groups are formed by it, never by position or prompt.
        prompt_logprobs: nats of the prompt's tokens, float32 (P,), read-only, at most 0, where they were asked for;
            value 0 is a placeholder.

    Raises:
        SampleError: a token is no id, there is no completion, one is no Completion, the id is not hashable, or a
            logprob is not finite or above 0.
        AlignmentError: prompt and prompt_logprobs differ in length.
    """

    prompt: IntArray
    completions: tuple[Completion, ...]
    id: str | None
    prompt_logprobs: FloatArray | None

    def __init__(
        self,
        prompt: object,
        completions: Sequence[Completion],
        *,
        id: str | None = None,  # noqa: A002 - the public name
        prompt_logprobs: FloatArray | None = None,
    ) -> None:
        refuse_no_id(id, "id")
        ids = ids_array(ids_from_decimal(prompt), "prompt")
        object.__setattr__(self, "prompt", ids)
        object.__setattr__(self, "completions", several(completions, Completion, "completions"))
        object.__setattr__(self, "id", id)
        logprobs = None if prompt_logprobs is None else _prompt_logprobs(prompt_logprobs, len(ids))
        object.__setattr__(self, "prompt_logprobs", logprobs)

    def with_rewards(self, rewards: Callable[[Completion], float] | Sequence[float]) -> Group:
        """Give the same group with every completion scored.

        Args:
            rewards: a function of a completion, or one number for each.

        Raises:
            AlignmentError: a sequence of another length than the completions.
            SampleError: a reward is no finite number, or rewards is neither a function nor a sequence.
        """
        values = [rewards(item) for item in self.completions] if callable(rewards) else plain_list(rewards, "rewards")
        if len(values) != len(self.completions):
            raise AlignmentError(
                f"rewards holds {len(values)} values, expected one for each of {len(self)} completions"
            )
        scored = [
            item.with_reward(checked_reward(value, f"rewards[{index}]"))
            for index, (item, value) in enumerate(zip(self.completions, values, strict=True))
        ]
        return Group(self.prompt, scored, id=self.id, prompt_logprobs=self.prompt_logprobs)

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
    values = floats_array(given, "prompt_logprobs")
    if len(values) != length:
        raise AlignmentError(
            f"prompt_logprobs holds {len(values)} values, the prompt {length} tokens, expected one for each, the first "
            "a placeholder: take both from one record"
        )
    wrong = np.flatnonzero(values[1:] > LOGPROB_LIMIT)
    if len(wrong):
        index = int(wrong[0]) + 1
        raise SampleError(
            f"prompt_logprobs[{index}] is {values[index]}, expected at most 0: give log-probabilities in nats"
        )
    return values


def _equal(left: FloatArray | None, right: FloatArray | None) -> bool:
    if left is None or right is None:
        return left is right
    return np.array_equal(left, right)
