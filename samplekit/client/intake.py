"""The body of an answer as it comes: read piece by piece, and no further than is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samplekit.client.faults import STRANGE_ANSWER
from samplekit.client.steps import Failure, Outcome, Reply
from samplekit.wire.names import MAX_ERROR_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx

# No compression is asked for. Of one of these 64 KiB grow to 64 MiB at most; of several, or of others, without bound.
_READ_ENCODINGS = frozenset({"", "identity", "gzip", "deflate"})
_LONGEST_NUMBER = 100  # digits; Python refuses to read thousands


class Intake:
    """The body of one answer, up to a limit.

    The body of an error or redirect is cut at 1 MiB, for its status says the most; any other that is too large is
    refused.

    Args:
        response: whose body was not read yet.
        limit: bytes taken at most, after decompression.
        late: tells whether the time for all of it is over, however steadily it comes.
    """

    def __init__(self, response: httpx.Response, limit: int, late: Callable[[], bool]) -> None:
        self._status, self._headers = response.status_code, headers_of(response)
        self._limit, self._pieces, self._size = limit, list[bytes](), 0
        self._late, self._cuts = late, not response.is_success
        self._fault: Failure | None = None
        plain = (encoding := self._headers.get("content-encoding", "").strip().lower()) in {"", "identity"}
        if self._cuts:
            self._limit = min(limit, MAX_ERROR_BYTES) if encoding in _READ_ENCODINGS else 0
        elif encoding not in _READ_ENCODINGS:
            reason = "the answer is compressed in a way that was not asked for"
            self._fault = Failure(reason, sent=True, lasting=True, remedy=STRANGE_ANSWER)
        elif plain and (announced := _length(self._headers)) > limit:
            self._fault = self._too_large(f"{announced:,} bytes are announced, and none was read")

    @property
    def wants_more(self) -> bool:
        """Whether to go on reading."""
        return self._fault is None and not (self._cuts and self._size >= self._limit)

    def add(self, piece: bytes) -> bool:
        """Take the next piece, decompressed; tell whether to go on reading."""
        if self._late():
            self._pieces.clear()
            self._fault = Failure("its answer had not all come in time", sent=True, timed_out=True)
            return False
        self._size += len(piece)
        if self._size <= self._limit:
            self._pieces.append(piece)
        elif self._cuts:
            self._pieces.append(piece[: self._limit - self._size])
        else:
            self._pieces.clear()
            self._fault = self._too_large(f"{self._size:,} bytes of it had come when it was dropped")
        return self.wants_more

    def outcome(self) -> Outcome:
        """Give the answer, or why it was not taken."""
        return self._fault or Reply(self._status, self._headers, b"".join(self._pieces))

    def _too_large(self, found: str) -> Failure:
        return Failure(
            f"the answer is larger than the {self._limit:,} bytes that are taken at most: {found}",
            sent=True,
            lasting=True,
            remedy="ask for less at a time, or make the client with a larger max_answer_bytes",
        )


def lateness(seconds: float | None, clock: Callable[[], float]) -> Callable[[], bool]:
    """Give what tells whether so many seconds have passed since now; None of them never have."""
    until = None if seconds is None else clock() + seconds
    return lambda: until is not None and clock() >= until


def headers_of(response: httpx.Response) -> Mapping[str, str]:
    """Give the headers of an answer, names in lower case."""
    return {name.lower(): value for name, value in response.headers.items()}


def _length(headers: Mapping[str, str]) -> int:
    """Read how many bytes are announced; 0 where none are."""
    text = headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < _LONGEST_NUMBER else 0
