"""What must stand in a render: earlier texts and tool results in the prompt, the reply in the completion.

The prefix check cannot see what a template drops from both renders alike; looking for the texts can. A text counts as
rendered when it stands there as it is, stripped, or escaped as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import permutations

from samplekit.chat.messages import Message
from samplekit.chat.refusals import refuse
from samplekit.chat.render import ToolDict
from samplekit.errors import TemplateError

_DROPPED = {"system": "system_message_dropped", "developer": "system_message_dropped", "tool": "tool_result_dropped"}


class PromptAccount:
    """Check growing prompts of one conversation; what an earlier prompt already showed is not looked for again.

    Args:
        messages: the conversation.
        template: the template's name, for errors.
    """

    def __init__(self, messages: Sequence[Message], template: str) -> None:
        self._messages = messages
        self._template = template
        self._seen = ""
        self._end = 0
        self._count = 0

    def check(self, prompt: str, count: int, tools: Sequence[ToolDict] | None) -> None:
        """Check that the first ``count`` messages and the tools stand in a prompt.

        Raises:
            TemplateError: ``system_message_dropped``, ``content_dropped``, ``tool_result_dropped``,
                ``tool_calls_dropped`` or ``tools_ignored``.
        """
        known = prompt.startswith(self._seen)
        end, done = (self._end, self._count) if known else (0, 0)
        if done == 0:
            self._check_tools(prompt, tools)
        for index in range(done, count):
            end = self._check_message(prompt, self._messages[index], end)
        self._seen, self._end, self._count = prompt[:end], end, count

    def _check_message(self, prompt: str, message: Message, start: int) -> int:
        """Look for a message at or after ``start``, then anywhere; give where it ends."""
        end = _find(prompt, message.text, start) if message.text else start
        if end < 0 and _find(prompt, message.text, 0) < 0:
            raise dropped(message, self._template)
        for name in message.calls:
            if name not in prompt:
                raise self._refuse("tool_calls_dropped", f"the call of {name!r} is not in the prompt", message.index)
        return max(start, end)

    def _check_tools(self, prompt: str, tools: Sequence[ToolDict] | None) -> None:
        for tool in tools or ():
            function = tool.get("function", tool)
            name = function.get("name") if isinstance(function, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            if isinstance(name, str) and name not in prompt:
                raise refuse("tools_ignored", f"the tool {name!r} is not in the prompt", template=self._template)

    def _refuse(self, code: str, found: str, index: int) -> TemplateError:
        return refuse(code, found, index=index, template=self._template)


def dropped(message: Message, template: str) -> TemplateError:
    """Make the error of a text that the template does not render."""
    code = _DROPPED.get(message.role, "content_dropped")
    found = f"the template does not render the {message.role} text"
    return refuse(code, found, index=message.index, template=template)


def check_reply(reply: Message, completion: str, template: str) -> None:
    """Check that a reply's reasoning, text and calls stand in its completion.

    Raises:
        TemplateError: ``reasoning_dropped_by_template``, ``content_dropped`` or ``tool_calls_dropped``.
    """
    for text, code, what in (
        (reply.reasoning, "reasoning_dropped_by_template", "reasoning"),
        (reply.text, "content_dropped", "text"),
    ):
        if text and _find(completion, text, 0) < 0:
            raise refuse(
                code, f"the reply's {what} does not stand in what would train", index=reply.index, template=template
            )
    for name in reply.calls:
        if name not in completion:
            raise refuse("tool_calls_dropped", f"the call of {name!r} is dropped", index=reply.index, template=template)


def reply_end(reply: Message, completion: str) -> int:
    """Find where a reply's own text, reasoning and calls end, in characters of the completion.

    Each part is looked for after the one before it, in the order that fits, so that a text repeated inside the
    reasoning does not end the reply too early.
    """
    parts = [part for part in (reply.reasoning, reply.text, *reply.calls[-1:]) if part.strip()]
    for order in permutations(parts):
        end = 0
        for part in order:
            end = _find(completion, part, end)
            if end < 0:
                break
        if end >= 0:
            return end
    return max((_find(completion, part, 0) for part in parts), default=0)


def _find(text: str, wanted: str, start: int) -> int:
    """Give where a wanted text ends in a render, at or after a place; -1 where it is missing."""
    for spelled in _spellings(wanted):
        place = text.find(spelled, start)
        if place >= 0:
            return place + len(spelled)
    return -1


def _spellings(wanted: str) -> Iterator[str]:
    yield wanted
    stripped = wanted.strip()
    yield stripped
    for ascii_only in (False, True):
        yield json.dumps(stripped, ensure_ascii=ascii_only)[1:-1]
    yield from _as_json(stripped)


def _as_json(text: str) -> Iterator[str]:
    """Spell a tool result that is JSON as templates print it once parsed."""
    if text[:1] not in ("{", "["):
        return
    try:
        value = json.loads(text)
    except ValueError:
        return
    for separators in (None, (",", ":")):
        yield json.dumps(value, ensure_ascii=False, separators=separators)
    yield str(value)
