"""Conversations from files and data sets, one row at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from samplekit.chat.formats import Format, check_format, to_messages
from samplekit.errors import FileFormatError, TemplateError
from samplekit.files.tables import Place, Source, check_source, find_rows
from samplekit.sample.kinds import shown

Row: TypeAlias = dict[str, Any]
OnFault: TypeAlias = Callable[[FileFormatError], None]

TOKEN_ROW_KEYS = frozenset({
    "tokens", "loss_mask", "advantages", "logprobs", "reference_logprobs", "routed_experts_key", "source", "info",
})  # fmt: skip
"""What a row of tokens may hold instead of messages: the arrays of `build_sample`, full length and unshifted."""


def read_chats(source: Source, *, format: Format = "auto", on_fault: OnFault | None = None) -> Iterator[Row]:  # noqa: A002
    """Stream conversations as rows with ``messages`` and perhaps ``tools``.

    Every row carries a ``source``: its own, or its place (``path:line``, ``path:row N``, ``rows[N]``).

    Args:
        source: a path, or several: JSON lines (.jsonl, or any other name), a JSON document (.json: a list of rows, or
            an object with one list of them; read whole), both also .gz and .zst, or Parquet (.parquet, streamed). Or a
            ``datasets.Dataset``, or any iterable of mappings.
        format: what the rows are: ``"messages"``, ``"sharegpt"`` (``conversations``), ``"alpaca"`` (``instruction`` and
            ``output``), ``"prompt_completion"``, or ``"auto"``, which recognises each row by its columns.
        on_fault: called with each row's fault instead of raising it; the row is left out. ``faults.append`` keeps them
            in a list. (`SampleBuilder`'s ``on_error`` is about rows that were read and do not build.)

    Returns:
        An iterator of rows, in order. In tables, keys filled with null are absent keys.

    Raises:
        FileFormatError: a row is no conversation (unless on_fault takes it), or a file cannot be read.
        MissingExtraError: a .parquet or .zst file and no package that reads it.
        SampleError: source is neither a path nor rows, or format does not exist.
    """
    return _read(source, format, on_fault, may_hold_tokens=False)


def read_rows(source: Source, *, format: Format = "auto", on_fault: OnFault | None = None) -> Iterator[Row]:  # noqa: A002
    """Stream rows as `read_chats` does, and rows that hold ``tokens`` and ``loss_mask`` instead of messages."""
    return _read(source, format, on_fault, may_hold_tokens=True)


def _read(source: Source, form: Format, on_fault: OnFault | None, *, may_hold_tokens: bool) -> Iterator[Row]:
    check_source(source)  # here, not in the generator: a wrong argument shows where it is passed
    check_format(form)
    return _stream(source, form, on_fault, may_hold_tokens=may_hold_tokens)


def _stream(source: Source, form: Format, on_fault: OnFault | None, *, may_hold_tokens: bool) -> Iterator[Row]:
    for place, found in find_rows(source):
        row = found
        if not isinstance(row, FileFormatError):
            holds_tokens = may_hold_tokens and row.get("tokens") is not None
            row = _token_row(row, place) if holds_tokens else _chat_row(row, form, place)
        if not isinstance(row, FileFormatError):
            yield {**row, "source": row.get("source") or place.name}
        elif on_fault is None:
            if not may_hold_tokens:
                row.add_note("to leave such rows out, pass on_fault= to read_chats")
            raise row
        else:
            on_fault(row)


def _chat_row(row: Mapping[str, Any], form: Format, place: Place) -> Row | FileFormatError:
    try:
        return to_messages(row, form)
    except TemplateError as error:
        return place.fault(error.message.removeprefix("the row "))


def _token_row(row: Mapping[str, Any], place: Place) -> Row | FileFormatError:
    unknown = sorted(set(row) - TOKEN_ROW_KEYS)
    if unknown:
        known = ", ".join(sorted(TOKEN_ROW_KEYS))
        return place.fault(f"holds tokens and also {', '.join(unknown)}, expected only {known}")
    for name in ("tokens", "loss_mask"):
        if not isinstance(row.get(name), list):
            return place.fault(f"has {name} of {shown(row.get(name))}, expected a list with one value for every token")
    info = row.get("info")
    if info is not None and not isinstance(info, dict):
        return place.fault(f"has info of {shown(info)}, expected an object")
    return dict(row)
