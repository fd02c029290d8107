"""Draw completions in batches, and score prompts.

Rows (one a completion) of like prompt length share a batch, padded on the left; a prompt is read once, its cache is
repeated for each of its completions, and rows that ended are dropped from the batch.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch and transformers annotate only part of what is used here)

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from samplekit.server.drawing import draw, drawing_logprobs, uniform_draws
from samplekit.server.policy import NonFiniteError
from samplekit.training.head import logits_of
from samplekit.training.logprobs import pad_right, plan_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from samplekit.sample.arrays import FloatArray, IntArray
    from samplekit.server.settings import DrawingSettings
    from samplekit.server.stop_strings import StopWatch

# Completions drawn side by side, and tokens that their caches may hold.
BATCH_ROWS = 64
BATCH_CACHE_TOKENS = 65_536
# Prompt positions scored in one forward pass.
SCORE_TOKENS = 8192
BROKEN = "the model gives no finite logprobs: its weights are broken, perhaps by a step that was too large"
# A batch is repacked once this share of its rows has ended.
REPACK_SHARE = 0.25


@dataclass
class Drawn:
    """One completion.

    Attributes:
        tokens: ids drawn, the one that ended it included.
        logprobs: of those tokens, under the policy that drew them.
        stopped: whether a stop token or string ended it, rather than max_tokens.
    """

    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    stopped: bool = False


@dataclass(frozen=True)
class PromptScores:
    """How likely the model finds the tokens of a prompt; entry 0 of each list is a placeholder.

    Attributes:
        logprobs: float32 (T,), 0.0 first.
        top_ids: the likeliest ids at each position, most likely first; int64 (T, K).
        top_logprobs: their logprobs, float32 (T, K).
    """

    logprobs: FloatArray
    top_ids: IntArray
    top_logprobs: FloatArray


@torch.no_grad()
def generate(
    model: torch.nn.Module,
    prompts: Sequence[IntArray],
    num_completions: int,
    settings: DrawingSettings,
    watch: StopWatch,
) -> list[list[Drawn]]:
    """Draw completions.

    Args:
        model: a causal language model in evaluation mode.
        prompts: token ids, int64 (T_i,) each, not empty.
        num_completions: of each prompt.
        settings: how to draw; prompt and max_tokens together must fit the model's context.
        watch: what ends a completion.

    Returns:
        ``num_completions`` a prompt, in the order of the prompts.
    """
    drawn = [[Drawn() for _ in range(num_completions)] for _ in prompts]
    earlier = [count * num_completions for count in _num_earlier(prompts)]
    for rows in _plan(prompts, num_completions, settings.max_tokens):
        batch = _Batch(model, prompts, rows, settings, earlier)
        for _ in range(settings.max_tokens):
            batch.extend(drawn, watch)
            if not batch.alive:
                break
    return drawn


@torch.no_grad()
def score_prompts(model: torch.nn.Module, prompts: Sequence[IntArray], *, top: int = 0) -> list[PromptScores]:
    """Score the tokens of prompts under the model's own distribution (temperature 1).

    Args:
        model: a causal language model in evaluation mode.
        prompts: token ids, int64 (T_i,) each, not empty.
        top: how many of the likeliest tokens to report for every position.
    """
    found: dict[int, PromptScores] = {}
    device = next(model.parameters()).device
    for rows in plan_rows([len(tokens) for tokens in prompts], SCORE_TOKENS):
        logits = logits_of(model(input_ids=pad_right([prompts[row] for row in rows], device)))
        for place, row in enumerate(rows):
            found[row] = _scores_of(prompts[row], logits[place], top)
    return [found[index] for index in range(len(prompts))]


def _scores_of(tokens: IntArray, logits: torch.Tensor, top: int) -> PromptScores:
    """Line up what each position predicts with the token that came next: entry i describes token i."""
    length = len(tokens)
    logprobs, ids, best = np.zeros(length), np.zeros((length, top), np.int64), np.zeros((length, top))
    if length > 1:
        predicted = torch.log_softmax(logits[: length - 1], -1)
        following = torch.from_numpy(tokens.copy()).roll(-1)[: length - 1].to(logits.device)
        logprobs[1:length] = predicted.gather(-1, following.unsqueeze(-1)).squeeze(-1).cpu().numpy()
        likeliest = predicted.topk(top, -1)
        ids[1:length], best[1:length] = likeliest.indices.cpu().numpy(), likeliest.values.cpu().numpy()
    if not np.isfinite(logprobs).all():
        raise NonFiniteError(BROKEN)
    return PromptScores(logprobs.astype(np.float32), ids, best.astype(np.float32))


def _num_earlier(prompts: Sequence[IntArray]) -> list[int]:
    """Count, for every prompt, the equal ones before it: a prompt given twice must not draw the same twice."""
    seen: Counter[bytes] = Counter()
    found: list[int] = []
    for prompt in prompts:
        found.append(seen[prompt.tobytes()])
        seen[prompt.tobytes()] += 1
    return found


def _plan(prompts: Sequence[IntArray], num_completions: int, max_tokens: int) -> Iterator[list[tuple[int, int]]]:
    """Group completions (prompt, completion) into batches, the longest prompts first."""
    order = sorted(range(len(prompts)), key=lambda index: -len(prompts[index]))
    rows = [(prompt, completion) for prompt in order for completion in range(num_completions)]
    while rows:
        longest = len(prompts[rows[0][0]]) + max_tokens
        size = max(1, min(BATCH_ROWS, BATCH_CACHE_TOKENS // longest))
        yield rows[:size]
        rows = rows[size:]


class _Batch:
    """Completions that grow together."""

    def __init__(
        self,
        model: torch.nn.Module,
        prompts: Sequence[IntArray],
        rows: Sequence[tuple[int, int]],
        settings: DrawingSettings,
        earlier: Sequence[int],
    ) -> None:
        self._model = model
        self._settings = settings
        self.rows = list(rows)
        self.alive = set(range(len(rows)))  # places in rows
        self._device = next(model.parameters()).device
        draws = np.stack([
            uniform_draws(settings, prompts[prompt], completion + earlier[prompt]) for prompt, completion in rows
        ])  # fmt: skip
        self._uniforms = torch.from_numpy(draws).to(self._device)  # (R, max_tokens)
        self._read(prompts)

    def extend(self, drawn: Sequence[Sequence[Drawn]], watch: StopWatch) -> None:
        """Draw the next token of every living row, and let the model read it where one goes on."""
        logprobs = drawing_logprobs(self._logits, self._settings)
        count = len(drawn[self.rows[min(self.alive)][0]][self.rows[min(self.alive)][1]].tokens)
        tokens = draw(logprobs, self._uniforms[:, count], self._settings)
        chosen = logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1).tolist()
        ids: list[int] = tokens.tolist()
        if not all(map(math.isfinite, chosen)):
            raise NonFiniteError(BROKEN)
        for place in sorted(self.alive):
            prompt, completion = self.rows[place]
            grown = drawn[prompt][completion]
            grown.tokens.append(ids[place])
            grown.logprobs.append(min(chosen[place], 0.0))
            if watch.ended(grown.tokens):
                grown.stopped = True
                self.alive.discard(place)
        if self.alive and count + 1 < self._settings.max_tokens:
            self._advance(tokens)

    def _read(self, prompts: Sequence[IntArray]) -> None:
        """Read each prompt once, then repeat its cache for each of its completions."""
        from transformers import DynamicCache

        wanted = list(dict.fromkeys(prompt for prompt, _ in self.rows))
        longest = max(len(prompts[prompt]) for prompt in wanted)
        ids = np.zeros((len(wanted), longest), np.int64)
        mask = np.zeros((len(wanted), longest), np.int64)
        for place, prompt in enumerate(wanted):
            start = longest - len(prompts[prompt])
            ids[place, start:], mask[place, start:] = prompts[prompt], 1
        self._cache: Any = DynamicCache(config=cast("Any", self._model.config))
        self._mask = torch.from_numpy(mask).to(self._device)  # (R, tokens so far)
        self._call(torch.from_numpy(ids).to(self._device))
        self._select([wanted.index(prompt) for prompt, _ in self.rows])

    def _advance(self, tokens: torch.Tensor) -> None:
        if len(self.alive) <= (1 - REPACK_SHARE) * len(self.rows):
            kept = sorted(self.alive)
            self.rows = [self.rows[place] for place in kept]
            self.alive = set(range(len(kept)))
            self._uniforms, tokens = self._uniforms[kept], tokens[kept]
            self._select(kept)
        self._mask = torch.cat([self._mask, torch.ones_like(self._mask[:, :1])], -1)
        self._call(tokens.unsqueeze(-1))

    def _call(self, ids: torch.Tensor) -> None:
        width = ids.shape[-1]
        positions = (self._mask.cumsum(-1) - 1).clamp_(min=0)
        output = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions[:, positions.shape[-1] - width :],
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._logits = logits_of(output)[:, -1]  # (R, V)

    def _select(self, places: Sequence[int]) -> None:
        if list(places) == list(range(len(self._mask))):
            return
        index = torch.tensor(places, device=self._device)
        self._cache.batch_select_indices(index)
        self._mask, self._logits = self._mask[index], self._logits[index]
