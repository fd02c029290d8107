"""Text -> token ids, each distinct piece once.

Texts are cut just before the control tokens their template writes; the pieces of a whole batch are encoded in one call
and remembered. Where cutting is not proved for a tokenizer, the whole text is the piece.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from samplekit.chat.control import ControlGuard
from samplekit.chat.cuts import Cutter, any_of, safe_cuts
from samplekit.chat.literal import LiteralEncoder, has_stand_in
from samplekit.chat.refusals import refuse
from samplekit.chat.tokens import AddedToken, backend_of, plain_ids
from samplekit.errors import TemplateError

Ids: TypeAlias = npt.NDArray[np.int64]
_REMEMBERED_CHARACTERS = 24_000_000
_TRIALS = ("{0}", "a{0}b", "Hi  there\n{0}user\nyes {0} \n\n{0}{0}x", " été {0}\n\nこんにちは{0}.", "{0} a\n{0}\tb ")


class Encoder:
    """Encode texts for one tokenizer.

    Args:
        tokenizer: any object with the surface of a Hugging Face tokenizer.
        added: its added tokens.
        written: what the template can write, which decides where texts are cut.
        guard: knows the stand-ins of control tokens.
    """

    def __init__(self, tokenizer: Any, added: list[AddedToken], written: str, guard: ControlGuard) -> None:  # noqa: ANN401
        self._tokenizer = tokenizer
        self._backend = backend_of(tokenizer)
        self._guard = guard
        self._literal: LiteralEncoder | None = None
        self._known: dict[str, Ids] = {}
        self._known_characters = 0
        self.adds_prefix = self._adds_prefix()
        self._cuts = self._proved(safe_cuts(added, written)) if self._backend is not None else None

    def cutter(self) -> Cutter:
        """Give a cutter for the growing texts of one conversation."""
        return Cutter(self._cuts)

    def prepare(self, pieces: Iterable[str]) -> None:
        """Encode every piece not seen yet, in one call."""
        wanted = dict.fromkeys(pieces)
        new = [piece for piece in wanted if piece not in self._known]
        if self._forgets(sum(map(len, new))):
            new = list(wanted)
        plain = [piece for piece in new if not has_stand_in(piece)]
        if self._backend is None or len(plain) < 2:
            return
        try:
            encoded = self._ready().encode_batch_fast(plain, add_special_tokens=False)
        except Exception:  # noqa: BLE001 - one text out of thousands is at fault: tokens() encodes alone and names it
            return
        for piece, encoding in zip(plain, encoded, strict=True):
            self._known[piece] = np.array(encoding.ids, dtype=np.int64)
        self._known_characters += sum(map(len, plain))

    def tokens(self, pieces: Sequence[str]) -> Ids:
        """Give the ids of a text's pieces, shape (N,).

        Raises:
            TemplateError: code ``encoding_failed``.
        """
        parts = [self.piece(piece) for piece in pieces]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def piece(self, piece: str) -> Ids:
        """Give the ids of one piece, shape (N,)."""
        ids = self._known.get(piece)
        if ids is None:
            ids = self._encode_alone(piece)
            self._forgets(len(piece))
            self._known[piece] = ids
            self._known_characters += len(piece)
        return ids

    def text(self, text: str) -> Ids:
        """Give the ids of a whole text, shape (N,)."""
        return self.tokens(self.cutter().cut(text))

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Decode ids to text, control tokens included."""
        plain = [int(number) for number in ids]
        decode = self._tokenizer.decode if self._backend is None else self._backend.decode
        return str(decode(plain, skip_special_tokens=False))

    def _forgets(self, coming: int) -> bool:
        """Drop what is remembered where more than enough would be; tell whether that happened."""
        if self._known_characters + coming <= _REMEMBERED_CHARACTERS:
            return False
        self._known.clear()
        self._known_characters = 0
        return True

    def _encode_alone(self, text: str) -> Ids:
        try:
            if has_stand_in(text):
                return self._literally(text)
            if self._backend is not None:
                return np.array(self._ready().encode(text, add_special_tokens=False).ids, dtype=np.int64)
            encode = getattr(self._tokenizer, "encode", self._tokenizer)
            return np.array(plain_ids(encode(text, add_special_tokens=False)), dtype=np.int64)
        except TemplateError:
            raise
        except Exception as error:
            shown = text[:60].encode("unicode_escape").decode()
            raise refuse("encoding_failed", f"the tokenizer cannot encode '{shown}' ({error})") from error

    def _literally(self, text: str) -> Ids:
        if self._backend is None:
            raise refuse("encoding_failed", "sanitize=True needs a fast tokenizer", hint="remove the control token")
        if self._literal is None:
            self._literal = LiteralEncoder(self._backend, self._guard)
        return self._literal.ids(text)

    def _ready(self) -> Any:  # noqa: ANN401 - a tokenizers.Tokenizer
        """Give the backend with truncation and padding off: an earlier call of its owner may have left them on."""
        backend = self._backend
        if backend.truncation is not None:
            backend.no_truncation()
        if backend.padding is not None:
            backend.no_padding()
        if getattr(backend, "encode_special_tokens", False):
            backend.encode_special_tokens = False
        return backend

    def _adds_prefix(self) -> bool:
        """Tell whether a text's first word is encoded as if a space stood before it."""
        alone, after = self._encode_alone("a"), self._encode_alone("\na")
        return len(alone) > 0 and not np.array_equal(after[len(after) - len(alone) :], alone)

    def _proved(self, cuts: list[str]) -> re.Pattern[str] | None:
        """Keep the cuts only if pieces encode to what the whole does on trial texts."""
        pattern = any_of(cuts)
        cutter = Cutter(pattern)
        for trial in (trial.format(cut) for cut in cuts for trial in _TRIALS):
            if self._encode_alone(trial).tolist() != self.tokens(cutter.cut(trial)).tolist():
                return None
        return pattern
