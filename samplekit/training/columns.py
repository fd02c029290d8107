"""Items of one kind -> their arrays end to end: every column is joined first, then read and checked at once.

What is unlike or at fault is not judged here: None says to read item by item, which names what is wrong.
"""

# pyright: reportUnknownMemberType=false
# (torch annotates only part of what is used here)

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import torch

from samplekit.batching.rows import Flags, Rows
from samplekit.packing.spellings import IGNORED, MASKS
from samplekit.sample.arrays import AnyArray, IntArray
from samplekit.sample.kinds import is_mapping

_ONE_BY_ONE = ("seq_lengths", "position_ids", "positions", "padding_length", "document_ids")  # what is in rows
Columns = dict[str, Sequence[Any]]


class _UnlikeError(ValueError):
    """Items are not all of one plain kind."""


def read_together(items: Sequence[Any]) -> Rows | None:
    """Lay mappings with ``input_ids`` end to end; None unless all hold the same columns, each of one plain kind.

    ``loss_mask`` is 1.0 wherever a token trains, whatever its weight: labels hold no weights.
    """
    try:
        return _laid(_columns(items))
    except (TypeError, ValueError, OverflowError):
        return None


def _columns(items: Sequence[Any]) -> Columns:
    """Give what is read of every item, by name."""
    first = items[0]
    if not all(map(is_mapping, items)) or not all(item.keys() == first.keys() for item in items):
        raise _UnlikeError
    held = {name for name in first if any(item[name] is not None for item in items)}
    if "input_ids" not in held or held.intersection(_ONE_BY_ONE):
        raise _UnlikeError
    names = held.intersection(("input_ids", "labels", "attention_mask", *MASKS))
    return {name: [item[name] for item in items] for name in names}


def _laid(columns: Columns) -> Rows:
    widths = list(map(len, columns["input_ids"]))
    if not all(widths) or any(list(map(len, values)) != widths for values in columns.values()):
        raise _UnlikeError
    tokens = _whole(columns["input_ids"], typecode="Q")  # read four times as fast as "q"; beyond 2**63 it is negative
    _refuse_bools(tokens, columns["input_ids"], widths)
    if tokens.min() < 0 or ("attention_mask" in columns and not _all_attended(columns["attention_mask"])):
        raise _UnlikeError
    sizes = np.array(widths, dtype=np.int64)
    return Rows(sizes, np.zeros(len(sizes), np.int64), tokens, _trained(columns, tokens), None, {})


def _trained(columns: Columns, tokens: IntArray) -> AnyArray | None:
    """Say what trains, float32 (N,): where every mask says so and no label is ignored; None where there is neither."""
    found = [_flags(columns[name]) for name in MASKS if name in columns]
    if "labels" in columns:
        labels = _whole(columns["labels"])
        trains = labels != IGNORED
        if (trains & (labels != tokens)).any():
            raise _UnlikeError
        found.append(trains)
    together = found[0] if len(found) == 1 else np.logical_and.reduce(found) if found else None
    return None if together is None else together.astype(np.float32)


def _whole(values: Sequence[Any], *, typecode: Literal["q", "Q"] = "q") -> IntArray:
    """Join whole numbers of lists, arrays or tensors."""
    if set(map(type, values)) == {list}:
        read: array[int] = array(typecode)
        for part in values:
            read.fromlist(part)  # refuses fractions and text, and takes True for 1
        return np.frombuffer(read, dtype=np.int64)
    joined = _joined(values)
    if joined.dtype.kind not in "iu" or joined.dtype == np.uint64:
        raise _UnlikeError
    return joined.astype(np.int64, copy=False)


def _flags(values: Sequence[Any]) -> Flags:
    """Join masks of lists, arrays or tensors, and say where they are not 0."""
    if set(map(type, values)) == {list}:
        return np.frombuffer(b"".join(map(bytes, values)), dtype=np.uint8).astype(np.bool_)
    joined = _joined(values)
    if joined.dtype.kind not in "biuf" or not (joined.min() >= 0 and joined.max() < np.inf):  # NaN is neither
        raise _UnlikeError
    return joined.astype(np.bool_)


def _all_attended(values: Sequence[Any]) -> bool:
    """Tell whether attention masks hold 1 only: 0 is padding, and other numbers are those of documents."""
    if set(map(type, values)) == {list}:
        return all(part.count(1) == len(part) for part in values)
    return bool((_joined(values) == 1).all())


def _joined(values: Sequence[Any]) -> AnyArray:
    """Join arrays of numpy, or tensors, of one dtype and one dimension."""
    if set(map(type, values)) == {torch.Tensor}:
        values = [part.detach().cpu().numpy() for part in values]
    if set(map(type, values)) != {np.ndarray} or len({(part.dtype, part.ndim) for part in values}) > 1:
        raise _UnlikeError
    joined: AnyArray = np.concatenate(values)
    if joined.ndim != 1:
        raise _UnlikeError
    return joined


def _refuse_bools(tokens: IntArray, values: Sequence[Any], widths: list[int]) -> None:
    """Look at the few places of lists where True or False could hide among ids."""
    if type(values[0]) is not list or tokens.min() > 1:
        return
    starts = [0, *accumulate(widths)]
    hiding = np.flatnonzero(tokens <= 1)
    rows = np.searchsorted(starts, hiding, side="right") - 1
    for place, row in zip(hiding.tolist(), rows.tolist(), strict=True):
        if isinstance(values[row][place - starts[row]], bool):
            raise _UnlikeError
