"""Rows of published data sets -> rows with ``messages``: OpenAI, ShareGPT, Alpaca, prompt and completion.

A format is recognised by columns that stand together; a row that fits two, or none, is refused with the keys it holds.
Null columns count as absent, for that is how tables of several formats fill them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, TypeAlias

from samplekit.chat.columns import (
    MessageDict,
    RowView,
    check_messages,
    filled_list,
    listed,
    optional_text,
    row_error,
    text,
)
from samplekit.chat.refusals import refuse
from samplekit.chat.sharegpt import read_conversations
from samplekit.sample.kinds import shown

Format: TypeAlias = Literal["auto", "messages", "sharegpt", "alpaca", "prompt_completion"]

_PREFERENCE = frozenset({"chosen", "rejected"})
_NO_PAIR = "a sample learns from one reply: keep the better one as messages or prompt and completion, or pass format="


@dataclass(frozen=True, slots=True)
class _RowFormat:
    """One format: the columns that show it, those it reads besides, and its reader."""

    columns: tuple[str, ...]
    optional: tuple[str, ...]
    read: Callable[[RowView], list[MessageDict]]


def to_messages(row: Mapping[str, Any], format: Format = "auto") -> dict[str, Any]:  # noqa: A002 - the word users know
    """Give a row of any known format as a row with ``messages``.

    The caller's row is never changed. Columns that no message is made of stay as they are; those that were read are
    gone, so that doing it twice changes nothing.

    Args:
        row: a mapping with ``messages``, or ``conversations``, or ``instruction`` and ``output``, or ``prompt`` and
            ``completion``; and perhaps ``tools``, a list or JSON text of one.
        format: what the row is; ``"auto"`` recognises it by its columns.

    Returns:
        A new mapping with ``messages``, ``tools`` where there are any, and every other column. In a prompt of messages
        replies are marked ``train: False``, for only the completion trains.

    Raises:
        TemplateError: code ``invalid_format`` with the keys found; ``invalid_option`` for a format that does not exist.
    """
    check_format(format)
    if not isinstance(row, Mapping):
        raise row_error(f"is {shown(row)}, expected a mapping with messages")
    present = {key for key, value in row.items() if value is not None}
    name = _recognise(row, present) if format == "auto" else format
    chosen = _FORMATS[name]
    lacking = [column for column in chosen.columns if column not in present]
    if lacking:
        raise row_error(f"holds no {' and no '.join(lacking)} (found {_keys(row)}), expected format {name!r}")
    made: dict[str, Any] = {"messages": chosen.read(row)}
    tools = _read_tools(row.get("tools"))
    if tools is not None:
        made["tools"] = tools
    rivals = set[str]() if format == "auto" else _rivals(present, name)  # what is recognised has none
    read = {"messages", "tools", *chosen.columns, *chosen.optional, *rivals}
    return {**made, **{key: value for key, value in row.items() if key not in read}}


def check_format(format: str) -> None:  # noqa: A002 - the word users know
    """Refuse a format that does not exist.

    Raises:
        TemplateError: code ``invalid_option``.
    """
    if format not in ("auto", *_FORMATS):
        raise refuse("invalid_option", f"format is {format!r}", hint=f"pass auto, {', '.join(_FORMATS)}")


def is_row(mapping: Mapping[str, Any]) -> bool:
    """Say whether a mapping holds the columns of a known format, or of a preference pair."""
    present = {key for key, value in mapping.items() if value is not None}
    return bool(_fitting(present)) or present >= _PREFERENCE


def _fitting(present: set[str]) -> list[str]:
    return [name for name, known in _FORMATS.items() if present.issuperset(known.columns)]


def _recognise(row: RowView, present: set[str]) -> str:
    if present >= _PREFERENCE:
        raise row_error(f"holds chosen and rejected, a preference pair (found {_keys(row)})", _NO_PAIR)
    fitting = _fitting(present)
    if fitting == ["prompt_completion"] and isinstance(row.get("label"), bool):
        raise row_error(f"holds a completion with a label, a preference (found {_keys(row)})", _NO_PAIR)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise row_error(
            f"fits the formats {' and '.join(fitting)} (found {_keys(row)}), expected one",
            f"pass format={fitting[0]!r} or another, or remove columns",
        )
    raise row_error(
        f"holds no 'messages' (found {_keys(row)}), no conversations, no instruction with output, no prompt with "
        "completion, expected one of these"
    )


def _rivals(present: set[str], name: str) -> set[str]:
    """List the columns by which a row would be taken for another format once more."""
    others = chain.from_iterable(_FORMATS[other].columns for other in _fitting(present) if other != name)
    return {*others, *(_PREFERENCE if present >= _PREFERENCE else ())}


def _keys(row: RowView) -> str:
    names = sorted(str(key) if value is not None else f"{key}: null" for key, value in row.items())
    return ", ".join(names) or "nothing"


def _read_tools(tools: object) -> list[Any] | None:
    given = tools
    if isinstance(tools, str):
        try:
            tools = json.loads(tools) if tools.strip() else None
        except ValueError as error:
            raise row_error(f"has tools of {shown(given)}, expected a list of function definitions") from error
    if tools is None:
        return None
    known = listed(tools)
    if known is None:
        raise row_error(f"has tools of {shown(given)}, expected a list of function definitions")
    return known


def _read_messages(row: RowView) -> list[MessageDict]:
    return check_messages(filled_list(row, "messages"), "messages")


def _read_alpaca(row: RowView) -> list[MessageDict]:
    """Make the turns of an Alpaca row; an input follows its instruction after an empty line."""
    asked = [part for part in (text(row, "instruction"), optional_text(row, "input")) if part]
    if not asked:
        raise row_error("has an empty instruction and no input, expected a text")
    system = optional_text(row, "system")
    pairs = row.get("history")
    return [
        *([{"role": "system", "content": system}] if system else []),
        *(_read_history(pairs) if pairs is not None else []),
        {"role": "user", "content": "\n\n".join(asked)},
        {"role": "assistant", "content": text(row, "output")},
    ]


def _read_history(pairs: object) -> list[MessageDict]:
    rounds = listed(pairs)
    if rounds is None:
        raise row_error(f"has history of {shown(pairs)}, expected a list of pairs")
    messages: list[MessageDict] = []
    for place, pair in enumerate(rounds):
        texts = listed(pair)
        if texts is None or len(texts) != 2 or not all(isinstance(part, str) for part in texts):
            raise row_error(f"has history[{place}] of {shown(pair)}, expected a question and its answer")
        messages += [{"role": "user", "content": texts[0]}, {"role": "assistant", "content": texts[1]}]
    return messages


def _read_prompt_completion(row: RowView) -> list[MessageDict]:
    prompt, completion = row["prompt"], row["completion"]
    if isinstance(prompt, str) and isinstance(completion, str):
        return [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]
    if isinstance(prompt, str) or isinstance(completion, str):
        raise row_error(
            f"has prompt of {shown(prompt)} and completion of {shown(completion)}, expected two texts or two lists",
            "write both as messages",
        )
    asked, answered = (check_messages(filled_list(row, name), name) for name in ("prompt", "completion"))
    return [*map(_as_context, asked), *answered]


def _as_context(message: MessageDict) -> MessageDict:
    """Keep a reply in the prompt from training, unless it says itself what it does."""
    says = message.get("train") is not None or message.get("weight") is not None
    return message if says or message["role"] != "assistant" else {**message, "train": False}


_FORMATS = {
    "messages": _RowFormat(("messages",), (), _read_messages),
    "sharegpt": _RowFormat(("conversations",), ("system",), read_conversations),
    "alpaca": _RowFormat(("instruction", "output"), ("input", "system", "history"), _read_alpaca),
    "prompt_completion": _RowFormat(("prompt", "completion"), (), _read_prompt_completion),
}
