"""Spreading work over ranks or micro-batches."""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np

from samplekit.errors import PackingError
from samplekit.packing.lengths import flat_numbers, whole_number

_MOST_BINS = 1 << 16  # beyond as many items: more bins are a slip, and a list of each would fill the memory


def balance(workloads: object, num_bins: int, *, equal_size: bool = False) -> list[list[int]]:
    """Spread items over bins so that the bins' sums are alike: the heaviest item first, each to the lightest bin.

        >>> balance([9, 5, 4, 3, 3], 2)
        [[0, 3], [1, 2, 4]]

    Args:
        workloads: how much each item costs, finite and 0 or more, shape (N,): tokens, or tokens squared where attention
            decides.
        num_bins: ranks, or micro-batches.
        equal_size: whether bins also hold equally many items, give or take one where N does not divide.

    Returns:
        The items of every bin, heaviest first; each item stands in one bin. No bin's sum is above the mean by more than
        the heaviest item (where equal_size does not bind).

    Raises:
        PackingError: a workload is no finite number of 0 or more, or num_bins is no whole number from 1 to 65,536, or
            to the number of items.

    Source:
        Longest processing time first: R. L. Graham, "Bounds on multiprocessing timing anomalies", 1969.
    """
    loads = _read(workloads)
    bins = whole_number(num_bins, "num_bins", limit=max(len(loads), _MOST_BINS))
    found: list[list[int]] = [[] for _ in range(bins)]
    size, larger = divmod(len(loads), bins) if equal_size else (len(loads) + 1, 0)
    lightest = [(0.0, place) for place in range(bins)]
    for item in np.argsort(-loads, kind="stable").tolist():
        load, place = heapq.heappop(lightest)
        while len(found[place]) >= size and not (larger and len(found[place]) == size):
            load, place = heapq.heappop(lightest)  # this one holds all it may, and stays out
        larger -= len(found[place]) == size
        found[place].append(item)
        heapq.heappush(lightest, (load + float(loads[item]), place))
    return found


def _read(workloads: object) -> np.ndarray[Any, np.dtype[np.float64]]:
    found = flat_numbers(workloads, "workloads", "one number for each item")
    if len(found) and found.dtype.kind not in "iuf":
        raise PackingError(f"workloads holds {found.dtype}, expected numbers: pass one number for each item")
    loads = found.astype(np.float64)
    for place, load in enumerate(loads.tolist()):
        if not 0 <= load < math.inf:
            raise PackingError(f"workloads[{place}] is {load}, expected a finite number of 0 or more: repair it")
    return loads
