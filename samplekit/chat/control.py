"""Control tokens inside what people wrote: refused with their place, or stood in for so that they encode as text.

A stand-in is a noncharacter, a number and another noncharacter. It passes through the template untouched and is turned
back into the token's text when the piece around it is encoded without that token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from samplekit.chat.cuts import any_of
from samplekit.chat.refusals import refuse
from samplekit.chat.thoughts import is_thinking_token
from samplekit.chat.tokens import AddedToken

OPEN, CLOSE = "\ufdd0", "\ufdd1"
_STAND_IN = re.compile(f"{OPEN}([0-9]+){CLOSE}")
_HEAD = 2  # characters of a token that a text without any token hardly holds
_KEYS_READ = frozenset({"role", "type", "id", "tool_call_id"})


def control_tokens(added: Iterable[AddedToken], written: str) -> list[str]:
    """List the tokens that steer a model: the special ones, and markup that the template itself writes."""
    return [
        token.content
        for token in added
        if token.content.strip() and (token.special or (token.content in written and not token.content.isalnum()))
    ]


class ControlGuard:
    """Look for control tokens in messages and tools.

    Args:
        tokens: texts of control tokens.
        sanitize: stand in for them instead of refusing.
    """

    def __init__(self, tokens: list[str], *, sanitize: bool) -> None:
        self.tokens = tokens
        self._numbers = {token: number for number, token in enumerate(tokens)}
        self._anywhere = any_of(tokens)
        self._in_replies = any_of(token for token in tokens if not is_thinking_token(token))
        self._sanitize = sanitize
        self._heads = {token[:_HEAD] for token in tokens}

    def clean(self, value: Any, where: str, index: int | None, *, reply: bool = False) -> Any:  # noqa: ANN401 - any JSON
        """Give a text, list or mapping without control tokens in it.

        Args:
            value: content, or anything JSON.
            where: what an error calls it.
            index: the message's index, or None.
            reply: an assistant's text may hold thinking tags.

        Raises:
            TemplateError: code ``control_token_in_content``.
        """
        if isinstance(value, str):
            return self._clean_text(value, where, index, self._in_replies if reply else self._anywhere)
        if isinstance(value, list):
            return [self.clean(item, f"{where}[{place}]", index, reply=reply) for place, item in enumerate(value)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if isinstance(value, dict):
            return {
                self.clean(key, f"a key of {where}", index): self.clean(item, f"{where}[{key!r}]", index, reply=reply)
                for key, item in value.items()  # pyright: ignore[reportUnknownVariableType]
            }
        return value

    def clean_message(self, view: dict[str, Any], index: int) -> dict[str, Any]:
        """Give a message's view without control tokens; the same view where there are none."""
        reply = view["role"] == "assistant"
        text = view["content"]
        if len(view) == 2 and isinstance(text, str):
            content = self._clean_text(text, "content", index, self._in_replies if reply else self._anywhere)
            return view if content is text else {**view, "content": content}
        return {
            key: value if key in _KEYS_READ else self.clean(value, key, index, reply=reply)
            for key, value in view.items()
        }

    def restore(self, text: str) -> str:
        """Put the tokens' own text back where stand-ins are."""
        return _STAND_IN.sub(lambda found: self.tokens[int(found[1])], text) if OPEN in text else text

    def _clean_text(self, text: str, where: str, index: int | None, pattern: re.Pattern[str] | None) -> str:
        if not text.isascii():
            _check_encodable(text, where, index)
        if pattern is None or not any(head in text for head in self._heads):
            return text
        found = pattern.search(text)
        if not found:
            return text
        if not self._sanitize:
            place = f"{where} holds the control token {found[0]!r} at character {found.start()}"
            raise refuse("control_token_in_content", place, index=index)
        return pattern.sub(lambda token: f"{OPEN}{self._numbers[token[0]]}{CLOSE}", text)


def _check_encodable(text: str, where: str, index: int | None) -> None:
    if OPEN in text or CLOSE in text:
        raise refuse("invalid_message", f"{where} holds the noncharacter U+FDD0 or U+FDD1", index=index)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = f"{where} holds a lone surrogate at character {error.start}, which is no text"
        raise refuse("encoding_failed", found, index=index) from error
