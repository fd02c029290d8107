"""Filling rows from how many items there are of each length: identical rows are made at once.

Nothing here depends on how many items there are, only on how many different lengths.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from samplekit.sample.arrays import IntArray

Pattern = tuple[int, dict[int, int]]
"""How many identical rows there are, and how many items of each length one of them holds, in the order they are put."""

_WIDEST_BITS = 1 << 18  # lengths are bits of a whole number in the completion passes: wider rows are left to ffd
_PAIRS_TRIED = 4


@dataclass(frozen=True)
class Histogram:
    """Lengths to be packed, as counts.

    Attributes:
        sizes: the different lengths, ascending, each at least 1 and at most max_length.
        counts: how many items have each.
        max_length: tokens a row holds.
        max_items: items a row holds.
    """

    sizes: list[int]
    counts: list[int]
    max_length: int
    max_items: int


def histogram_of(lengths: IntArray, max_length: int, max_items: int) -> Histogram:
    """Count lengths, int64 (N,), each from 1 to max_length."""
    if max_length <= 1 << 22:  # a table of every length up to it is small
        table = np.bincount(lengths)
        sizes = np.flatnonzero(table)
        return Histogram(sizes.tolist(), table[sizes].tolist(), max_length, max_items)
    sizes, counts = np.unique(lengths, return_counts=True)
    return Histogram(sizes.tolist(), counts.tolist(), max_length, max_items)


def num_rows(patterns: list[Pattern]) -> int:
    """Count the rows of patterns."""
    return sum(repeats for repeats, _ in patterns)


def first_fit_decreasing(given: Histogram) -> list[Pattern]:
    """Pack as first-fit-decreasing does, bin for bin.

    Its first row is what one gets by always putting in the largest item that still fits; the next row is the same over
    what is left. So rows are filled one at a time, and a row is repeated for as long as its counts allow.
    """
    sizes, counts = [0, *given.sizes], [0, *given.counts]  # place 0 stands for: no size is left
    below = list(range(len(sizes)))

    def largest(place: int) -> int:
        """Find the largest size from this place down that is left, and shorten the way for the next search."""
        while below[place] != place:
            below[place] = below[below[place]]
            place = below[place]
        return place

    patterns: list[Pattern] = []
    while top := largest(len(sizes) - 1):
        row: dict[int, int] = {}
        place, room, slots = top, given.max_length, given.max_items
        while place and slots:
            row[place] = taken = min(counts[place], room // sizes[place], slots)
            room -= taken * sizes[place]
            slots -= taken
            place = largest(min(place, bisect_right(sizes, room)) - 1)
        repeats = min(counts[place] // taken for place, taken in row.items())
        for place, taken in row.items():
            counts[place] -= repeats * taken
            if not counts[place]:
                below[place] = place - 1
        patterns.append((repeats, {sizes[place]: taken for place, taken in row.items()}))
    return patterns


def completing(given: Histogram, *, slack: int, share: float) -> list[Pattern]:
    """Pack largest first, but close a row exactly wherever one length or a pair of lengths does.

    Args:
        given: what to pack.
        slack: one length also closes a row where it leaves this many tokens free or fewer.
        share: of the room that a pair closes, its longer half takes at most this much: 0.5 asks for the pairs most
            alike; the closer to 1, the less alike they may be.
    """
    stock = _Stock(given)
    patterns: list[Pattern] = []
    while stock.left:
        stock.open_row()
        stock.take(stock.left.bit_length() - 1)
        while stock.slots and (fits := stock.fitting()):
            size = fits.bit_length() - 1
            pair = None
            if size < stock.room - slack and stock.slots > 1:
                pair = stock.closing_pair(fits, share)
            for taken in pair or (size,):
                stock.take(taken)
        patterns.append(stock.close_row())
    return patterns


class _Stock:
    """What is left to pack: bit n of `left` is set while an item of length n is left, beside those of the open row."""

    def __init__(self, given: Histogram) -> None:
        self.given = given
        self.counts = dict(zip(given.sizes, given.counts, strict=True))
        bits = np.zeros(given.max_length + 1, dtype=np.uint8)
        bits[given.sizes] = 1
        self.left = int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")
        self.mirror = int.from_bytes(np.packbits(bits[::-1], bitorder="little").tobytes(), "little")
        self.open_row()

    def open_row(self) -> None:
        self.row: dict[int, int] = {}
        self.room = self.given.max_length
        self.slots = self.given.max_items
        self.free = self.left

    def take(self, size: int) -> None:
        taken = self.row.get(size, 0) + 1
        self.row[size] = taken
        self.room -= size
        self.slots -= 1
        if self.counts[size] == taken:
            self.free ^= 1 << size

    def fitting(self) -> int:
        return self.free & ((1 << (self.room + 1)) - 1)

    def closing_pair(self, fits: int, share: float) -> tuple[int, int] | None:
        """Find two lengths that add up to the room: those that stay where the lengths meet their mirror image."""
        pairs = fits & (self.mirror >> (self.given.max_length - self.room))
        pairs &= (1 << (int(self.room * share) + 1)) - 1
        for _ in range(_PAIRS_TRIED):
            if not pairs:
                return None
            size = pairs.bit_length() - 1
            other = self.room - size
            needed = 2 if other == size else 1
            if min(self._spare(size), self._spare(other)) >= needed:
                return size, other
            pairs ^= 1 << size
        return None

    def _spare(self, size: int) -> int:
        return self.counts[size] - self.row.get(size, 0)

    def close_row(self) -> Pattern:
        """Make the row as often as the counts allow, and take it off them."""
        repeats = min(self.counts[size] // taken for size, taken in self.row.items())
        for size, taken in self.row.items():
            self.counts[size] -= repeats * taken
            if not self.counts[size]:
                self.left ^= 1 << size
                self.mirror ^= 1 << (self.given.max_length - size)
        return repeats, self.row


def best_of_three(given: Histogram, lower_bound: int) -> list[Pattern]:
    """Give the patterns of the fewest rows that first-fit-decreasing and two completing passes find.

    Args:
        given: what to pack.
        lower_bound: rows that no packing goes below: what reaches it is taken at once.
    """
    slack = given.max_length >> 8
    passes: list[Callable[[], list[Pattern]]] = [lambda: first_fit_decreasing(given)]
    if given.max_length <= _WIDEST_BITS:
        passes = [
            lambda: completing(given, slack=0, share=0.5),  # closes rows of many short items best
            lambda: completing(given, slack=slack, share=0.6),  # and this one rows of two or three long ones
            *passes,
        ]
    best: list[Pattern] = []
    for pack in passes:
        found = pack()
        if not best or num_rows(found) < num_rows(best):
            best = found
        if num_rows(best) <= lower_bound:
            break
    return best
