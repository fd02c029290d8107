"""What a template wants, found by rendering sentinels: parts or text, arguments as object or text, a system slot."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

USER, REPLY, SYSTEM, CALL, VALUE = "Uqsentinel", "Rqsentinel", "Sqsentinel", "cqsentinel", "Vqsentinel"
Probe = Callable[..., "str | None"]


class TemplateShape:
    """Answer each question with one probe, once.

    Args:
        source: the template's text.
        probe: renders messages (and tools), or answers None where the template refuses.
    """

    def __init__(self, source: str, probe: Probe) -> None:
        self._source = source
        self.probe = probe

    @cached_property
    def wants_parts(self) -> bool:
        """Whether only content given as a list of parts is rendered."""
        plain = self.probe([_user(USER)], reply_follows=True)
        if plain is not None and USER in plain:
            return False
        parts = self.probe([_user([{"type": "text", "text": USER}])], reply_follows=True)
        return parts is not None and USER in parts and not _prints_a_part(parts)

    @cached_property
    def arguments_as_text(self) -> bool:
        """Whether tool-call arguments must be JSON text; an object unless that fails or prints as Python."""
        as_object = self.probe([_user(self.content(USER)), self.calling({"k": VALUE})])
        if as_object is not None and "{'k'" not in as_object:
            return False
        as_text = self.probe([_user(self.content(USER)), self.calling('{"k": "' + VALUE + '"}')])
        return as_text is not None and VALUE in as_text

    @cached_property
    def has_system_slot(self) -> bool:
        """Whether a leading system message is rendered."""
        system = {"role": "system", "content": self.content(SYSTEM)}
        text = self.probe([system, _user(self.content(USER))], reply_follows=True)
        return text is not None and SYSTEM in text

    @cached_property
    def reasoning_keys(self) -> frozenset[str]:
        """The message keys this template's text reads reasoning from."""
        keys = ("reasoning_content", "reasoning", "thinking")
        return frozenset(key for key in keys if re.search(rf"""(?:\w\.|['"]){key}\b""", self._source))

    @cached_property
    def reasoning_key(self) -> str | None:
        """The first of them, or None."""
        return min(self.reasoning_keys, key=["reasoning_content", "reasoning", "thinking"].index, default=None)

    def content(self, text: str) -> Any:  # noqa: ANN401 - a text or parts
        """Spell a text as this template's content."""
        return [{"type": "text", "text": text}] if self.wants_parts else text

    def calling(self, arguments: object) -> dict[str, Any]:
        """Spell an assistant message with one tool call."""
        call = {"id": "call00000", "type": "function", "function": {"name": CALL, "arguments": arguments}}
        return {"role": "assistant", "content": self.content(""), "tool_calls": [call]}


def _user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _prints_a_part(text: str) -> bool:
    """Tell whether a render shows a part as Python or JSON spells it: the template took the list for a text."""
    return f"'text': '{USER}" in text or f'"text": "{USER}' in text
