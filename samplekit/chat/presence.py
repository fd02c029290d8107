"""Short texts, which a search finds by accident: shown to be rendered by standing sentinels in for them.

A tool result of ``12`` that a template drops is found in "12 degrees" all the same. So once for every arrangement of
roles a conversation is rendered with its short texts replaced by something unique, and all of those must appear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from samplekit.chat.messages import Message
from samplekit.chat.render import ToolDict
from samplekit.chat.shape import TemplateShape

_SHORT = 16


class Presence:
    """Remember, for one template, which arrangements of messages render all their texts.

    Args:
        shape: what the template wants, and its probe.
    """

    def __init__(self, shape: TemplateShape) -> None:
        self._shape = shape
        self._known: dict[tuple[object, ...], int | None] = {}

    def missing(
        self, messages: Sequence[Message], tools: list[ToolDict] | None, kwargs: Mapping[str, Any]
    ) -> Message | None:
        """Find the first message with a short text that this arrangement does not render; None where all are."""
        short = [0 < len(message.text.strip()) <= _SHORT for message in messages]
        if not any(short):
            return None
        arrangement = [(message.role, bool(message.calls), bool(message.reasoning)) for message in messages]
        key = (*arrangement, *short, tools is None, repr(kwargs))
        if key not in self._known:
            self._known[key] = self._probe(messages, short, tools, kwargs)
        place = self._known[key]
        return None if place is None else messages[place]

    def _probe(
        self,
        messages: Sequence[Message],
        short: Sequence[bool],
        tools: list[ToolDict] | None,
        kwargs: Mapping[str, Any],
    ) -> int | None:
        views = [
            {**message.view, "content": self._shape.content(_sentinel(place))} if short[place] else message.view
            for place, message in enumerate(messages)
        ]
        text = self._shape.probe(views, tools=tools, kwargs=kwargs)
        if text is None:  # the template reads what the texts say: the plain search has to do
            return None
        return next((place for place, is_short in enumerate(short) if is_short and _sentinel(place) not in text), None)


def _sentinel(place: int) -> str:
    return f"Pq{place}sentinel"
