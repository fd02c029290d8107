"""Rewards as a caller holds them -> float64 numbers, or an error that names the value."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from samplekit.errors import AlignmentError, SampleError
from samplekit.rollouts.listed import UNREADABLE, listed, refuse_masked
from samplekit.sample.arrays import AnyArray
from samplekit.sample.kinds import shown

DoubleArray: TypeAlias = npt.NDArray[np.float64]

_LARGEST = float(np.finfo(np.float32).max)
_EXACT = 2**53  # below it float64 holds every whole number
_PLAIN = {float, int, bool, np.float64, np.float32}


_REPAIR = "repair the reward function"


def checked_reward(value: Any, name: str, advice: str = _REPAIR) -> float:  # noqa: ANN401 - whatever a function gives
    """Give a reward as a finite float.

    Raises:
        SampleError: it is no number, is not within float32's range, or is a whole number that float64 would round, so
            that it would pass for its neighbour.
    """
    try:
        number = math.nan if _is_no_number(value) else float(value)
    except UNREADABLE:
        number = math.nan
    if not abs(number) <= _LARGEST:
        raise SampleError(f"{name} is {shown(value)}, expected a finite float32 number: {advice}")
    if abs(number) >= _EXACT and number != _exactly(value):
        raise SampleError(
            f"{name} is {shown(value)}, which a float would round to {number:.0f}, expected a whole number of at most "
            "2**53: scale them"
        )
    return number


def finite_numbers(
    values: object,
    name: str,
    place: Callable[[int], str] | None = None,
    *,
    member: str = "completion",
    advice: str = _REPAIR,
) -> DoubleArray:
    """Read numbers as float64, (N,), no whole one rounded on the way.

    Args:
        values: a list, an array or a tensor of numbers or bools.
        name: what they are called in errors.
        place: names value i in errors; ``name[i]`` without it.
        member: what each of them belongs to.
        advice: what to do about one that is no finite number.

    Raises:
        AlignmentError: there is none, or more than one dimension.
        SampleError: they are no ordered collection, or one is refused by `checked_reward`.
    """
    called = place or f"{name}[{{}}]".format
    shape = getattr(values, "shape", None)
    if isinstance(shape, tuple) and len(cast("Any", shape)) != 1:
        raise AlignmentError(
            f"{name} has shape {tuple(cast('Any', shape))}, expected one dimension: flatten it, one value a {member}"
        )
    refuse_masked(values, name)
    array = flat_array(values, "fiub")
    given: AnyArray | list[Any] = listed(values, name, f"one value for every {member}") if array is None else array
    if len(given) == 0:
        raise AlignmentError(f"{name} is empty, expected one number for every {member}")
    if array is not None or set(map(type, given)) <= _PLAIN:
        with contextlib.suppress(OverflowError):  # an int that no float holds is refused below, by its place
            numbers = np.array(given, dtype=np.float64)
            if (np.abs(numbers) < _EXACT).all():
                return numbers
    items = given if isinstance(given, list) else cast("list[Any]", given.tolist())
    return np.array([checked_reward(item, called(index), advice) for index, item in enumerate(items)])


def flat_array(values: Any, kinds: str) -> AnyArray | None:  # noqa: ANN401 - whatever a caller holds
    """Give an array that is 1-D, of one of numpy's kinds and not empty; None for anything else."""
    array = cast("AnyArray | None", values if isinstance(values, np.ndarray) else None)
    fits = array is not None and array.dtype.kind in kinds and array.ndim == 1 and len(array) > 0
    return array if fits else None


def _is_no_number(value: Any) -> bool:  # noqa: ANN401 - as above
    """Tell text, which float would parse, and arrays, of which it would take the only or a hidden value."""
    array = isinstance(value, np.ndarray) and (cast("AnyArray", value).ndim > 0 or np.ma.is_masked(cast("Any", value)))
    return array or isinstance(value, str | bytes | bytearray)


def _exactly(value: Any) -> Any:  # noqa: ANN401 - as above
    """Give a whole number as an int, which compares with a float without rounding; anything else as it is."""
    try:
        return operator.index(value)
    except TypeError:
        return value
