"""Arrays as JSON bytes: float32 in its shortest digits, runs of equal values by repetition, shared tokens once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import orjson

from samplekit.sample.arrays import AnyArray, FloatArray, IntArray

_RUN_LENGTH = 8  # values per run, on average, from which repeating digits beats printing each


def array_json(values: AnyArray) -> bytes:
    """Print an int64 or float32 array as a compact JSON list; every value reads back bit for bit.

    Args:
        values: shape (T,), finite.
    """
    changes = np.diff(values.view(f"i{values.itemsize}")) != 0  # compared as bits, for -0.0 is not 0.0
    if (np.count_nonzero(changes) + 1) * _RUN_LENGTH > len(values):
        return _plain_json(values)
    ends: list[int] = [*np.flatnonzero(changes).tolist(), len(values) - 1]
    digits = _plain_json(values[ends]).strip(b"[]").split(b",")
    runs = [(text + b",") * (end - start) for text, start, end in zip(digits, [-1, *ends], ends, strict=False)]
    return b"[%s]" % b"".join(runs).removesuffix(b",")


def _plain_json(values: AnyArray) -> bytes:
    return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)


def token_arrays_json(chunks: Sequence[IntArray], targets: IntArray | None) -> tuple[list[bytes], bytes]:
    """Print a sample's input tokens, chunk by chunk, and its targets; where they share one buffer, it is printed once.

    Args:
        chunks: the model input's ids, T in all.
        targets: the ids predicted, shape (T,), or None.
    """
    shared = None if targets is None or len(chunks) != 1 else shared_buffer(chunks[0], targets)
    if shared is None:
        return [_plain_json(chunk) for chunk in chunks], b"[]" if targets is None else _plain_json(targets)
    whole = _plain_json(shared)
    return [whole[: whole.rindex(b",")] + b"]"], b"[" + whole[whole.index(b",") + 1 :]


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
    found: list[float] = orjson.loads(_plain_json(values))
    return found
