"""What a policy sampled: tokens, and the log-probability it gave each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from samplekit.errors import AlignmentError, SampleError
from samplekit.rollouts.frozen import rebuild
from samplekit.rollouts.names import text_or_none
from samplekit.rollouts.sampled import is_empty, sampled_ids, sampled_logprobs
from samplekit.rollouts.scores import checked_reward
from samplekit.sample.arrays import FloatArray, IntArray, freeze

_CUT = frozenset({
    "length", "max_tokens", "max_new_tokens", "max_length", "model_length", "context_length",
    "model_context_window_exceeded", "insufficient_system_resource",
    "abort", "aborted", "cancel", "canceled", "cancelled", "content_filter", "error", "timeout",
})  # fmt: skip
"""How services and engines say that something else than the model ended a completion."""


@dataclass(frozen=True, eq=False)
class Completion:
    """Tokens that a policy sampled, with the log-probability it gave each.

    Tokens and logprobs come from one record and are never re-encoded. Decimal strings, as the service may send int64,
    become ints here and nowhere else.

    Args:
        tokens: token ids, int64 (T,), read-only; the stop token included where the sampler gave it.
        logprobs: nats of the policy that sampled, float32 (T,), read-only; at most 0, up to rounding: values up to
            0.001 are kept as given.
        reward: its score, a finite float32 number; None while unscored.
        stop_reason: why it ended: ``"stop"`` or ``"length"`` where a service sampled it; see `was_cut`.
        routed_experts_key: the service's key of the experts it was routed through, if any.

    Raises:
        SampleError: a token is no id; a logprob is None, NaN, infinite, a bool, above 0.001, or -9999 or less, which
            stands for an unknown one; the reward is no finite number, or a whole one that float64 would round; the
            stop_reason or the key is no text that UTF-8 can say.
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
        ids, values = _aligned(tokens, logprobs)
        object.__setattr__(self, "tokens", ids)
        object.__setattr__(self, "logprobs", values)
        object.__setattr__(self, "reward", None if reward is None else checked_reward(reward, "completion.reward"))
        object.__setattr__(self, "stop_reason", text_or_none(stop_reason, "completion.stop_reason"))
        key = text_or_none(routed_experts_key, "completion.routed_experts_key")
        object.__setattr__(self, "routed_experts_key", key)

    @property
    def length(self) -> int:
        """How many tokens were sampled (T)."""
        return len(self.tokens)

    @property
    def was_cut(self) -> bool:
        """Tell whether something else than the model ended it: a limit of tokens, an abort, a filter, an error.

        stop_reason is then ``"length"``, ``"max_tokens"``, ``"abort"``, ``"content_filter"``, ``"error"`` or alike, in
        any service's spelling; without one, and where it is not known, the model ended it.
        """
        if self.stop_reason is None:
            return False
        reason = self.stop_reason.lower().replace("-", "_")
        return reason.removeprefix("stop_reason_").removeprefix("finish_reason_") in _CUT

    def with_reward(self, reward: float | None) -> Completion:
        """Give the same completion with a score, or without one; tokens and logprobs are not checked again."""
        number = None if reward is None else checked_reward(reward, "completion.reward")
        scored: Completion = rebuild(type(self), {**vars(self), "reward": number})
        return scored

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


def _aligned(tokens: object, logprobs: object) -> tuple[IntArray, FloatArray]:
    """Convert both arrays; a sampler that stops at once gives two empty ones."""
    if logprobs is None:
        raise SampleError("completion.logprobs is None, expected one per token: ask the sampler for logprobs")
    if is_empty(tokens) and is_empty(logprobs):
        return freeze(np.zeros(0, dtype=np.int64)), freeze(np.zeros(0, dtype=np.float32))
    ids, values = sampled_ids(tokens, "completion.tokens"), sampled_logprobs(logprobs, "completion.logprobs")
    if len(values) != len(ids):
        raise AlignmentError(
            f"completion.logprobs holds {len(values)} values, completion.tokens {len(ids)}: take both from one record"
        )
    return ids, values
