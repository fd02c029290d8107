"""The columns of a row: read with their kind checked, refused with what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypeGuard, cast

from samplekit.chat.refusals import refuse
from samplekit.errors import TemplateError
from samplekit.sample.kinds import shown

MessageDict: TypeAlias = dict[str, Any]
RowView: TypeAlias = Mapping[str, Any]


def row_error(found: str, hint: str | None = None) -> TemplateError:
    """Make the error of a row that is no conversation: what it holds or is, and what to do."""
    return refuse("invalid_format", f"the row {found}", hint=hint)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Say whether a value is a list, of anything."""
    return isinstance(value, list)


def listed(value: object) -> list[Any] | None:
    """Give a list, a tuple or an array as a list, and None for anything else."""
    if is_list(value):
        return value
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        return None
    return list(cast("Iterable[Any]", value))


def without_filled_nulls(value: Any, feature: object = None) -> Any:  # noqa: ANN401 - any value of a table
    """Copy a value of a table without the keys that hold null.

    Every object of a column has the same keys there, null where it had none; items of lists stay. JSON text stays as
    it is, and so do columns that the data set's features declare as JSON.
    """
    if type(feature).__name__ == "Json":
        return value
    if hasattr(value, "tolist"):  # an array, as tables of numpy hold lists
        value = value.tolist()
    if isinstance(value, dict):
        known = cast("MessageDict", feature) if isinstance(feature, dict) else {}
        return {
            key: without_filled_nulls(inner, known.get(key))
            for key, inner in cast("MessageDict", value).items()
            if inner is not None
        }
    if is_list(value) and any(isinstance(item, dict | list) for item in value):
        return [without_filled_nulls(item, getattr(feature, "feature", None)) for item in value]
    return cast("Any", value)


def rows_of(columns: Any) -> list[MessageDict]:  # noqa: ANN401 - a mapping, a DataFrame or an arrow table
    """Give the rows of a table, without the keys that it fills with null.

    Raises:
        TemplateError: code ``invalid_format``: it has no columns, or they differ in length.
    """
    found = columns.to_pydict() if hasattr(columns, "to_pydict") else columns
    if not hasattr(found, "keys") or not hasattr(found, "__getitem__"):
        hint = "pass a dict of lists, a DataFrame or an arrow table"
        raise refuse("invalid_format", f"the columns are {shown(columns)}, expected a table", hint=hint)
    lists = {str(name): _column(str(name), found[name]) for name in found.keys()}  # noqa: SIM118 - a DataFrame's
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} holds {length}" for name, length in lengths.items())
        raise refuse("invalid_format", f"the columns differ in length: {found}", hint="give each one entry a row")
    return [without_filled_nulls(dict(zip(lists, values, strict=True))) for values in zip(*lists.values(), strict=True)]


def _column(name: str, value: Any) -> list[Any]:  # noqa: ANN401 - a list, an array or a series
    values = listed(value)
    if values is None:
        raise refuse("invalid_format", f"the column {name} is {shown(value)}, expected a list", hint="give lists")
    return [None if isinstance(item, float) and item != item else item for item in values]  # NaN: pandas' null


def filled_list(row: RowView, column: str) -> list[Any]:
    """Read a column that holds messages.

    Raises:
        TemplateError: code ``invalid_format``: it is no list, or an empty one.
    """
    items = listed(row[column])
    if not items:
        raise row_error(f"has {column} of {shown(row[column])}, expected a list of at least one message")
    return items


def check_messages(items: list[Any], column: str) -> list[MessageDict]:
    """Hold every item to being a mapping with a role; what else it holds is the chat template's concern.

    Raises:
        TemplateError: code ``invalid_format``, naming the item.
    """
    for place, item in enumerate(items):
        if not isinstance(item, Mapping) or not isinstance(cast("RowView", item).get("role"), str):
            raise refuse("invalid_format", f"{column}[{place}] is {shown(item)}, expected an object with a role")
    return items


def text(row: RowView, column: str) -> str:
    """Read a column that holds a text.

    Raises:
        TemplateError: code ``invalid_format``.
    """
    value = row[column]
    if not isinstance(value, str):
        raise row_error(f"has {column} of {shown(value)}, expected a text")
    return value


def optional_text(row: RowView, column: str) -> str:
    """Read a column that may be absent, null or blank, which are all no text.

    Raises:
        TemplateError: code ``invalid_format``.
    """
    found = "" if row.get(column) is None else text(row, column)
    return found if found.strip() else ""
