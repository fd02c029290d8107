"""Settings of calls, checked before anything is sent or paid: the error names field, value and what was expected."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeGuard

import numpy as np

from samplekit.errors import SampleError
from samplekit.sample import ModelInput, Sample
from samplekit.sample.kinds import describe_kind, is_mapping, is_number, is_whole_number

_LONGEST_SHOWN = 60  # characters
_LONGEST_KEY = 200  # characters
_INT64_MAX = 2**63 - 1  # the service's whole numbers are int64


def whole_number(name: str, value: object, *, least: int | None = None, most: int = _INT64_MAX) -> int:
    """Give a whole number that the service can hold, as an int.

    Args:
        name: what it is called in errors.
        value: an int of Python or numpy.
        least: the smallest it may be; None for no bound but int64's.
        most: the largest it may be.

    Raises:
        SampleError: it is none, or out of range.
    """
    if not is_whole_number(value) or not (-_INT64_MAX if least is None else least) <= value <= most:
        bound = "" if least is None else f" of {least} or more"
        if least is not None and most < _INT64_MAX:
            bound = f" of {least} to {most}"
        raise SampleError(f"{name} is {shown(value)}, expected a whole number{bound} (int64)")
    return int(value)


def number(
    name: str, value: object, *, below: float | None = None, least: float = 0.0, most: float | None = None
) -> float:
    """Give a finite number of 0 or more, as a float.

    Args:
        name: what it is called in errors.
        value: an int or float of Python or numpy.
        below: what it must stay under, where there is such a bound.
        least: the smallest it may be.
        most: the largest it may be; None for no bound.

    Raises:
        SampleError: it is none, or out of range.
    """
    if (
        not is_number(value)
        or value < least
        or (below is not None and value >= below)
        or (most is not None and value > most)
    ):
        bound = "" if below is None else f" and below {below:g}"
        bound += "" if most is None else f" and at most {most:g}"
        raise SampleError(f"{name} is {shown(value)}, expected a finite number of {least:g} or more{bound}")
    return float(value)


def positive(name: str, value: object, *, most: float | None = None) -> float:
    """Give a finite number above 0, as a float.

    Args:
        name: what it is called in errors.
        value: an int or float of Python or numpy.
        most: the largest it may be; None for no bound.

    Raises:
        SampleError: it is none, or out of range.
    """
    if not is_number(value) or value <= 0 or (most is not None and value > most):
        bound = "" if most is None else f" and at most {most:,.0f}"
        raise SampleError(f"{name} is {shown(value)}, expected a finite number above 0{bound}")
    return float(value)


def seconds(name: str, value: object) -> float | None:
    """Give how long to wait, seconds of 0 or more; None for as long as it takes.

    Raises:
        SampleError: it is none.
    """
    if value is None:
        return None
    if not is_number(value) or value < 0:
        raise SampleError(f"{name} is {shown(value)}, expected seconds of 0 or more, or None for as long as it takes")
    return float(value)


def flag(name: str, value: object) -> bool:
    """Give True or False; nothing else is taken for one.

    Raises:
        SampleError: it is neither.
    """
    if not isinstance(value, bool):
        raise SampleError(f"{name} is {shown(value)}, expected True or False")
    return value


def text(name: str, value: object) -> str:
    """Give a string that is not empty.

    Raises:
        SampleError: it is none.
    """
    if not isinstance(value, str) or not value:
        raise SampleError(f"{name} is {shown(value)}, expected a non-empty string")
    return value


def idempotency_key(value: object) -> str:
    """Give a key that a header can carry.

    Raises:
        SampleError: it is none.
    """
    key = text("idempotency_key", value)
    if not (key.isascii() and key.isprintable()) or " " in key or len(key) > _LONGEST_KEY:
        raise SampleError(
            f"idempotency_key is {shown(value)}, expected what an error or an Operation carries: up to {_LONGEST_KEY} "
            "letters, digits and signs"
        )
    return key


def one_of(name: str, value: object, known: Collection[str | None]) -> None:
    """Take one of a few names and nothing else.

    Raises:
        SampleError: it is another.
    """
    if not (value is None or isinstance(value, str)) or value not in known:
        raise SampleError(f"{name} is {shown(value)}, expected one of {', '.join(map(str, known))}")


def several(name: str, values: object, what: str) -> list[Any]:
    """Give the items of a collection as a list; one item on its own is no collection.

    Args:
        name: what it is called in errors.
        values: a list, a tuple, an array, a generator.
        what: what it should hold, in the plural.

    Raises:
        SampleError: it is one item, a mapping, text or nothing to iterate over.
    """
    if not _is_collection(values):
        raise SampleError(f"{name} is {describe_kind(values)}, expected several {what}: pass a list")
    return list(values)


def _is_collection(values: object) -> TypeGuard[Iterable[Any]]:
    if isinstance(values, Sample | ModelInput | str | bytes) or is_mapping(values):
        return False
    dimensions: int = getattr(values, "ndim", 1)  # a 0-d tensor has __iter__, too
    return isinstance(values, Iterable) and dimensions > 0


def shown(value: object) -> str:
    """Give a short value itself, and the kind of any other."""
    short = isinstance(value, str) and len(value) <= _LONGEST_SHOWN
    return repr(value) if short or _is_scalar(value) else describe_kind(value)


def _is_scalar(value: object) -> bool:
    """Tell whether a value is one of numpy's scalars."""
    return isinstance(value, np.generic)
