"""What a policy sampled: tokens, and the log-probability it gave each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from samplekit.errors import AlignmentError, SampleError
from samplekit.rollouts.frozen import rebuild
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
        SampleError: a token is no id; a logprob is None, NaN, infinite or above 0; the reward is not finite; the
            stop_reason or the key is no text.
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
        for name, text in (("stop_reason", stop_reason), ("routed_experts_key", routed_experts_key)):
            if text is not None and not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise SampleError(f"completion.{name} is {text!r:.80}, expected text or None: pass its name")
        ids, values = _aligned(ids_from_decimal(tokens), logprobs)
        object.__setattr__(self, "tokens", ids)
        object.__setattr__(self, "logprobs", values)
        object.__setattr__(self, "reward", None if reward is None else checked_reward(reward, "completion.reward"))
        object.__setattr__(self, "stop_reason", stop_reason)
        object.__setattr__(self, "routed_experts_key", routed_experts_key)

    @property
    def length(self) -> int:
        """How many tokens were sampled (T)."""
        return len(self.tokens)

    @property
    def hit_limit(self) -> bool:
        """Tell whether the sampler's limit ended it: stop_reason is ``"length"``, in the service's spelling too."""
        return self.stop_reason is not None and self.stop_reason.lower().removeprefix("stop_reason_") == "length"

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
        return rebuild, (type(self), dict(vars(self)))

    def __repr__(self) -> str:
        return f"Completion({self.length} tokens, reward={self.reward}, stop_reason={self.stop_reason!r})"


def checked_reward(value: Any, name: str) -> float:  # noqa: ANN401 - whatever a reward function gives
    """Give a reward as a finite float.

    Raises:
        SampleError: it is no number, or not finite.
    """
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        number = math.nan
    if isinstance(value, str) or not math.isfinite(number):
        raise SampleError(f"{name} is {value!r}, expected a finite number: repair the reward function")
    return number


def ids_from_decimal(tokens: object) -> object:
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
