"""Tool calls in the form a template reads: arguments as an object, or as JSON text where it wants that."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from samplekit.chat.refusals import refuse
from samplekit.chat.render import MessageDict
from samplekit.chat.shape import TemplateShape


def read_tool_calls(view: MessageDict, index: int, shape: TemplateShape) -> None:
    """Normalise ``view["tool_calls"]`` in place (the view is a copy); no calls is no key.

    Raises:
        TemplateError: code ``invalid_message``, naming the message and the call.
    """
    raw = view.pop("tool_calls", None)
    if raw is None:
        return
    if isinstance(raw, str):
        raw = _parse(raw, "tool_calls", index)
    if isinstance(raw, Mapping) or not hasattr(raw, "__iter__"):
        raise refuse("invalid_message", f"tool_calls is {_kind(raw)}, expected a list of calls", index=index)
    calls = [_read_call(call, place, index, shape) for place, call in enumerate(cast("Sequence[Any]", raw))]
    if calls:
        view["tool_calls"] = calls


def tool_call_names(view: MessageDict) -> tuple[str, ...]:
    """List the names of a normalised view's calls, in order."""
    return tuple(call.get("function", call)["name"] for call in view.get("tool_calls", ()))


def _read_call(call: object, place: int, index: int, shape: TemplateShape) -> dict[str, Any]:
    where = f"tool call {place}"
    if not isinstance(call, Mapping):
        raise refuse("invalid_message", f"{where} is {_kind(call)}, expected a mapping", index=index)
    known = _without_nulls(cast("Mapping[str, Any]", call))
    function = known.get("function", known)
    if not isinstance(function, Mapping):
        raise refuse("invalid_message", f"{where} has no function to call", index=index)
    inner = _without_nulls(cast("Mapping[str, Any]", function))
    if not isinstance(inner.get("name"), str) or not inner["name"]:
        raise refuse("invalid_message", f"{where} has no name", index=index)
    inner["arguments"] = _read_arguments(inner.get("arguments"), where, index, as_text=shape.arguments_as_text)
    return {**known, "function": inner} if "function" in known else inner


def _read_arguments(arguments: object, where: str, index: int, *, as_text: bool) -> object:
    given = arguments
    if isinstance(arguments, str):
        arguments = _parse(arguments, f"the arguments of {where}", index) if arguments.strip() else {}
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        raise refuse(
            "invalid_message",
            f"the arguments of {where} are {_kind(arguments)}, expected a JSON object",
            index=index,
        )
    plain = dict(cast("Mapping[str, Any]", arguments))
    if not as_text:
        return plain
    return given if isinstance(given, str) and given.strip() else json.dumps(plain, ensure_ascii=False)


def _parse(text: str, what: str, index: int) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(text)
    except ValueError as error:
        raise refuse("invalid_message", f"{what} is not JSON ({error})", index=index) from error


def _kind(value: Any) -> str:  # noqa: ANN401 - anything a caller may pass
    return f"a {type(value).__name__}"


def _without_nulls(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if value is not None}
