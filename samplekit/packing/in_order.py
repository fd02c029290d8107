"""Packing in the order given, with few rows open at a time."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np

from samplekit.sample.arrays import IntArray

T = TypeVar("T")
NUM_OPEN = 64


class OpenRows(Generic[T]):
    """Rows that still take items: each item goes to the first row it fits.

    Args:
        max_length: tokens a row holds.
        max_items: items a row holds.
        num_open: most rows that are open at a time.
    """

    def __init__(self, max_length: int, max_items: int, num_open: int = NUM_OPEN) -> None:
        self.max_length = max_length
        self.max_items = max_items
        self.num_open = num_open
        self._rows: list[list[T]] = []
        self._rooms: list[int] = []

    def put(self, item: T, length: int) -> list[list[T]]:
        """Put an item of at most max_length tokens; give the rows that this closes, full ones and the fullest."""
        place = next((place for place, room in enumerate(self._rooms) if room >= length), None)
        closed: list[list[T]] = []
        if place is None:
            if len(self._rows) == self.num_open:
                closed.append(self._close(self._rooms.index(min(self._rooms))))
            place = len(self._rows)
            self._rows.append([])
            self._rooms.append(self.max_length)
        self._rows[place].append(item)
        self._rooms[place] -= length
        if not self._rooms[place] or len(self._rows[place]) == self.max_items:
            closed.append(self._close(place))
        return closed

    def close_all(self) -> list[list[T]]:
        """Give the rows that are open, the oldest first, and start anew."""
        rows, self._rows, self._rooms = self._rows, [], []
        return rows

    def _close(self, place: int) -> list[T]:
        del self._rooms[place]
        return self._rows.pop(place)


def first_fit(lengths: IntArray, max_length: int, max_items: int) -> tuple[IntArray, IntArray]:
    """Put each item into the first of 64 open rows that it fits; give the items row after row, and where rows start."""
    rows = OpenRows[int](max_length, max_items)
    closed = [row for item, length in enumerate(lengths.tolist()) for row in rows.put(item, length)]
    closed += rows.close_all()
    order = np.array([item for row in closed for item in row], dtype=np.int64)
    return order, np.cumsum([0, *map(len, closed)])


def next_fit(lengths: IntArray, max_length: int, max_items: int) -> tuple[IntArray, IntArray]:
    """Fill a row until an item does not fit, then the next; items keep their order."""
    ends = np.cumsum(lengths)
    offsets = [0]
    while offsets[-1] < len(lengths):
        start = offsets[-1]
        before = int(ends[start] - lengths[start])
        fitting = int(np.searchsorted(ends, before + max_length, side="right"))
        offsets.append(min(fitting, start + max_items))
    return np.arange(len(lengths)), np.array(offsets)
