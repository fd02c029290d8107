"""What a template writes after the last of a reply: found once per kind of reply with sentinels.

Knowing the closing text exactly is what makes a stop inside the reasoning harmless, and a text repeated anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samplekit.chat.accounting import reply_end
from samplekit.chat.messages import Message
from samplekit.chat.shape import REPLY, USER, VALUE, TemplateShape
from samplekit.chat.stops import StopSet

_THOUGHT = "Tqsentinel"


class Closings:
    """Split completions at their stop.

    Args:
        shape: what the template wants, and its probe.
        stops: the stop set.
    """

    def __init__(self, shape: TemplateShape, stops: StopSet) -> None:
        self._shape = shape
        self._stops = stops
        self._known: dict[tuple[object, ...], str | None] = {}

    def stop_end(self, reply: Message, completion: str, kwargs: Mapping[str, Any]) -> tuple[int, str] | None:
        """Find where the first stop after a reply's own content ends, and its text; None where there is none."""
        closing = self._closing(reply, kwargs)
        found = self._stops.first(closing, 0) if closing is not None else None
        if closing is not None and found is not None:
            end, stop = found
            if completion.endswith(closing[end - len(stop) :]):
                return len(completion) - len(closing) + end, stop
        return self._stops.first(completion, reply_end(reply, completion))

    def content_end(self, reply: Message, completion: str, kwargs: Mapping[str, Any]) -> int:
        """Find where a reply's own content ends."""
        closing = self._closing(reply, kwargs)
        if closing is not None and not reply.calls and completion.endswith(closing):
            return len(completion) - len(closing)
        return reply_end(reply, completion)

    def _closing(self, reply: Message, kwargs: Mapping[str, Any]) -> str | None:
        key = (bool(reply.reasoning), bool(reply.text), bool(reply.calls), repr(kwargs))
        if key not in self._known:
            self._known[key] = self._probe(reply, kwargs)
        return self._known[key]

    def _probe(self, reply: Message, kwargs: Mapping[str, Any]) -> str | None:
        shape = self._shape
        arguments = '{"k": "' + VALUE + '"}' if shape.arguments_as_text else {"k": VALUE}
        message = shape.calling(arguments) if reply.calls else {"role": "assistant"}
        message["content"] = shape.content(REPLY if reply.text else "")
        if reply.reasoning and shape.reasoning_key:
            message[shape.reasoning_key] = _THOUGHT
        last = VALUE if reply.calls else REPLY if reply.text else _THOUGHT
        text = shape.probe([{"role": "user", "content": shape.content(USER)}, message], kwargs=kwargs)
        return text.rpartition(last)[2] if text is not None and last in text else None
