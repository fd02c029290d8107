"""Arrays as the numbers of a JSON list, without its brackets: float32 in its shortest digits, tokens printed once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import orjson

from samplekit.sample.arrays import AnyArray, FloatArray, IntArray

Printed: TypeAlias = bytes | memoryview


def print_numbers(values: AnyArray) -> Printed:
    """Print an int64 or float32 array in as few bytes as read back bit for bit.

    Whole floats are printed without their ".0" (a reader of float32 takes 1 for 1.0), unless one of them may be -0.0,
    whose sign an int would lose, or the last one is not whole: such arrays, logprobs above all, hold few that are.

    Args:
        values: shape (T,), finite.
    """
    text = plain_json(values)
    if values.dtype.kind == "f" and values[-1].is_integer() and b"-0.0" not in text:
        text = text.replace(b".0,", b",").replace(b".0]", b"]")
    return memoryview(text)[1:-1]


def first_numbers(count: int) -> Callable[[Printed], bytes]:
    """Give what cuts a printed list to the first numbers of it, all of them where there are fewer.

    Args:
        count: 1 or more.
    """
    match = re.compile(rb"(?:[^,]*,){0,%d}[^,]*" % (count - 1)).match

    def cut(text: Printed) -> bytes:
        found = match(text)
        assert found is not None  # it matches anything
        return found[0]

    return cut


def print_tokens(chunks: Sequence[IntArray], targets: IntArray | None) -> tuple[list[Printed], Printed]:
    """Print a sample's input tokens, chunk by chunk, and its targets; where they share one buffer, it is printed once.

    Args:
        chunks: the model input's ids, T in all.
        targets: the ids predicted, shape (T,), or None.
    """
    shared = None if targets is None or len(chunks) != 1 else shared_buffer(chunks[0], targets)
    if shared is None:
        return [print_numbers(chunk) for chunk in chunks], b"" if targets is None else print_numbers(targets)
    whole = plain_json(shared)
    view = memoryview(whole)
    return [view[1 : whole.rindex(b",")]], view[whole.index(b",") + 1 : -1]


def shared_buffer(tokens: IntArray, targets: IntArray) -> IntArray | None:
    """Give the one buffer of which tokens and targets are views, one value apart, or None where they are not.

    Args:
        tokens: the ids read, shape (T,).
        targets: the ids predicted, shape (T,).

    Returns:
        int64 (T + 1,): the full sequence.
    """
    buffer = tokens.base
    if buffer is None or buffer is not targets.base or not isinstance(buffer, np.ndarray):
        return None
    return buffer if len(buffer) == len(tokens) + 1 == len(targets) + 1 else None


def shortest_floats(values: FloatArray) -> list[float]:
    """Give float32 values as Python floats that print in the same, shortest digits: 0.1, not 0.10000000149011612."""
    found: list[float] = orjson.loads(plain_json(values))
    return found


def plain_json(values: AnyArray) -> bytes:
    """Print an array as a JSON list; float32 in its shortest digits, as orjson does it."""
    return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
