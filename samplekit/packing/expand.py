"""From patterns of rows to the items in them."""

from __future__ import annotations

import numpy as np

from samplekit.packing.histogram import Pattern
from samplekit.sample.arrays import AnyArray, IntArray


def expand(patterns: list[Pattern], lengths: IntArray) -> tuple[IntArray, IntArray]:
    """Give every row of the patterns its items; of equal lengths, the earlier item goes to the earlier row.

    Args:
        patterns: rows that hold each length exactly as often as there are items of it.
        lengths: of every item, int64 (N,).

    Returns:
        Items row after row, int64 (N,), and where each row starts, int64 (rows + 1,).
    """
    repeats = np.array([repeats for repeats, _ in patterns])
    pieces = np.array([len(row) for _, row in patterns])
    sizes = np.array([size for _, row in patterns for size in row])
    taken = np.array([count for _, row in patterns for count in row.values()])  # items of one row, for every piece
    widths = np.add.reduceat(taken, np.cumsum(pieces) - pieces)  # items of one row, for every pattern
    columns = _exclusive(taken) - np.repeat(_exclusive(widths), pieces)
    firsts = np.repeat(_exclusive(repeats * widths), pieces) + columns
    totals = np.repeat(repeats, pieces) * taken
    by_size = np.argsort(_narrowed(lengths), kind="stable")
    step = np.arange(len(lengths)) - np.repeat(_exclusive(totals), totals)  # counts the items of a piece
    rows, places = np.divmod(step, np.repeat(taken, totals))
    target = np.repeat(firsts, totals) + rows * np.repeat(np.repeat(widths, pieces), totals) + places
    order = np.empty(len(lengths), np.int64)
    order[target] = by_size[np.repeat(_first_items(sizes, totals), totals) + step]
    counts = np.repeat(widths, repeats)
    return order, np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def _first_items(sizes: IntArray, totals: IntArray) -> IntArray:
    """Say for every piece where its items start among all items sorted by length."""
    by_size = np.argsort(sizes, kind="stable")
    firsts = np.empty_like(totals)
    firsts[by_size] = _exclusive(totals[by_size])
    return firsts


def _exclusive(counts: IntArray) -> IntArray:
    return np.cumsum(counts) - counts


def _narrowed(lengths: IntArray) -> AnyArray:
    """Hold short lengths in 16 bits, which numpy sorts by radix."""
    return lengths.astype(np.uint16) if lengths.max() < 1 << 16 else lengths
