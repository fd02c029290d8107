"""From fitted texts to tokens: the strict and split rungs, the stop, and the mask of one turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from samplekit.chat.encode import Encoder, Ids
from samplekit.chat.refusals import refuse
from samplekit.sample.shared_start import shared_start

_ANCHOR_ENDS = ("\n", "\n\n", "§", "。", "!")


@dataclass(frozen=True, slots=True)
class Draft:
    """A turn as pieces of text, before anything is encoded.

    Attributes:
        index: the reply's place in the conversation.
        prompt: pieces of the prompt.
        trained: pieces of the prompt and the completion up to its stop.
        whole: pieces of the prompt and everything the template writes; None where that ends at the stop.
        completion: the completion's text up to its stop.
        without_calls: pieces like ``trained`` for the same reply without its tool calls; None where calls train.
        grafted: whether the rung is ``graft``.
        weight: how much the turn trains.
        stop: the stop's text, or None for a reply cut short.
        info: what the sample remembers.
        fresh: its pieces that no draft of this conversation before it holds.
    """

    index: int
    prompt: list[str]
    trained: list[str]
    whole: list[str] | None
    completion: str
    without_calls: list[str] | None
    grafted: bool
    weight: float
    stop: str | None
    info: dict[str, Any]
    fresh: list[str]


@dataclass(frozen=True)
class Turn:
    """One assistant turn: the prompt as served, then what the model should produce.

    Attributes:
        prompt_length: how many of the tokens are the prompt.
        mode: the rung: ``strict``, ``split`` or ``graft``.
        message_index: the reply's place in the conversation.
        stop_token: the id of the token that ends the reply, or None for a reply cut short.
        info: template kwargs and choices that serving must match.
    """

    ids: Ids = field(repr=False)
    weights: npt.NDArray[np.float32] = field(repr=False)
    prompt_length: int
    mode: str
    message_index: int
    stop_token: int | None
    info: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @cached_property
    def tokens(self) -> list[int]:
        """Prompt and completion, T ids."""
        return list(self.ids.tolist())

    @cached_property
    def loss_mask(self) -> list[float]:
        """How much each token trains, T numbers; 0 over the prompt."""
        return list(self.weights.tolist())


def finish(draft: Draft, encoder: Encoder) -> Turn:
    """Encode a draft and mask it.

    Raises:
        TemplateError: ``prefix_mismatch`` where no exact split exists, ``encoding_failed``.
    """
    tokens, start, strict = _join(draft.prompt, draft.trained, draft.completion, encoder)
    end = len(tokens)
    if draft.whole is not None:
        rest = "".join(draft.whole)[sum(map(len, draft.trained)) :]
        tokens, _, _ = _join(draft.trained, draft.whole, rest, encoder, tokens)
    weights = np.zeros(len(tokens), dtype=np.float32)
    weights[start:end] = draft.weight
    if draft.without_calls is not None:
        weights[_calls_span(tokens, start, end, encoder.tokens(draft.without_calls))] = 0
    mode = "graft" if draft.grafted else "strict" if strict else "split"
    stop_token = int(tokens[end - 1]) if draft.stop is not None and end > start else None
    return Turn(tokens, weights, start, mode, draft.index, stop_token, draft.info)


def _join(
    before: list[str], after: list[str], rest: str, encoder: Encoder, ids: Ids | None = None
) -> tuple[Ids, int, bool]:
    """Continue the tokens of ``before`` to the text of ``after``.

    Args:
        before: pieces of a text.
        after: pieces of what continues it.
        rest: the text between the two.
        encoder: encodes them.
        ids: the tokens of ``before``, where they are not its own encoding.

    Returns:
        All tokens, how many of them are of ``before``, and whether they are ``after``'s own encoding.
    """
    parts = [encoder.piece(piece) for piece in after]
    shared = len(before) - 1
    if ids is None and shared >= 0 and before[:shared] == after[:shared]:
        # The pieces before the last are the same strings, so only the tail can differ.
        head, tail = sum(map(len, parts[:shared])), encoder.piece(before[shared])
    else:
        head, tail = 0, encoder.tokens(before) if ids is None else ids
    tokens = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    start = head + len(tail)
    if len(tokens) >= start and np.array_equal(tokens[head:start], tail):
        return tokens, start, True
    more = continue_text(before[-1] if before else "", rest, encoder)
    return np.concatenate([tokens[:head], tail, more]), start, False


def continue_text(tail: str, rest: str, encoder: Encoder) -> Ids:
    """Encode text that continues a prompt, without the space that SentencePiece puts before a text's first word."""
    if not rest:
        return np.empty(0, dtype=np.int64)
    if not encoder.adds_prefix:
        return encoder.text(rest)
    for end in _ANCHOR_ENDS:
        anchor = encoder.text(tail + end)
        both = encoder.text(tail + end + rest)
        if len(both) > len(anchor) and np.array_equal(both[: len(anchor)], anchor):
            return both[len(anchor) :]
    raise refuse("prefix_mismatch", f"no exact split before {rest[:20]!r} exists in this vocabulary")


def _calls_span(tokens: Ids, start: int, end: int, without: Ids) -> slice:
    """Find the tokens that only the tool calls put there, by comparing with the same reply without them."""
    limit = min(end, len(without))
    start = max(shared_start(tokens[:limit], without[:limit]), start)
    room = min(limit - start, end - start) if limit > start else 0
    tail = shared_start(tokens[end - room : end][::-1], without[len(without) - room :][::-1])
    # Where the bare reply has prose left here, this token holds the end of it and the white space before the call.
    if start < end - tail and start < len(without) - tail:
        start += 1
    return slice(start, end - tail)
