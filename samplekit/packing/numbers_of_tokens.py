"""Numbers that belong to tokens -> int64 where all are whole, negative ones too, else float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from samplekit.errors import AlignmentError, SampleError
from samplekit.sample.arrays import AnyArray, IntArray, floats_array, freeze, ids_array

_UNREADABLE = (TypeError, ValueError, OverflowError, RuntimeError, NotImplementedError)


def whole_numbers(values: object, name: str) -> AnyArray:
    """Read an array in the dtype that holds it exactly: int64 where its numbers are whole, else float32.

    Raises:
        AlignmentError: it is empty or not 1-D. SampleError: a value is no finite number.
    """
    try:
        return ids_array(values, name)
    except AlignmentError:
        raise
    except SampleError:
        found = _signed(values)
        return floats_array(values, name) if found is None else found


def labels_array(values: object) -> IntArray:
    """Read labels: ids, or a negative number where nothing trains.

    Raises:
        AlignmentError: they are empty or not 1-D. SampleError: one is no whole number.
    """
    found = whole_numbers(values, "labels")
    if found.dtype.kind != "i":
        raise SampleError(f"labels holds {found[0]} at index 0, expected whole numbers: token ids, or -100")
    return found


def _signed(values: Any) -> IntArray | None:  # noqa: ANN401 - anything
    """Read whole numbers of which some are negative; None where they are something else."""
    try:
        plain = values.detach().cpu() if hasattr(values, "detach") else values
        found: AnyArray = np.asarray(plain)
        found = np.asarray(found.tolist()) if found.dtype == object else found
    except _UNREADABLE:
        return None
    if found.ndim != 1 or found.dtype.kind != "i" or np.ma.is_masked(values):
        return None
    return freeze(np.array(found, dtype=np.int64))
