"""Which items share a row: decided from their lengths alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from samplekit.packing.expand import expand
from samplekit.packing.groups import parted
from samplekit.packing.histogram import Pattern, best_of_three, first_fit_decreasing, histogram_of
from samplekit.packing.in_order import first_fit, next_fit
from samplekit.packing.lengths import (
    LONGEST,
    OVERSIZE,
    Oversize,
    choice,
    fit_lengths,
    read_lengths,
    read_seed,
    whole_number,
)
from samplekit.sample.arrays import IntArray

Strategy: TypeAlias = Literal["best", "ffd", "first_fit", "next_fit"]
STRATEGIES: tuple[str, ...] = ("best", "ffd", "first_fit", "next_fit")


class Rows(NamedTuple):
    """Rows as one array of items and where each row starts in it; offsets has one value more than there are rows."""

    order: IntArray
    offsets: IntArray


@dataclass(frozen=True, eq=False)
class Plan:
    """Rows of items, named by their places in the lengths that were given.

    Attributes:
        order: items row after row, int64; every item that is packed stands in it once.
        offsets: int64 (num_rows + 1,): row r holds ``order[offsets[r]:offsets[r + 1]]``.
        max_length: tokens a row holds.
        lower_bound: rows that no plan of these items goes below.
        num_tokens: tokens in the rows; with num_dropped and num_truncated, all tokens that were given.
        num_dropped: tokens of items that are left out.
        num_truncated: tokens cut off items that are longer than a row.
        num_dropped_items: how many items are left out.
        num_truncated_items: how many items are cut.
    """

    order: IntArray
    offsets: IntArray
    max_length: int
    lower_bound: int
    num_tokens: int
    num_dropped: int = 0
    num_truncated: int = 0
    num_dropped_items: int = 0
    num_truncated_items: int = 0

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.offsets) - 1

    @property
    def utilization(self) -> float:
        """The share of the rows that tokens fill, from 0 to 1; 0.0 where there is no row."""
        return self.num_tokens / (self.num_rows * self.max_length) if self.num_rows else 0.0

    @property
    def rows(self) -> list[IntArray]:
        """The items of every row, each int64."""
        return list(self)

    def __len__(self) -> int:
        return self.num_rows

    def __iter__(self) -> Iterator[IntArray]:
        ends = self.offsets.tolist()
        return (self.order[ends[row] : ends[row + 1]] for row in range(self.num_rows))

    def __repr__(self) -> str:
        return (
            f"Plan({self.num_rows} rows of {self.max_length}, {self.utilization:.2%} full, at least "
            f"{self.lower_bound} needed)"
        )


def plan_packing(
    lengths: object,
    max_length: int,
    *,
    strategy: Strategy = "best",
    seed: int | None = None,
    max_items: int | None = None,
    groups: object = None,
    oversize: Oversize = "error",
) -> Plan:
    """Decide which items share a row. An item is never split.

    The same lengths give the same plan. Packed rows come sorted, long items first, and training on sorted rows hurts:
    pass a seed, or shuffle the rows later.

        >>> plan = plan_packing([700, 500, 450, 300, 150], 1024)
        >>> [row.tolist() for row in plan], round(plan.utilization, 3)
        ([[0, 3], [1, 2], [4]], 0.684)

    Args:
        lengths: tokens of every item, each from 1 to 2**31 - 1, shape (N,).
        max_length: tokens a row holds, at most as many.
        strategy: ``"best"`` never takes more rows than ``"ffd"``, first-fit-decreasing; ``"first_fit"`` keeps to the
            order given with 64 rows open at a time, as `StreamingPacker` does; ``"next_fit"`` with one.
        seed: shuffles the rows (not what shares them); None keeps the planner's order.
        max_items: most items of a row.
        groups: a label for every item, text or a whole number, as a list, an array or a tensor: items of different
            labels never share a row.
        oversize: what happens to items longer than a row: ``"error"``, ``"drop"``, ``"truncate"`` (keeps their start)
            or ``"truncate_left"`` (keeps their end).

    Returns:
        The plan, with the tokens that were dropped and cut off counted.

    Raises:
        PackingError: an item is longer than a row and oversize is "error", or an argument is not what it should be.

    Source:
        First-fit-decreasing: D. S. Johnson, "Near-optimal bin packing algorithms", 1973. Filling rows one at a time
        from a histogram of lengths gives the same rows. The completing passes of "best" are this package's own.
    """
    sizes = read_lengths(lengths)
    room = whole_number(max_length, "max_length", limit=LONGEST)
    choice(oversize, "oversize", OVERSIZE)
    kept, fitted = fit_lengths(sizes, room, oversize)
    return plan_kept(sizes, fitted, kept, room, strategy=strategy, seed=seed, max_items=max_items, groups=groups)


def plan_kept(
    sizes: IntArray,
    fitted: IntArray,
    kept: IntArray,
    max_length: int,
    *,
    strategy: Strategy,
    seed: int | None,
    max_items: int | None,
    groups: object,
) -> Plan:
    """Plan the rows of those items that are kept.

    Args:
        sizes: tokens of every item, int64 (N,).
        fitted: tokens of every item as far as a row holds them, int64 (N,).
        kept: places of the items that are packed, ascending, int64 (K,).
        max_length: tokens a row holds.
        strategy: as in `plan_packing`.
        seed: as there.
        max_items: as there.
        groups: as there.

    Raises:
        PackingError: an argument is not what it should be.
    """
    slots = len(sizes) + 1 if max_items is None else whole_number(max_items, "max_items")
    choice(strategy, "strategy", STRATEGIES)
    start = read_seed(seed)
    parts = [
        (places, *_rows_of(fitted[places], max_length, slots, strategy)) for places in parted(kept, groups, len(sizes))
    ]
    rows = _joined([(places, rows) for places, rows, _ in parts])
    if start is not None:
        rows = _shuffled(rows, start)
    return Plan(
        order=rows.order,
        offsets=rows.offsets,
        max_length=max_length,
        lower_bound=sum(bound for _, _, bound in parts),
        num_tokens=int(fitted[kept].sum()),
        num_dropped=int(sizes.sum() - sizes[kept].sum()),
        num_truncated=int(sizes[kept].sum() - fitted[kept].sum()),
        num_dropped_items=len(sizes) - len(kept),
        num_truncated_items=int(np.count_nonzero(sizes[kept] != fitted[kept])),
    )


def _rows_of(lengths: IntArray, max_length: int, max_items: int, strategy: str) -> tuple[Rows, int]:
    """Pack one group; items are places in its own lengths."""
    bound = _lower_bound(lengths, max_length, max_items)
    in_order: dict[str, Callable[[IntArray, int, int], tuple[IntArray, IntArray]]] = {
        "first_fit": first_fit,
        "next_fit": next_fit,
    }
    if strategy in in_order:
        return Rows(*in_order[strategy](lengths, max_length, max_items)), bound
    histogram = histogram_of(lengths, max_length, max_items)
    patterns: list[Pattern]
    patterns = first_fit_decreasing(histogram) if strategy == "ffd" else best_of_three(histogram, bound)
    return Rows(*expand(patterns, lengths)), bound


def _lower_bound(lengths: IntArray, max_length: int, max_items: int) -> int:
    """Count rows that every packing needs: for the tokens, for the items, and for those that cannot share a row."""
    alone = int(np.count_nonzero(lengths > max_length // 2))
    return max(-(-int(lengths.sum()) // max_length), -(-len(lengths) // max_items), alone)


def _joined(parts: list[tuple[IntArray, Rows]]) -> Rows:
    if not parts:
        return Rows(np.zeros(0, np.int64), np.zeros(1, np.int64))
    order = np.concatenate([places[rows.order] for places, rows in parts])
    counts = np.concatenate([np.diff(rows.offsets) for _, rows in parts])
    return Rows(order, _offsets(counts))


def _offsets(counts: IntArray) -> IntArray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def _shuffled(rows: Rows, seed: int) -> Rows:
    """Put the rows in another order; each keeps its items."""
    places = np.random.default_rng(seed).permutation(len(rows.offsets) - 1)
    counts = np.diff(rows.offsets)[places]
    offsets = _offsets(counts)
    source = np.repeat(rows.offsets[places] - offsets[: len(places)], counts) + np.arange(len(rows.order))
    return Rows(rows.order[source], offsets)
