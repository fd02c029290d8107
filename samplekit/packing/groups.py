"""Labels of items that must not share a row."""

from __future__ import annotations

import numpy as np

from samplekit.errors import PackingError, SampleError
from samplekit.rollouts.listed import listed
from samplekit.rollouts.numbering import numbered
from samplekit.sample.arrays import IntArray
from samplekit.sample.kinds import is_group_id, shown


def parted(kept: IntArray, groups: object, length: int) -> list[IntArray]:
    """Part the items that are kept by their labels, in the order in which labels first appear.

    Args:
        kept: places of items, ascending, int64 (K,).
        groups: a label for each of all items, text or whole numbers as ids of groups are in rollouts; None for none.
        length: how many items there are, kept or not.

    Raises:
        PackingError: labels are no ordered collection, there are more or fewer than items, or one is no label.
    """
    if groups is None:
        return [kept] if len(kept) else []
    labels = _labels(groups)
    if len(labels) != length:
        raise PackingError(f"groups holds {len(labels)} labels, lengths holds {length}: give one label for each item")
    if not len(kept):
        return []
    codes, _ = numbered(labels)
    own = codes[kept]
    order = np.argsort(own, kind="stable")
    parts = np.split(kept[order], np.flatnonzero(np.diff(own[order])) + 1)
    return sorted(parts, key=lambda part: int(part[0]))


def _labels(groups: object) -> list[str | int]:
    try:
        found = listed(groups, "groups", "one label for each item")
    except SampleError as error:
        raise PackingError(str(error)) from error
    plain = set(map(type, found)) <= {str, int}
    if not all(map(is_group_id, set(found) if plain else found)):
        place, label = next((place, label) for place, label in enumerate(found) if not is_group_id(label))
        raise PackingError(
            f"groups[{place}] is {shown(label)}, expected text or a whole number of 64 bits: a label that is something "
            "else may be equal to no other, so pass str(...) of it"
        )
    return found
