"""What an unknown value is, told so that type checkers follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Tell whether a value maps names to values, as JSON objects do."""
    return isinstance(value, Mapping)


def is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    """Tell whether a value is an ordered collection; text is one value here."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)


def describe_kind(value: object) -> str:
    """Name a value for an error: itself where it is short, else its type."""
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
