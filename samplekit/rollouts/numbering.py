"""Ids of groups -> numbers, by which numpy compares without a loop over groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import Any

import numpy as np

from samplekit.errors import SampleError
from samplekit.rollouts.scores import flat_array, plain_list
from samplekit.sample.arrays import INT64, IntArray


def numbered(keys: Sequence[Hashable]) -> tuple[IntArray, list[Any]]:
    """Number groups in the order in which they first appear.

    Args:
        keys: each member's group, N of them.

    Returns:
        Each member's number, int64 (N,), and the groups by number.

    Raises:
        TypeError: a key is not hashable.
    """
    numbers: defaultdict[Any, int] = defaultdict(count().__next__)
    codes = np.fromiter(map(numbers.__getitem__, keys), dtype=INT64, count=len(keys))
    return codes, list(numbers)


def group_codes(groups: object) -> tuple[IntArray | None, list[Any]]:
    """Number the groups that a caller names: an array's by size, others in the order in which they first appear.

    Returns:
        Each member's number, int64 (N,), and the groups by number; (None, []) where there are no groups.

    Raises:
        SampleError: groups are no collection, or one is no id.
    """
    if groups is None:
        return None, []
    array = flat_array(groups, "iu")
    if array is not None:
        present, codes = np.unique(array, return_inverse=True)
        return codes.astype(INT64), present.tolist()
    ids = plain_list(groups, "groups")
    try:
        codes, names = numbered(ids)
    except TypeError as error:
        raise SampleError(f"groups holds an id that cannot be compared ({error}): use text or whole numbers") from error
    if None in names:
        raise SampleError(f"groups holds None at index {ids.index(None)}, expected an id: name every group")
    if any(name != name for name in names):  # NaN, which is not even its own group
        raise SampleError("groups holds nan, expected ids that are equal to themselves: name every group")
    return codes, names


def refuse_single(codes: IntArray, place: Callable[[int], str], advice: str, what: str = "completion") -> None:
    """Refuse a group of one, which has nothing to be compared with.

    Args:
        codes: each member's group, numbered from 0, int64 (N,).
        place: names a member in the error.
        advice: what to do.
        what: what a member is.

    Raises:
        SampleError: it names the first member that stands alone, and counts the other groups of one.
    """
    lone = np.flatnonzero((np.bincount(codes) == 1)[codes])
    if len(lone):
        others = f" (and {len(lone) - 1} more groups do)" if len(lone) > 1 else ""
        raise SampleError(
            f"{place(int(lone[0]))} is the only {what} of its group{others}, expected two or more: {advice}"
        )
