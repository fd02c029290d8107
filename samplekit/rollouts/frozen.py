"""Frozen records that hold arrays, and stay read-only however they are copied."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from samplekit.errors import SampleError
from samplekit.sample.arrays import freeze
from samplekit.sample.kinds import describe_kind, is_hashable

Item = TypeVar("Item")


def rebuild(kind: type[Any], fields: dict[str, Any]) -> Any:  # noqa: ANN401 - any of the records here
    """Recreate one from its fields, as pickle and copy ask: numpy's own copies of its arrays could be written to."""
    made = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, freeze(value) if isinstance(value, np.ndarray) else value)  # pyright: ignore[reportUnknownArgumentType]
    return made


def several(values: object, kind: type[Item], name: str) -> tuple[Item, ...]:
    """Read one or more items of one kind.

    Raises:
        SampleError: values is no collection, is empty, or holds something else; the message names its index.
    """
    if not isinstance(values, Iterable):
        raise SampleError(f"{name} is {describe_kind(values)}, expected a list of {kind.__name__}")
    kept: tuple[Any, ...] = tuple(values)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    for index, item in enumerate(kept):
        if not isinstance(item, kind):
            raise SampleError(f"{name}[{index}] is {describe_kind(item)}, expected a {kind.__name__}")
    if not kept:
        raise SampleError(f"{name} is empty, expected at least one {kind.__name__}")
    return kept


def refuse_no_id(value: object, name: str) -> None:
    """Refuse what cannot name a group.

    Raises:
        SampleError: it is not hashable.
    """
    if not is_hashable(value):
        raise SampleError(f"{name} is {value!r:.80}, which cannot be compared: use text")
