"""The batch every row works on: rollouts as a sampler's client hands them over, in Python lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.row import Size

VOCAB_SIZE = 151_936


class Rollout(NamedTuple):
    """One full, unshifted sequence: value i of every list describes token i.

    Attributes:
        tokens: ids; few are frequent and many are rare, as in text.
        mask: 0 for the prompt (the first quarter), then 1; plain ints.
        logprobs: nats, float32 as `tensor.tolist()` gives them: Python floats of many digits; 0.0 in the prompt.
        advantage: one number.
    """

    tokens: list[int]
    mask: list[int]
    logprobs: list[float]
    advantage: float


def rollouts(size: Size, seed: int = 0) -> Iterator[Rollout]:
    """Yield the same rollouts each time, as objects of their own."""
    rng = np.random.default_rng(seed)
    num_prompt = size.num_tokens // 4
    num_completion = size.num_tokens - num_prompt
    for _ in range(size.num_samples):
        tokens = (VOCAB_SIZE * rng.random(size.num_tokens) ** 3).astype(np.int64).tolist()
        sampled = (-rng.exponential(0.5, num_completion)).astype(np.float32).tolist()
        yield Rollout(
            tokens,
            [0] * num_prompt + [1] * num_completion,
            [0.0] * num_prompt + sampled,
            float(rng.normal()),
        )
