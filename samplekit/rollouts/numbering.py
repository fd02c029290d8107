"""Ids of groups -> numbers, by which numpy compares without a loop over groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from samplekit.errors import SampleError
from samplekit.rollouts.listed import listed, refuse_masked
from samplekit.rollouts.names import group_id
from samplekit.rollouts.scores import flat_array
from samplekit.sample.arrays import INT64, IntArray
from samplekit.sample.kinds import is_group_id

BoolArray: TypeAlias = npt.NDArray[np.bool_]


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
        SampleError: groups are no ordered collection, or one is no id that a Group takes.
    """
    if groups is None:
        return None, []
    refuse_masked(groups, "groups")
    array = flat_array(groups, "iu")
    if array is not None and array.max() < 2**63:
        present, codes = np.unique(array, return_inverse=True)
        return codes.astype(INT64), present.tolist()
    ids = listed(groups, "groups", "one id for every completion")
    if not set(map(type, ids)) <= {str, int} or not _all_name(set(ids)):
        ids = [group_id(item, f"groups[{index}]") for index, item in enumerate(ids)]
        if None in ids:
            raise SampleError(f"groups[{ids.index(None)}] is None, expected an id: name every group")
    return numbered(ids)


def any_in_group(found: BoolArray, codes: IntArray, num_groups: int) -> BoolArray:
    """Tell which groups hold a member for which something was found, bool (num_groups,)."""
    told = np.zeros(num_groups, dtype=np.bool_)
    told[codes[found]] = True
    return told


def _all_name(ids: set[str | int]) -> bool:
    """Tell whether each of these can be a group's id, as `group_id` tells it of one."""
    try:
        "".join(name for name in ids if isinstance(name, str)).encode()
    except UnicodeEncodeError:
        return False
    return all(map(is_group_id, ids))


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
