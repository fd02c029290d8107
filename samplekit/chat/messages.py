"""A caller's messages -> a copy that the template can read, and what the checks need to know about each.

The caller's lists are never changed. Keys filled with null by columnar storage are absent keys; nulls inside tool
arguments and schemas are values and stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, cast

import numpy as np

from samplekit.chat.control import ControlGuard
from samplekit.chat.refusals import refuse
from samplekit.chat.render import MessageDict, ToolDict
from samplekit.chat.shape import TemplateShape
from samplekit.chat.thoughts import split_thought
from samplekit.chat.tool_calls import read_tool_calls, tool_call_names
from samplekit.sample.kinds import shown

REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_OURS = ("weight", "train", "finish_reason")
_LARGEST_WEIGHT = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Message:
    """One message as the template reads it, and as the checks account for it.

    Attributes:
        view: the mapping handed to the template.
        index: its place in what the caller passed.
        role: its role.
        text: its content without inline reasoning.
        reasoning: its reasoning, from a field or from inline tags.
        calls: the names of its tool calls.
        weight: how much its tokens train; 0.0 for messages that never train.
        cut_short: whether the reply was cut by length, so that no stop follows.
    """

    view: MessageDict
    index: int
    role: str
    text: str
    reasoning: str = ""
    calls: tuple[str, ...] = ()
    weight: float = 0.0
    cut_short: bool = False


@dataclass(frozen=True, slots=True)
class Conversation:
    """Normalised messages and tools; ``views`` is what templates are given."""

    messages: list[Message]
    tools: list[ToolDict] | None
    views: list[MessageDict] = field(default_factory=list[MessageDict])

    @classmethod
    def of(cls, messages: list[Message], tools: list[ToolDict] | None) -> Conversation:
        """Build a conversation with its views."""
        return cls(messages, tools, [message.view for message in messages])


def read_conversation(messages: object, tools: object, shape: TemplateShape, guard: ControlGuard) -> Conversation:
    """Normalise a copy of a conversation.

    Args:
        messages: a sequence of mappings with ``role`` and ``content``.
        tools: a sequence of JSON schemas (or JSON text of one), or None.
        shape: what the template wants.
        guard: refuses control tokens in what people wrote, or stands in for them.

    Raises:
        TemplateError: ``invalid_message`` or ``control_token_in_content``, naming the message.
    """
    if isinstance(messages, str | bytes | Mapping) or not hasattr(messages, "__iter__"):
        raise refuse("invalid_message", f"messages is {_kind(messages)}, expected a list of messages")
    rows = list(cast("Sequence[Any]", messages))
    if not rows:
        raise refuse("invalid_message", "messages is empty, expected at least one message")
    index: int | None = None
    try:
        known = guard.clean(read_tools(tools), "tools", None)
        read: list[Message] = []
        for index, row in enumerate(rows):
            read.append(_read_message(row, index, shape, guard))
    except RecursionError as error:
        what = "tools hold themselves" if index is None else "holds itself"
        raise refuse("invalid_message", f"{what}, or nests too deeply", index=index) from error
    return Conversation.of(read, known)


def read_tools(tools: object) -> list[ToolDict] | None:
    """Normalise a tools column: JSON text is parsed, an empty list is no tools.

    Raises:
        TemplateError: code ``invalid_message``, naming the tool.
    """
    if isinstance(tools, str):
        try:
            tools = json.loads(tools) if tools.strip() else None
        except ValueError as error:
            raise refuse("invalid_message", f"tools is not JSON ({error})", hint="pass a list of schemas") from error
    if tools is None:
        return None
    if isinstance(tools, Mapping | bytes | str) or not hasattr(tools, "__iter__"):
        raise refuse("invalid_message", f"tools is {_kind(tools)}, expected a list of JSON schemas")
    return [_read_tool(tool, index) for index, tool in enumerate(cast("Sequence[Any]", tools))] or None


def _read_tool(tool: object, index: int) -> ToolDict:
    if isinstance(tool, str):
        try:
            tool = json.loads(tool)
        except ValueError as error:
            raise refuse("invalid_message", f"tools[{index}] is not JSON ({error})", hint="pass a schema") from error
    if not isinstance(tool, Mapping):
        raise refuse("invalid_message", f"tools[{index}] is {_kind(tool)}, expected a JSON schema as a mapping")
    known = _without_nulls(cast("Mapping[str, Any]", tool))
    if isinstance(known.get("function"), Mapping):
        known["function"] = _without_nulls(known["function"])
    return known


def _read_message(row: object, index: int, shape: TemplateShape, guard: ControlGuard) -> Message:
    if not isinstance(row, Mapping):
        raise refuse("invalid_message", f"is {_kind(row)}, expected a mapping with role and content", index=index)
    view = _without_nulls(cast("Mapping[str, Any]", row))
    role = view.get("role")
    if len(view) == 2 and type(view.get("content")) is str and not shape.wants_parts:
        if role in ("user", "system"):
            view = guard.clean_message(view, index)
            return Message(view, index, role, view["content"])
        if role == "assistant":
            view = guard.clean_message(view, index)
            thought, text = split_thought(view["content"])
            return Message(view, index, role, text, thought, weight=1.0)
    if not isinstance(role, str) or not role:
        raise refuse("invalid_message", f"role is {role!r}, expected a text such as 'user'", index=index)
    if role == "assistant" and "function_call" in view:
        what = "function_call is the older form of a call, which templates do not read"
        raise refuse("invalid_message", what, index=index, hint="use tool_calls")
    weight = _read_weight(view, index)
    cut_short = view.get("finish_reason") == "length"
    for key in _OURS:
        view.pop(key, None)
    read_tool_calls(view, index, shape)
    reasoning_key = _place_reasoning(view, index, shape)
    if "content" not in view:
        says_else = role == "assistant" and (reasoning_key is not None or "tool_calls" in view)
        _check_spoken(cast("Mapping[str, Any]", row), index, says_else=says_else)
    view["content"] = _read_content(view.get("content", ""), index)
    view = guard.clean_message(view, index)
    content: str = view["content"]
    if shape.wants_parts:
        view["content"] = [{"type": "text", "text": content}]
    if role != "assistant":
        return Message(view, index, role, content)
    thought, text = split_thought(content)
    reasoning = view[reasoning_key] if reasoning_key else thought
    return Message(view, index, role, text, reasoning, tool_call_names(view), weight, cut_short)


def _check_spoken(row: Mapping[str, Any], index: int, *, says_else: bool) -> None:
    """Refuse a message without content that says nothing else either: it would stand there, or train, as empty."""
    if says_else:
        return
    found = ", ".join(f"{key} (null)" if value is None else str(key) for key, value in row.items())
    raise refuse(
        "invalid_message",
        f"has no content, its keys are {found}",
        index=index,
        hint="put its text under 'content', or \"\" where it is meant to be empty",
    )


def _read_content(content: object, index: int) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping | bytes) or not hasattr(content, "__iter__"):
        raise refuse("invalid_message", f"content is {_kind(content)}, expected a text", index=index)
    return "".join(_read_part(part, position, index) for position, part in enumerate(cast("Sequence[Any]", content)))


def _read_part(part: object, position: int, index: int) -> str:
    if isinstance(part, str):
        return part
    kind: object = _kind(part)
    if isinstance(part, Mapping):
        fields = cast("Mapping[str, Any]", part)
        kind = fields.get("type", "text")
        text = fields.get("text")
        if kind == "text" and isinstance(text, str):
            return text
        if kind == "text":
            found = f"content part {position} has {_kind(text)} for its text, expected a text"
            raise refuse("invalid_message", found, index=index, hint="write the text, or remove the part")
    raise refuse(
        "invalid_message",
        f"content part {position} is {kind}, expected a text part",
        index=index,
        hint="only text can become tokens here: remove the part",
    )


def _place_reasoning(view: MessageDict, index: int, shape: TemplateShape) -> str | None:
    """Move the reasoning to the key this template reads, and give that key; None where there is no reasoning."""
    given = [key for key in REASONING_KEYS if key in view]
    if not given:
        return None
    texts = {key: view.pop(key) for key in given}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise refuse("invalid_message", f"{key} is {_kind(text)}, expected a text", index=index)
    if len({text for text in texts.values() if text}) > 1:
        raise refuse("invalid_message", f"{' and '.join(given)} hold different texts, expected one", index=index)
    reasoning = max(texts.values(), key=len)
    if not reasoning.strip():
        return None
    place = next((key for key in given if key in shape.reasoning_keys), shape.reasoning_key or given[0])
    view[place] = reasoning
    return place


def _read_weight(view: MessageDict, index: int) -> float:
    weight, train = view.get("weight", 1), view.get("train", True)
    if not isinstance(train, bool):
        raise refuse("invalid_message", f"train is {train!r}, expected true or false", index=index)
    number = _as_float(weight)
    if not 0 <= number <= _LARGEST_WEIGHT:
        raise refuse("invalid_message", f"weight is {shown(weight)}, expected a number of 0 or more", index=index)
    return number if train else 0.0


def _as_float(value: object) -> float:
    """Give a number of Python or numpy, and NaN for anything else and for what is too large to train with."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return float("nan")
    try:
        return float(value)
    except OverflowError:
        return float("nan")


def _without_nulls(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if value is not None}


def _kind(value: Any) -> str:  # noqa: ANN401 - anything a caller may pass
    return "None" if value is None else f"a {type(value).__name__}"
