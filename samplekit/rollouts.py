"""Completions that a policy sampled, grouped by the prompt they answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from samplekit.errors import AlignmentError, SampleError
from samplekit.sample.arrays import FloatArray, IntArray, floats_array, freeze, ids_array
from samplekit.sample.kinds import LOGPROB_LIMIT


@dataclass(frozen=True, eq=False)
class Completion:
    """Tokens that a policy sampled, with the log-probability it gave each.

    Tokens and logprobs come from one record and are never re-encoded. Decimal strings, as the service may send int64,
    become ints here and nowhere else.

    Args:
        tokens: token ids, int64 (T,), read-only; the stop token included where the sampler gave it.
        logprobs: nats of the policy that sampled, float32 (T,), read-only; at most 0.
        reward: its score, finite; None while unscored.
        stop_reason: why it ended: ``"stop"`` or ``"length"`` where a service sampled it.
        routed_experts_key: the service's key of the experts it was routed through, if any.

    Raises:
        SampleError: a token is no id; a logprob is None, NaN, infinite or above 0; the reward is not finite.
        AlignmentError: tokens and logprobs differ in length.
    """

    tokens: IntArray
    logprobs: FloatArray
    reward: float | None
    stop_reason: str | None
    routed_experts_key: str | None

    def __init__(
        self,
        tokens: object,
        logprobs: object,
        *,
        reward: float | None = None,
        stop_reason: str | None = None,
        routed_experts_key: str | None = None,
    ) -> None:
        ids, values = _aligned(_from_decimal(tokens), logprobs)
        object.__setattr__(self, "tokens", ids)
        object.__setattr__(self, "logprobs", values)
        object.__setattr__(self, "reward", None if reward is None else checked_reward(reward, "completion.reward"))
        object.__setattr__(self, "stop_reason", stop_reason)
        object.__setattr__(self, "routed_experts_key", routed_experts_key)

    @property
    def length(self) -> int:
        """How many tokens were sampled (T)."""
        return len(self.tokens)

    def with_reward(self, reward: float) -> Completion:
        """Give the same completion with a score."""
        return Completion(
            self.tokens,
            self.logprobs,
            reward=reward,
            stop_reason=self.stop_reason,
            routed_experts_key=self.routed_experts_key,
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Completion)
            and np.array_equal(self.tokens, other.tokens)
            and np.array_equal(self.logprobs, other.logprobs)
            and (self.reward, self.stop_reason, self.routed_experts_key)
            == (other.reward, other.stop_reason, other.routed_experts_key)
        )

    def __hash__(self) -> int:
        return hash((self.tokens.tobytes(), self.reward))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), dict(vars(self)))

    def __repr__(self) -> str:
        return f"Completion({self.length} tokens, reward={self.reward}, stop_reason={self.stop_reason!r})"


@dataclass(frozen=True, eq=False)
class Group:
    """The completions of one prompt.

    Args:
        prompt: token ids, int64 (P,), read-only.
        completions: G of them.
        id: what tells this group from every other; groups are formed by it, never by position or prompt.
        prompt_logprobs: nats of the prompt's tokens, float32 (P,), read-only, where they were asked for; value 0 is a
            placeholder.
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
        kept = tuple(completions)
        for index, item in enumerate(kept):
            if not isinstance(item, Completion):
                raise SampleError(f"completions[{index}] is a {type(item).__name__}, expected a Completion")
        if not kept:
            raise SampleError("completions is empty, expected at least one Completion")
        object.__setattr__(self, "prompt", ids_array(_from_decimal(prompt), "prompt"))
        object.__setattr__(self, "completions", kept)
        object.__setattr__(self, "id", id)
        logprobs = None if prompt_logprobs is None else floats_array(prompt_logprobs, "prompt_logprobs")
        object.__setattr__(self, "prompt_logprobs", logprobs)

    def with_rewards(self, rewards: Callable[[Completion], float] | Sequence[float]) -> Group:
        """Give the same group with every completion scored.

        Args:
            rewards: a function of a completion, or one number for each.

        Raises:
            AlignmentError: a sequence of another length than the completions.
            SampleError: a reward is no finite number.
        """
        values = [rewards(item) for item in self.completions] if callable(rewards) else list(rewards)
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
        )

    def __hash__(self) -> int:
        return hash((self.id, self.prompt.tobytes(), len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), dict(vars(self)))

    def __repr__(self) -> str:
        return f"Group({len(self.prompt)} prompt tokens, {len(self)} completions, id={self.id!r})"


def _rebuild(kind: type[Any], fields: dict[str, Any]) -> Any:  # noqa: ANN401 - a Completion or a Group
    """Recreate one from its fields, as pickle and copy ask: numpy's own copies of its arrays could be written to."""
    made = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, freeze(value) if isinstance(value, np.ndarray) else value)  # pyright: ignore[reportUnknownArgumentType]
    return made


def checked_reward(value: Any, name: str) -> float:  # noqa: ANN401 - whatever a reward function gives
    """Give a reward as a finite float.

    Raises:
        SampleError: it is no number, or not finite.
    """
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        number = math.nan
    if isinstance(value, str) or not math.isfinite(number):
        raise SampleError(f"{name} is {value!r}, expected a finite number: repair the reward function")
    return number


def _from_decimal(tokens: object) -> object:
    """Turn a sequence that holds decimal strings into ints; leave everything else as it is."""
    if not isinstance(tokens, list | tuple) or not any(isinstance(item, str) for item in tokens):  # pyright: ignore[reportUnknownVariableType]
        return tokens  # pyright: ignore[reportUnknownVariableType]
    items = cast("Sequence[Any]", tokens)
    return [int(item) if isinstance(item, str) and item.isascii() and item.isdecimal() else item for item in items]


def _aligned(tokens: object, logprobs: object) -> tuple[IntArray, FloatArray]:
    """Convert both arrays; a sampler that stops at once gives two empty ones."""
    if logprobs is None:
        raise SampleError("completion.logprobs is None, expected one per token: ask the sampler for logprobs")
    if _is_empty(tokens) and _is_empty(logprobs):
        return freeze(np.zeros(0, dtype=np.int64)), freeze(np.zeros(0, dtype=np.float32))
    ids, values = ids_array(tokens, "completion.tokens"), floats_array(logprobs, "completion.logprobs")
    if len(values) != len(ids):
        raise AlignmentError(
            f"completion.logprobs holds {len(values)} values, completion.tokens {len(ids)}: take both from one record"
        )
    if values.max() > LOGPROB_LIMIT:
        index = int(values.argmax())
        raise SampleError(
            f"completion.logprobs[{index}] is {values[index]}, expected at most 0: give log-probabilities in nats"
        )
    return ids, values


def _is_empty(values: object) -> bool:
    return isinstance(values, list | tuple | np.ndarray) and len(values) == 0  # pyright: ignore[reportUnknownArgumentType]
