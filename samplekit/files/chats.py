"""Conversations from files, one row a line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeGuard, cast

from samplekit.errors import FileFormatError
from samplekit.files.lines import read_objects

Row: TypeAlias = dict[str, Any]

TOKEN_ROW_KEYS = frozenset({
    "tokens", "loss_mask", "advantages", "logprobs", "reference_logprobs", "routed_experts_key", "source", "info",
})  # fmt: skip
"""What a row of tokens may hold instead of messages: the arrays of `build_sample`, full length and unshifted."""


def read_chats(
    source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    on_fault: Callable[[FileFormatError], None] | None = None,
) -> Iterator[Row]:
    """Stream conversations from JSON lines (.jsonl, also .gz and .zst): ``messages`` and perhaps ``tools``.

    Every row carries a ``source``: its own, or ``path:line``.

    Args:
        source: a path, or several.
        on_fault: called with each line's fault instead of raising it; the line is left out.

    Yields:
        Rows, in order.

    Raises:
        FileFormatError: a line is no conversation (unless on_fault takes it), or a file cannot be read.
    """
    yield from _read_rows(source, _chat_fault, on_fault)


def read_rows(
    source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    on_fault: Callable[[FileFormatError], None] | None = None,
) -> Iterator[Row]:
    """Stream rows as `read_chats` does, and rows that hold ``tokens`` and ``loss_mask`` instead of messages."""
    yield from _read_rows(source, _row_fault, on_fault)


def _read_rows(
    source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    fault_of: Callable[[Mapping[str, Any]], str | None],
    on_fault: Callable[[FileFormatError], None] | None,
) -> Iterator[Row]:
    paths = [source] if isinstance(source, str | os.PathLike) else source
    for path in paths:
        name = os.fspath(path)
        for number, found in read_objects(name):
            fault = found if isinstance(found, FileFormatError) else _located(name, number, fault_of(found))
            if fault is None and not isinstance(found, FileFormatError):
                yield {**found, "source": found.get("source") or f"{name}:{number}"}
            elif fault is not None and on_fault is not None:
                on_fault(fault)
            elif fault is not None:
                raise fault


def _located(name: str, number: int, what: str | None) -> FileFormatError | None:
    return None if what is None else FileFormatError(f"{name}:{number} {what}", path=name, line=number)


def _row_fault(row: Mapping[str, Any]) -> str | None:
    if "tokens" not in row:
        return _chat_fault(row)
    unknown = sorted(set(row) - TOKEN_ROW_KEYS)
    if unknown:
        return f"holds tokens and also {', '.join(unknown)}, expected only {', '.join(sorted(TOKEN_ROW_KEYS))}"
    for name in ("tokens", "loss_mask"):
        if not _is_list(row.get(name)):
            return f"has {name} of {_short(row.get(name))}, expected a list with one value for every token"
    info = row.get("info")
    return None if info is None or isinstance(info, dict) else f"has info of {_short(info)}, expected an object"


def _chat_fault(row: Mapping[str, Any]) -> str | None:
    """Say what keeps a row from being a conversation; what its messages hold is the chat template's concern."""
    messages, tools = row.get("messages"), row.get("tools")
    if "messages" not in row:
        return f"holds no 'messages' (found {', '.join(sorted(row)) or 'nothing'}), expected a list of messages"
    if not _is_list(messages) or not messages:
        return f"has messages of {_short(messages)}, expected a list of at least one message"
    if tools is not None and not _is_list(tools):
        return f"has tools of {_short(tools)}, expected a list of function definitions"
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(cast("Row", message).get("role"), str):
            return f"messages[{index}] is {_short(message)}, expected an object with a role"
    return None


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _short(value: Any) -> str:  # noqa: ANN401 - any JSON
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
