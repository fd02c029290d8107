"""ShareGPT's ``conversations``: who spoke (``from``) and what (``value``), as messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from samplekit.chat.columns import MessageDict, RowView, filled_list, listed, optional_text, row_error
from samplekit.chat.refusals import refuse
from samplekit.errors import TemplateError
from samplekit.sample.kinds import shown

_CALL = "function_call"
_ROLES = {
    **dict.fromkeys(("system",), "system"),
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bing", "bard", "model"), "assistant"),
    **dict.fromkeys(("tool", "function", "observation", "function_response", "tool_response"), "tool"),
    **dict.fromkeys(("function_call", "tool_call"), _CALL),
}
# What an item with a `from` may say besides; anything else (markdown, text, ids) is the data set's own.
_KEPT = (
    "name", "tool_calls", "tool_call_id", "weight", "train", "finish_reason",
    "reasoning_content", "reasoning", "thinking",
)  # fmt: skip


def read_conversations(row: RowView) -> list[MessageDict]:
    """Read ``conversations``, of ShareGPT's items or of messages, and a ``system`` column.

    Raises:
        TemplateError: code ``invalid_format``, naming the item.
    """
    messages = [_read_item(item, place) for place, item in enumerate(filled_list(row, "conversations"))]
    system = optional_text(row, "system")
    if not system:
        return messages
    if messages[0]["role"] != "system":
        return [{"role": "system", "content": system}, *messages]
    if messages[0]["content"] != system:
        raise row_error("holds a system text and conversations begin with another, expected one", "remove one")
    return messages


def _read_item(item: object, place: int) -> MessageDict:
    if not isinstance(item, Mapping):
        raise _item_error(place, f"is {shown(item)}, expected an object with from and value")
    known = {key: value for key, value in cast("RowView", item).items() if value is not None}
    speaker_key = _one_of(known, "from", "role", place)
    text_key = _one_of(known, "value", "content", place)
    speaker = known.get(speaker_key)
    if not isinstance(speaker, str):
        raise _item_error(place, f"is {shown(item)}, expected an object with from and value")
    role = _ROLES.get(speaker.strip().lower(), speaker if speaker_key == "role" else None)
    if role is None:
        raise _item_error(place, f"has from {speaker!r}, expected one of {', '.join(_ROLES)}")
    if text_key not in cast("RowView", item) and "tool_calls" not in known:
        raise _item_error(place, f"is {shown(item)}, expected a {text_key}")
    if role == _CALL:
        said: MessageDict = {"role": "assistant", "content": "", "tool_calls": _read_calls(known.get(text_key), place)}
    else:
        said = {"role": role, "content": known.get(text_key, "")}
    kept = _KEPT if speaker_key == "from" else tuple(known)
    more = {key: known[key] for key in kept if key in known and key not in said}
    more.pop(speaker_key, None)
    more.pop(text_key, None)
    return {**said, **more}


def _one_of(known: RowView, first: str, second: str, place: int) -> str:
    """Give the key that is there, the first where neither is."""
    if first in known and second in known:
        raise _item_error(place, f"has {first} and {second}, expected one of them")
    return second if second in known else first


def _read_calls(value: object, place: int) -> list[dict[str, Any]]:
    found = value
    if isinstance(value, str):
        try:
            found = json.loads(value)
        except ValueError as error:
            raise _item_error(place, f"is a call of {shown(value)}, expected JSON with name and arguments") from error
    calls: list[Any] | None = [found] if isinstance(found, Mapping) else listed(found)
    if not calls:
        raise _item_error(place, f"is a call of {shown(value)}, expected JSON with name and arguments")
    return [_read_call(call, value, place) for call in calls]


def _read_call(call: object, value: object, place: int) -> dict[str, Any]:
    known = cast("dict[str, Any]", call) if isinstance(call, Mapping) else {}
    if isinstance(known.get("function"), Mapping):
        return known
    if not isinstance(known.get("name"), str):
        raise _item_error(place, f"is a call of {shown(value)}, expected JSON with name and arguments")
    return {"type": "function", "function": dict(known)}


def _item_error(place: int, found: str) -> TemplateError:
    return refuse("invalid_format", f"conversations[{place}] {found}")
