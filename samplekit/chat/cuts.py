"""Where a text may be cut so that its pieces encode to what the whole does: just before added tokens.

Only tokens that the template itself writes are cut at, and none that strips its surroundings, that is matched in
normalized text, or that another added token could overlap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from samplekit.chat.tokens import AddedToken


def safe_cuts(added: Iterable[AddedToken], written: str) -> list[str]:
    """Choose the tokens to cut before.

    Args:
        added: every added token of the tokenizer.
        written: what the template's own text and special strings can write.
    """
    tokens = list(added)
    wanted = [token.content for token in tokens if token.cuttable and token.content in written]
    contents = [token.content for token in tokens if token.content]
    return [cut for cut in wanted if not _overlapped(cut, contents)]


def _overlapped(cut: str, contents: list[str]) -> bool:
    """Tell whether an added token can start before this one and reach into it."""
    heads = tuple(cut[:length] for length in range(1, len(cut) + 1))
    return any(other != cut and (other.endswith(heads) or other.find(cut) > 0) for other in contents) or any(
        cut.endswith(cut[:length]) for length in range(1, len(cut))
    )


class Cutter:
    """Cut growing texts, looking only at what each adds to the one before it.

    Args:
        pattern: finds the tokens to cut before; None cuts nowhere.
    """

    def __init__(self, pattern: re.Pattern[str] | None) -> None:
        self._pattern = pattern
        self._text = ""
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._pieces: list[str] = []
        self._fresh: list[str] = []

    def fresh(self) -> list[str]:
        """Give the pieces that no text before the last call of this held."""
        found, self._fresh = self._fresh, []
        return found

    def cut(self, text: str) -> list[str]:
        """Cut a text into pieces; joined, they are the text.

        Returns:
            Pieces that start with their token; the first may start with anything.
        """
        if self._pattern is None:
            self._fresh.append(text)
            return [text] if text else []
        shared = shared_length(self._text, text)
        kept = len(self._ends)
        while kept and self._ends[kept - 1] > shared:
            kept -= 1
        starts, ends = self._starts[:kept], self._ends[:kept]
        for found in self._pattern.finditer(text, ends[kept - 1] if kept else 0):
            starts.append(found.start())
            ends.append(found.end())
        # Piece k runs from start k - 1 to start k, so the pieces before the last kept start are unchanged.
        pieces = self._pieces[:kept]
        bounds = [*starts[max(kept - 1, 0) :], len(text)]
        start = bounds[0] if kept else 0
        for stop in bounds[1:] if kept else bounds:
            pieces.append(text[start:stop])
            start = stop
        self._fresh += pieces[kept:]
        self._text, self._starts, self._ends, self._pieces = text, starts, ends, pieces
        return pieces if pieces[0] else pieces[1:]


def any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    """Compile a pattern that finds any of these texts, the longest first; None where there are none."""
    ordered = sorted({text for text in texts if text}, key=lambda text: (-len(text), text))
    return re.compile("|".join(re.escape(text) for text in ordered)) if ordered else None


def shared_length(before: str, after: str) -> int:
    """Count the characters two texts share at their start."""
    if after.startswith(before):
        return len(before)
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
