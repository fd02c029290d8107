"""Encode text in which some control tokens are meant as plain text.

A copy of the tokenizer knows the control tokens by private names only. The ones the template wrote are renamed on the
way in; the ones people wrote stay as they are and find no match.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from samplekit.chat.control import OPEN, ControlGuard
from samplekit.chat.cuts import any_of
from samplekit.chat.refusals import refuse


class LiteralEncoder:
    """Encode texts with stand-ins.

    Args:
        backend: the Rust tokenizer to copy.
        guard: knows the control tokens and their stand-ins.
    """

    def __init__(self, backend: Any, guard: ControlGuard) -> None:  # noqa: ANN401 - a tokenizers.Tokenizer

        state = json.loads(backend.to_str())
        state["truncation"] = state["padding"] = None
        names = {token: f"\ufdd2{number}\ufdd3" for number, token in enumerate(guard.tokens)}
        for token in state["added_tokens"]:
            token["content"] = names.get(token["content"], token["content"])
        self._copy: Any = backend.from_str(json.dumps(state))  # a static method: a copy, not a change
        self._guard = guard
        self._names = names
        self._pattern = any_of(names)
        self._true_ids: dict[int, int] = {
            self._copy.token_to_id(names.get(token.content, token.content)): number
            for number, token in backend.get_added_tokens_decoder().items()
        }
        self._control_ids = {backend.token_to_id(token) for token in guard.tokens}

    def ids(self, piece: str) -> npt.NDArray[np.int64]:
        """Encode a piece with stand-ins, shape (N,).

        Raises:
            TemplateError: code ``encoding_failed`` where the vocabulary itself spells a control token.
        """
        renamed, count = piece, 0
        if self._pattern is not None:
            renamed, count = self._pattern.subn(lambda found: self._names[found[0]], piece)
        found: list[int] = self._copy.encode(self._guard.restore(renamed), add_special_tokens=False).ids
        ids = [self._true_ids.get(number, number) for number in found]
        if sum(number in self._control_ids for number in ids) != count:
            raise refuse(
                "encoding_failed", "a control token in the text cannot be spelled as plain text", hint="remove it"
            )
        return np.array(ids, dtype=np.int64)


def has_stand_in(text: str) -> bool:
    """Tell whether a piece must be encoded literally."""
    return OPEN in text
