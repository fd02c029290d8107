"""What ends a reply: the stop set, and where in a render the first stop stands.

The set is the caller's stops, the model's generation_config, the tokenizer's eos, and what the template is seen to
write after a reply: at the end, before the next user turn and after a tool call. A stop is a run of one or more control
tokens; where several start at one place, the longest counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from samplekit.chat.cuts import any_of
from samplekit.chat.shape import REPLY, USER, VALUE, TemplateShape

_NEXT = "Nqsentinel"


@dataclass(frozen=True, slots=True)
class StopSet:
    """The stops of a template.

    Attributes:
        strings: the text of every stop, longest first.
        appended: the stop to write where a render has none; None where that would be a guess.
    """

    strings: tuple[str, ...]
    appended: str | None
    pattern: re.Pattern[str] | None

    @classmethod
    def of(cls, certain: Sequence[str], inferred: Iterable[str]) -> StopSet:
        """Build the set; the first certain stop is the one to append."""
        strings = tuple(sorted({*certain, *inferred}, key=lambda text: (-len(text), text)))
        return cls(strings, certain[0] if certain else None, any_of(strings))

    def first(self, text: str, start: int) -> tuple[int, str] | None:
        """Find the first stop at or after a character: its end and its text."""
        found = self.pattern.search(text, start) if self.pattern else None
        return (found.end(), found[0]) if found else None


def infer_stops(shape: TemplateShape, tokens: Iterable[str], known: Sequence[str]) -> list[str]:
    """See what closes a reply in renders of sentinels.

    Args:
        shape: what the template wants, and its probe.
        tokens: control tokens that may be stops.
        known: stops known already.

    Returns:
        Runs of control tokens, as text.
    """
    runs = any_of(tokens)
    if runs is None:
        return []
    user, reply = _message(shape, "user", USER), _message(shape, "assistant", REPLY)
    final = shape.probe([user, reply])
    longer = shape.probe([user, reply, _message(shape, "user", _NEXT)])
    found = _from_replies(final, longer, runs)
    calls = shape.probe([user, shape.calling('{"k": "' + VALUE + '"}' if shape.arguments_as_text else {"k": VALUE})])
    return found + _from_calls(calls, runs, [*known, *found])


def _from_replies(final: str | None, longer: str | None, tokens: re.Pattern[str]) -> list[str]:
    if final is None or REPLY not in final:
        return []
    before, _, closing = final.rpartition(REPLY)
    at_end = _leading_run(closing, tokens)
    header = _last_token(before, tokens)
    if at_end[:1] == [header]:  # the template asks for a reply whether or not one is wanted
        at_end = []
    if longer is None or not _in_order(longer, REPLY, _NEXT):
        return _joined(at_end)
    between = longer.rpartition(REPLY)[2].partition(_NEXT)[0]
    in_middle = _leading_run(between, tokens)
    common = [token for token, other in zip(at_end, in_middle, strict=False) if token == other]
    if common and common == at_end[: len(common)] == in_middle[: len(common)]:
        return _joined(common)
    # The two differ. What follows a reply in the middle may be the next turn's header rather than a stop.
    asked = before.rpartition(USER)
    closes_users = _leading_run(asked[2], tokens)[:1]
    if in_middle and (in_middle[0] not in before or (at_end and in_middle[:1] == closes_users)):
        return _joined(at_end) + _joined(in_middle[:1])
    return _joined(at_end)


def _from_calls(text: str | None, tokens: re.Pattern[str], known: list[str]) -> list[str]:
    """Take the last control token after a call, unless a known stop closes it."""
    if text is None or VALUE not in text:
        return []
    closing = text.rpartition(VALUE)[2]
    if any(stop in closing for stop in known):
        return []
    last = _last_token(closing, tokens)
    return [last] if last and not closing.partition(last)[2].strip() and "/" not in last else []


def _leading_run(text: str, tokens: re.Pattern[str]) -> list[str]:
    """List the control tokens that stand first in a text, after white space, with nothing between them."""
    run: list[str] = []
    first = tokens.search(text)
    place = first.start() if first else 0
    while found := tokens.match(text, place):
        run.append(found[0])
        place = found.end()
    return run


def _last_token(text: str, tokens: re.Pattern[str]) -> str | None:
    found: list[str] = tokens.findall(text)
    return found[-1] if found else None


def _joined(run: list[str]) -> list[str]:
    return ["".join(run)] if run else []


def _in_order(text: str, first: str, then: str) -> bool:
    return 0 <= text.rfind(first) < text.find(then)


def _message(shape: TemplateShape, role: str, text: str) -> dict[str, object]:
    return {"role": role, "content": shape.content(text)}
