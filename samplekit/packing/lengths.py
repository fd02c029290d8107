"""Reading lengths, and what becomes of items that are longer than a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from samplekit.errors import PackingError
from samplekit.sample.arrays import AnyArray, IntArray
from samplekit.sample.kinds import describe_kind, is_sequence, is_whole_number, shown

Oversize: TypeAlias = Literal["error", "drop", "truncate", "truncate_left"]
OVERSIZE: tuple[str, ...] = ("error", "drop", "truncate", "truncate_left")

LONGEST = 2**31 - 1  # tokens of an item or a row: sums of 2**32 of them stay within int64, and cu_seqlens is int32
WIDEST_ROW = 2**27  # tokens of a row that is made, 2.5 GB with its positions and mask: more is a slip, not a context
_TOO_LARGE = 2**63


def whole_number(value: object, name: str, *, limit: int = _TOO_LARGE - 1) -> int:
    """Read a whole number from 1 to a limit.

    Raises:
        PackingError: it is none; the message starts with its name.
    """
    if not is_whole_number(value) or not 1 <= value <= limit:
        most = f"from 1 to {limit:,}" if limit < _TOO_LARGE - 1 else "of 1 or more"
        raise PackingError(f"{name} is {shown(value)}, expected a whole number {most}: pass how many")
    return int(value)


def read_seed(seed: object) -> int | None:
    """Read what numpy's generators start from; None stays None.

    Raises:
        PackingError: it is no whole number of 0 or more.
    """
    if seed is None:
        return None
    if not is_whole_number(seed) or seed < 0:
        raise PackingError(f"seed is {shown(seed)}, expected a whole number of 0 or more, or None: pass one of those")
    return int(seed)


def flat_numbers(values: Any, name: str, wanted: str) -> AnyArray:  # noqa: ANN401 - whatever a caller holds
    """Give numbers as an array of one dimension, in the dtype they come in; there may be none.

    Args:
        values: a list, an array or a tensor.
        name: what they are called in errors.
        wanted: what is expected of them, such as ``"one length for each item"``.

    Raises:
        PackingError: they are nested, of several dimensions or of a kind that numpy cannot read.
    """
    try:
        plain = values.detach().cpu() if hasattr(values, "detach") and hasattr(values, "cpu") else values
        found: AnyArray = np.asarray(plain)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        what = "nested values" if is_sequence(values) else f"{describe_kind(values)} that cannot be read"
        raise PackingError(f"{name} holds {what}, expected one dimension: pass {wanted}") from error
    if found.ndim != 1:
        raise PackingError(f"{name} has shape {found.shape}, expected one dimension: pass {wanted}")
    return found


def read_lengths(lengths: object) -> IntArray:
    """Read how many tokens items hold, int64 (N,); there may be none.

    Raises:
        PackingError: a value is no whole number from 1 to 2**31 - 1; the message names its place.
    """
    found = flat_numbers(lengths, "lengths", "one length for each item")
    if not len(found):
        return np.zeros(0, dtype=np.int64)
    if found.dtype.kind not in "iu":
        given = cast("list[object]", list(lengths) if is_sequence(lengths) else found.tolist())
        for place, value in enumerate(given):
            if not is_whole_number(value):
                raise PackingError(f"lengths[{place}] is {shown(value)}, expected a whole number of tokens: count them")
        found = np.array(given, dtype=object)  # numpy takes whole numbers of more than 63 bits for fractions
    if is_sequence(lengths):  # numpy takes True for 1 where other ints stand beside it
        for place in np.flatnonzero(found == 1).tolist():
            if isinstance(lengths[place], bool):
                raise PackingError(f"lengths[{place}] is True, expected a whole number of tokens: count them")
    if found.min() < 1:
        place = int(np.argmax(found < 1))
        raise PackingError(
            f"lengths[{place}] is {shown(int(found[place]))}, expected at least 1 token: leave empty items out"
        )
    if found.max() > LONGEST:
        place = int(np.argmax(found > LONGEST))
        raise PackingError(
            f"lengths[{place}] is {shown(int(found[place]))}, expected at most {LONGEST:,} tokens: look for a count of "
            "something else"
        )
    return found.astype(np.int64)


def fit_lengths(
    lengths: IntArray, max_length: int, oversize: str, name: Callable[[int], str] = "sample {}".format
) -> tuple[IntArray, IntArray]:
    """Decide what becomes of items longer than a row.

    Args:
        lengths: of every item, int64 (N,).
        max_length: tokens of a row.
        oversize: the policy.
        name: what errors call the item at a place.

    Returns:
        The places that are kept, int64 (K,), and every item's length as far as a row holds it, int64 (N,).

    Raises:
        PackingError: an item is longer than a row and oversize is "error", or oversize is no policy.
    """
    longer = lengths > max_length
    if not longer.any():
        return np.arange(len(lengths)), lengths
    if oversize == "error":
        place = int(np.argmax(longer))
        raise PackingError(
            f"{name(place)} holds {lengths[place]} tokens, a row holds max_length={max_length} "
            f"({int(longer.sum())} of {len(lengths)} are too long): samples are never split, so raise max_length or "
            "say oversize='drop' or 'truncate'"
        )
    if oversize == "drop":
        return np.flatnonzero(~longer), lengths
    return np.arange(len(lengths)), np.minimum(lengths, max_length)


def choice(value: object, name: str, known: tuple[str, ...]) -> str:
    """Read one of several words.

    Raises:
        PackingError: it is none of them.
    """
    if value not in known:
        raise PackingError(f"{name} is {shown(value)}, expected one of {', '.join(known)}: choose one")
    return str(value)
