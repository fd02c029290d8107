"""The distribution that completions are drawn from, and the draws themselves."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from samplekit.sample.arrays import IntArray
    from samplekit.server.settings import DrawingSettings


def drawing_logprobs(logits: torch.Tensor, settings: DrawingSettings) -> torch.Tensor:
    """Give the logprobs that tokens are drawn by: after temperature, top_k and top_p, and normalised again.

    At temperature 0 one token is certain, whose logprob of 0 would say nothing: the model's own distribution
    (temperature 1, nothing cut) is given instead.

    Args:
        logits: float32 (R, V).
        settings: temperature, top_k and top_p are read.

    Returns:
        float32 (R, V), -inf where a token cannot be drawn.
    """
    if settings.temperature == 0:
        return torch.log_softmax(logits, -1)
    logprobs = torch.log_softmax(logits / settings.temperature, -1)
    if 0 < settings.top_k < logits.shape[-1]:
        kept = logprobs.topk(settings.top_k, -1)
        logprobs = torch.full_like(logprobs, -torch.inf).scatter(-1, kept.indices, kept.values)
        logprobs = torch.log_softmax(logprobs, -1)
    if settings.top_p < 1:
        ordered, order = logprobs.sort(-1, descending=True)
        probabilities = ordered.exp()
        before = probabilities.cumsum(-1) - probabilities  # what the likelier ones reach already
        ordered = ordered.masked_fill(before >= settings.top_p, -torch.inf)
        logprobs = torch.log_softmax(torch.empty_like(logprobs).scatter(-1, order, ordered), -1)
    return logprobs


def draw(logprobs: torch.Tensor, uniforms: torch.Tensor, settings: DrawingSettings) -> torch.Tensor:
    """Draw one token a row by inverting the distribution, so that a row's numbers decide whatever else is in the batch.

    Args:
        logprobs: float32 (R, V) of `drawing_logprobs`.
        uniforms: float64 (R,) in [0, 1).
        settings: at temperature 0 the likeliest token is taken.

    Returns:
        int64 (R,).
    """
    best = logprobs.argmax(-1)
    if settings.temperature == 0:
        return best
    reached = logprobs.double().exp().cumsum(-1)
    wanted = (uniforms * reached[:, -1]).unsqueeze(-1)
    found = torch.searchsorted(reached, wanted, right=True).squeeze(-1)
    return torch.where(found < logprobs.shape[-1], found, best)  # rounding may push the last draw past the end


def uniform_draws(
    settings: DrawingSettings, prompt: IntArray, completion: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Give the random numbers of one completion, float64 (max_tokens,): seed, prompt and place alone decide.

    Args:
        settings: seed and max_tokens are read.
        prompt: token ids, int64 (P,); completions of other prompts draw other numbers, or a batch would rise and fall
            as one.
        completion: which one of all that the request draws of this prompt.
    """
    digest = int.from_bytes(blake2b(prompt.tobytes(), digest_size=8).digest(), "little")
    key = np.random.SeedSequence([settings.seed % 2**64, digest, completion])
    return np.random.Generator(np.random.Philox(key)).random(settings.max_tokens)
