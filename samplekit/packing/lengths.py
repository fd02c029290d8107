"""Reading lengths, and what becomes of items that are longer than a row."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, cast

import numpy as np

from samplekit.errors import PackingError
from samplekit.sample.arrays import IntArray
from samplekit.sample.kinds import is_whole_number, shown

Oversize: TypeAlias = Literal["error", "drop", "truncate", "truncate_left"]
OVERSIZE: tuple[str, ...] = ("error", "drop", "truncate", "truncate_left")

_TOO_LONG = 2**63


def whole_number(value: object, name: str) -> int:
    """Read a whole number of 1 or more.

    Raises:
        PackingError: it is none; the message starts with its name.
    """
    if not is_whole_number(value) or not 1 <= value < _TOO_LONG:
        raise PackingError(f"{name} is {shown(value)}, expected a whole number of 1 or more: pass how many")
    return int(value)


def read_lengths(lengths: object) -> IntArray:
    """Read how many tokens items hold, int64 (N,); there may be none.

    Raises:
        PackingError: a value is no whole number of 1 or more; the message names its place.
    """
    found: Any = np.asarray(lengths)
    if found.ndim != 1:
        raise PackingError(f"lengths has shape {found.shape}, expected one dimension: pass one length for each item")
    if not len(found):
        return np.zeros(0, dtype=np.int64)
    if found.dtype.kind not in "iu":
        for place, value in enumerate(cast("list[object]", found.tolist())):
            if not (is_whole_number(value) and abs(value) < _TOO_LONG):
                raise PackingError(f"lengths[{place}] is {shown(value)}, expected a whole number of tokens: count them")
    read = cast("IntArray", found.astype(np.int64))
    if found is not lengths:  # numpy takes True for 1 where other ints stand beside it
        for place in np.flatnonzero(read == 1).tolist():
            if isinstance(cast("Any", lengths)[place], bool):
                raise PackingError(f"lengths[{place}] is True, expected a whole number of tokens: count them")
    if read.min() < 1:
        place = int(np.argmax(read < 1))
        raise PackingError(f"lengths[{place}] is {read[place]}, expected at least 1 token: leave empty items out")
    return read


def fit_lengths(lengths: IntArray, max_length: int, oversize: str) -> tuple[IntArray, IntArray]:
    """Decide what becomes of items longer than a row.

    Returns:
        The places that are kept, int64 (K,), and every item's length as far as a row holds it, int64 (N,).

    Raises:
        PackingError: an item is longer than a row and oversize is "error", or oversize is no policy.
    """
    if oversize not in OVERSIZE:
        raise PackingError(f"oversize is {shown(oversize)}, expected one of {', '.join(OVERSIZE)}: choose one")
    longer = lengths > max_length
    if not longer.any():
        return np.arange(len(lengths)), lengths
    if oversize == "error":
        place = int(np.argmax(longer))
        raise PackingError(
            f"sample {place} holds {lengths[place]} tokens, a row holds max_length={max_length} "
            f"({int(longer.sum())} of {len(lengths)} are too long): samples are never split, so raise max_length or "
            "say oversize='drop' or 'truncate'"
        )
    if oversize == "drop":
        return np.flatnonzero(~longer), lengths
    return np.arange(len(lengths)), np.minimum(lengths, max_length)
