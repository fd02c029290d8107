"""Sampled completions in the context they were sampled in -> one sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from samplekit.build import build_sample
from samplekit.rollouts.completion import Completion
from samplekit.sample import Sample
from samplekit.sample.arrays import IntArray


@dataclass(frozen=True)
class Part:
    """A completion, all that was read before it, and what it is worth.

    Attributes:
        prompt: everything the policy read, int64 (P,).
        completion: what it sampled.
        advantage: one number for every sampled token.
    """

    prompt: IntArray
    completion: Completion
    advantage: float

    @property
    def length(self) -> int:
        """How many tokens prompt and completion hold."""
        return len(self.prompt) + self.completion.length

    def without_room(self, max_length: int | None) -> str | None:
        """Say why no token of it could train: ``"empty"`` or ``"no_room"``; None where one does."""
        if self.completion.length == 0:
            return "empty"
        return "no_room" if max_length is not None and len(self.prompt) >= max_length else None


def build_sequence(parts: Sequence[Part], max_length: int | None, info: Mapping[str, Any]) -> Sample:
    """Build one sample of parts of which each one's prompt begins with all of the part before it.

    Sampled tokens train; what stands between them (observations) has weight 0, logprob 0 and advantage 0.

    Args:
        parts: one or more.
        max_length: as build_sample takes it.
        info: what to note; ``cut_tokens`` is added where max_length cuts some off.
    """
    last = parts[-1]
    mask = np.zeros(last.length, dtype=np.float32)
    advantages, logprobs = np.zeros_like(mask), np.zeros_like(mask)
    for part in parts:
        sampled = slice(len(part.prompt), part.length)
        mask[sampled] = 1.0
        logprobs[sampled] = part.completion.logprobs
        advantages[sampled] = part.advantage
    excess = 0 if max_length is None else max(0, last.length - max_length)
    return build_sample(
        np.concatenate([last.prompt, last.completion.tokens]),
        mask,
        advantages=advantages,
        logprobs=logprobs,
        routed_experts_key=last.completion.routed_experts_key,
        max_length=max_length,
        info={**info, **({"cut_tokens": excess} if excess else {})},
    )
