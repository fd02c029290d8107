"""What an unknown value is, told so that type checkers follow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard, cast

import numpy as np

_LONGEST_SHOWN = 60
LOGPROB_LIMIT = 0.001  # a log probability is 0 at most; a sampler's rounding may print a hair above it


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Tell whether a value maps names to values, as JSON objects do."""
    return isinstance(value, Mapping)


def is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    """Tell whether a value is an ordered collection; text is one value here."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)


def is_group_id(value: object) -> TypeGuard[str | int]:
    """Tell whether a value can name a group: text, or a whole number that JSON's readers hold (64 bits)."""
    return isinstance(value, str) or (is_whole_number(value) and -(2**63) <= value < 2**63)


def is_whole_number(value: object) -> TypeGuard[int]:
    """Tell whether a value is an int of Python or numpy; a bool is none, nor is 2.0, nor a tensor."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether a value is a finite int or float of Python or numpy; a bool is none, nor is a tensor."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return math.isfinite(cast("float", value))
    except OverflowError:  # an int that no float holds
        return False


def describe_kind(value: object) -> str:
    """Name a value for an error: itself where it is a number or None, else its type."""
    return shown(value) if value is None or isinstance(value, bool | int | float) else _type_of(value)


def shown(value: Any) -> str:  # noqa: ANN401 - pyright takes a value of unknown kind only so
    """Show a value in an error, cut short."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - an int of thousands of digits, and objects that cannot be shown
        return _type_of(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


def _type_of(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
