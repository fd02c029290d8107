"""Answers that show what somebody wrote: read however deep it nests, for one odd record must not hide the others."""

from __future__ import annotations

import re

from samplekit.wire.answers import AnswerError, DeepAnswerError, JsonObject, parse_object
from samplekit.wire.names import MAX_ANSWER_DEPTH

TOO_DEEP = "(nests too deep)"
_TEXT_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def parse_cut(body: bytes) -> JsonObject:
    """Parse an answer that must be a JSON object; what nests deeper than 64 in it is read as the text `TOO_DEEP`."""
    try:
        return parse_object(body)
    except DeepAnswerError as error:
        try:
            return parse_object(_cut(body))
        except AnswerError:
            raise error from None


def _cut(body: bytes) -> bytes:
    """Put a text in the place of every list and object inside 64 others; it goes by the bytes and does not recurse."""
    kept, depth, start = list[bytes](), 0, 0
    for match in _TEXT_OR_BRACKET.finditer(body):
        if match[0] in {b"[", b"{"}:
            depth += 1
            if depth == MAX_ANSWER_DEPTH + 1:
                kept += (body[start : match.start()], b'"%s"' % TOO_DEEP.encode())
        elif match[0] in {b"]", b"}"}:
            if depth == MAX_ANSWER_DEPTH + 1:
                start = match.end()
            depth -= 1
    return b"".join((*kept, body[start:]))
