"""Notice when a completion has produced a stop token or a stop string."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch and transformers annotate only part of what is used here)

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedTokenizerBase

# Tokens decoded beyond what the longest stop string can take: the first of a window may lose a space or half a letter.
_MARGIN = 4
_HALF_LETTER = "\ufffd"


class StopWatch:
    """Watches completions as they grow, one token at a time."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase | None, stop: Sequence[str], stop_ids: frozenset[int]
    ) -> None:
        """Prepare for some stop strings; a tokenizer is needed only where there are any."""
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._stop_ids = stop_ids
        self._window = max((len(text.encode()) for text in stop), default=0) + _MARGIN  # a token is a byte or more
        self._last_letters = {text[-1] for text in stop}
        self._can_end: dict[int, bool] = {}

    def ended(self, tokens: Sequence[int]) -> bool:
        """Tell whether the newest token of a completion ends it."""
        newest = tokens[-1]
        if newest in self._stop_ids:
            return True
        if not self._stop or not self._may_complete(newest):
            return False
        text = self._decode(tokens[-self._window :])
        return any(stop in text for stop in self._stop)

    def _may_complete(self, token: int) -> bool:
        """Tell cheaply whether a token could be the last of a stop string: most cannot."""
        known = self._can_end.get(token)
        if known is None:
            text = self._decode([token])
            unclear = not text.strip() or _HALF_LETTER in text or any(letter.isspace() for letter in self._last_letters)
            known = self._can_end[token] = unclear or any(letter in text for letter in self._last_letters)
        return known

    def _decode(self, tokens: Sequence[int]) -> str:
        if self._tokenizer is None:
            raise ValueError("stop strings need a tokenizer, and the model's folder has none: stop on tokens instead")
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False))
