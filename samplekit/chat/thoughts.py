"""Thinking blocks: the tags models put around their reasoning, and where they stand in a text."""

from __future__ import annotations

import re

TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
)
_OPENERS = tuple(start for start, _ in TAGS)
_TAIL = 128  # characters; white space around the tags is a few
_CLOSERS = re.compile("|".join(re.escape(end) for _, end in TAGS))
_THINKING_TOKEN = re.compile(r"think|thought|reason", re.IGNORECASE)


def split_thought(content: str) -> tuple[str, str]:
    """Split a reply's content into its inline reasoning and the rest; the reasoning is empty where no tag closes.

    >>> split_thought("<think>two and two</think>4")
    ('two and two', '4')
    """
    for start, end in TAGS:
        thought, found, rest = content.partition(end)
        if found:
            _, opened, inside = thought.partition(start)
            return (inside if opened else thought), rest
    return "", content


def unclosed_thought(text: str) -> str | None:
    """Give the tag of a thinking block that a reply's text opens and never closes; None where there is none.

    Prose may name a tag: only one that starts the text counts, or an unquoted ``<think>`` anywhere.
    """
    for start, end in TAGS:
        place = text.rfind(start)
        if place < 0 or end in text[place:]:
            continue
        quoted = text[max(0, place - 1) : place] in ("`", "'", '"')
        if not text[:place].strip() or (start == "<think>" and not quoted):
            return start
    return None


def ends_in_open_thought(prompt: str) -> bool:
    """Tell whether a prompt leaves a thinking block open for the model to fill."""
    return prompt[-_TAIL:].rstrip().endswith(_OPENERS)


def closes_at_once(completion: str) -> bool:
    """Tell whether a completion closes a thinking block before anything was thought."""
    return _CLOSERS.match(completion.lstrip()) is not None


def empty_thought_start(prompt: str) -> int | None:
    """Find where an empty, closed thinking block that ends the prompt starts; None where there is none."""
    tail = prompt[-_TAIL:].rstrip()
    for start, end in TAGS:
        if tail.endswith(end):
            before = tail.removesuffix(end).rstrip()
            if before.endswith(start):
                return max(0, len(prompt) - _TAIL) + len(before) - len(start)
    return None


def is_thinking_token(content: str) -> bool:
    """Tell whether a control token is one of the tags around reasoning."""
    return _THINKING_TOKEN.search(content) is not None
