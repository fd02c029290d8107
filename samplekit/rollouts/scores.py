"""Rewards and ids as a caller holds them -> float64 numbers and plain values, or an error that names the value."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from samplekit.errors import AlignmentError, SampleError
from samplekit.rollouts.completion import checked_reward
from samplekit.sample.arrays import AnyArray
from samplekit.sample.kinds import describe_kind

DoubleArray: TypeAlias = npt.NDArray[np.float64]

_LARGEST = float(np.finfo(np.float32).max)


def finite_numbers(values: object, name: str, place: Callable[[int], str] | None = None) -> DoubleArray:
    """Read numbers as float64, (N,), none rounded on the way.

    Args:
        values: a list, an array or a tensor of numbers or bools.
        name: what they are called in errors.
        place: names value i in errors; ``name[i]`` without it.

    Raises:
        AlignmentError: there is none, or more than one dimension.
        SampleError: one is no finite number within float32's range.
    """
    called = place or f"{name}[{{}}]".format
    shape = getattr(values, "shape", None)
    if shape is not None and len(shape) != 1:
        raise AlignmentError(
            f"{name} has shape {tuple(shape)}, expected one dimension: flatten it, one value a completion"
        )
    numbers = _read(values, name, called)
    wrong = np.flatnonzero(~(np.abs(numbers) <= _LARGEST))
    if len(wrong):
        raise SampleError(
            f"{called(int(wrong[0]))} is {numbers[wrong[0]]}, expected a finite float32 number: repair what gives it"
        )
    return numbers


def _read(values: object, name: str, called: Callable[[int], str]) -> DoubleArray:
    array = flat_array(values, "fiub")
    if array is not None:
        return array.astype(np.float64)
    items = plain_list(values, name)
    if not items:
        raise AlignmentError(f"{name} is empty, expected one number for every completion")
    if set(map(type, items)) <= {float, int, bool}:
        with contextlib.suppress(OverflowError):  # an int that no float holds is refused below, by its place
            return np.array(items, dtype=np.float64)
    return np.array([checked_reward(item, called(index)) for index, item in enumerate(items)])


def flat_array(values: Any, kinds: str) -> AnyArray | None:  # noqa: ANN401 - whatever a caller holds
    """Give an array that is 1-D, of one of numpy's kinds and not empty; None for anything else."""
    array = cast("AnyArray | None", values if isinstance(values, np.ndarray) else None)
    fits = array is not None and array.dtype.kind in kinds and array.ndim == 1 and len(array) > 0
    return array if fits else None


def plain_list(values: Any, name: str) -> list[Any]:  # noqa: ANN401 - whatever a caller holds
    """Give a sequence, an array or a tensor as a list of plain values.

    Raises:
        SampleError: it is no collection of values.
    """
    given: Any = values.tolist() if hasattr(values, "tolist") else values
    if not hasattr(given, "__iter__") or isinstance(given, str | bytes | Mapping):
        raise SampleError(f"{name} is {describe_kind(values)}, expected one value for every completion: pass a list")
    items: list[Any] = list(given)
    if not any(hasattr(kind, "item") for kind in set(map(type, items))):
        return items
    return [value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value for value in items]
