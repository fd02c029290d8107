"""Where segments end, as variable-length attention takes it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from samplekit.sample.arrays import IntArray

Int32Array = npt.NDArray[np.int32]


class Boundaries(NamedTuple):
    """Ends of segments, and the longest of them.

    Attributes:
        cu_seqlens: int32: (B, K), rows filled up with their width; or one vector of all rows end to end.
        max_seqlens: each row's longest segment, int32 (B,).
        max_seqlen: the longest of all, a Python int.
    """

    cu_seqlens: Int32Array
    max_seqlens: Int32Array
    max_seqlen: int


def boundaries(starts: npt.NDArray[np.bool_], widths: IntArray, *, flatten: bool) -> Boundaries:
    """Turn starts of segments into cumulative lengths.

    Args:
        starts: where a segment starts, (N,): the first value of every row that is not empty among them.
        widths: of the rows, int64 (B,), N in all.
        flatten: whether rows are laid end to end.
    """
    places = np.flatnonzero(starts)
    lengths = np.diff(np.append(places, len(starts)))
    row_ends = np.cumsum(widths)
    rows = np.searchsorted(row_ends, places, side="right")
    longest = np.zeros(len(widths), np.int32)
    np.maximum.at(longest, rows, lengths.astype(np.int32))
    most = int(longest.max()) if len(longest) else 0
    if flatten:
        return Boundaries(np.append(places, len(starts)).astype(np.int32), longest, most)
    counts = np.bincount(rows, minlength=len(widths))
    table = np.repeat(widths[:, None], (int(counts.max()) if len(counts) else 0) + 1, axis=1).astype(np.int32)
    columns = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    table[rows, columns] = places - (row_ends - widths)[rows]
    return Boundaries(table, longest, most)


def seq_lens_of(document_ids: IntArray, widths: IntArray, *, flatten: bool) -> Int32Array:
    """Count the tokens of every document, padding left out.

    Args:
        document_ids: int64 (N,), from 1 in every row, 0 for padding.
        widths: of the rows, int64 (B,), N in all.
        flatten: whether rows are laid end to end.

    Returns:
        int32: (B, S), rows filled up with 0; or one vector of all documents.
    """
    most = int(document_ids.max()) if len(document_ids) else 0
    rows = np.repeat(np.arange(len(widths)), widths)
    counts = np.bincount(rows * (most + 1) + document_ids, minlength=len(widths) * (most + 1))
    table = counts.reshape(len(widths), most + 1)[:, slice(1, None)].astype(np.int32)  # column 0 is padding
    return table[table > 0] if flatten else table
