"""Several things in the order of the completions they belong to, or an error that says why they are none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar, cast

import numpy as np

from samplekit.errors import SampleError
from samplekit.sample.kinds import describe_kind

Item = TypeVar("Item")

UNREADABLE = (TypeError, ValueError, OverflowError, RuntimeError)  # what tensors and arrays without plain values raise


def listed(values: Any, name: str, wanted: str) -> list[Any]:  # noqa: ANN401 - whatever a caller holds
    """Give an ordered collection as a list; arrays and tensors as plain values.

    Args:
        values: a list, an array, a tensor or an iterator.
        name: what they are called in errors.
        wanted: what is expected, such as ``"one value for every completion"``.

    Raises:
        SampleError: values is no collection, is text, holds a masked value, or (a set, a mapping) has an order of its
            own, which is not that of what its values would belong to.
    """
    given: Any = values  # of no type that a checker could narrow
    if isinstance(values, Mapping | AbstractSet):
        raise SampleError(
            f"{name} is {describe_kind(given)}, which has no order to go by, expected {wanted}: pass a list"
        )
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | bytearray | memoryview):
        advice = "pass its .result()" if callable(getattr(given, "result", None)) else "pass a list"
        raise SampleError(f"{name} is {describe_kind(given)}, expected {wanted}: {advice}")
    refuse_masked(values, name)
    if not hasattr(given, "tolist"):
        return list(given)
    try:
        return list(given.tolist())
    except UNREADABLE as error:
        raise SampleError(
            f"{name} is {describe_kind(given)} that cannot be read ({error}), expected {wanted}: pass a list"
        ) from error


def refuse_masked(values: Any, name: str) -> None:  # noqa: ANN401 - as above
    """Refuse a masked array that hides a value: it would come back as a number.

    Raises:
        SampleError: naming the first hidden value.
    """
    if np.ma.is_masked(values):
        index = int(np.flatnonzero(cast("Any", np.ma.getmask(values)))[0])
        raise SampleError(f"{name} holds a masked value at index {index}, expected a number: fill it in")


def several(values: object, kind: type[Item], name: str) -> list[Item]:
    """Read items of one kind, of which there may be none.

    Raises:
        SampleError: values is no ordered collection, or holds something else; the message names its index.
    """
    if isinstance(values, kind):  # some are collections themselves
        raise SampleError(f"{name} is {describe_kind(values)}, expected a list of {kind.__name__}: put it in one")
    items = listed(values, name, f"a list of {kind.__name__}")
    for index, item in enumerate(items):
        if not isinstance(item, kind):
            raise SampleError(f"{name}[{index}] is {describe_kind(item)}, expected a {kind.__name__}")
    return items


def one_or_more(values: object, kind: type[Item], name: str) -> tuple[Item, ...]:
    """Read one or more items of one kind.

    Raises:
        SampleError: as `several`, or there is none.
    """
    items = several(values, kind, name)
    if not items:
        raise SampleError(f"{name} is empty, expected at least one {kind.__name__}")
    return tuple(items)
