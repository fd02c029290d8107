"""Where the service is and who asks: the base URL, the key, and what may be sent where."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import httpx

from samplekit._version import __version__
from samplekit.client.faults import quoted, without_secrets
from samplekit.client.intake import Intake
from samplekit.client.settings import positive, shown, whole_number
from samplekit.client.steps import Failure, Outcome, Reply, Request
from samplekit.errors import ConnectionFailedError, ServiceError
from samplekit.wire import names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

USER_AGENT = f"samplekit/{__version__}"
_MAX_CONNECT_SECONDS = 30.0
_MAX_CONNECTIONS = 256
_LARGEST_PORT = 65535
_NOT_FOUND = 404
_LONGEST_TIMEOUT = 86_400.0  # seconds; sockets take no more than some years
_BLOT = b"***"
_SHORTEST_SECRET = 8  # characters
_LONGEST_WORD = 15  # characters of a key that is looked for as a word, for it may be part of others: tok of tokens
_OF_WORDS = rb"[A-Za-z0-9_-]"
# What stands before a word: no sign of one, or an escape of JSON, whose last sign looks like one.
_BEFORE = rb"(?:(?<!%b)|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4}))" % _OF_WORDS
_AFTER = rb"(?!%b)" % _OF_WORDS
_OF_NUMBERS = frozenset("0123456789.eE+-")


def _spelling(char: int) -> bytes:
    """Give a pattern for the ways in which JSON spells a character of ASCII."""
    return rb"(?:\\?%b|(?i:\\u00%02x))" % (re.escape(bytes([char])), char)


class ApiKey:
    """A key that shows itself to nobody but the request that needs it."""

    __slots__ = ("_escapes", "_spellings", "_value")

    def __init__(self, value: str) -> None:
        self._value = value
        self._escapes = [b"\\u00", *(b"\\" + sign.encode() for sign in '"/\\' if sign in value)]
        spellings = b"".join(map(_spelling, value.encode()))
        if len(value) <= _LONGEST_WORD:
            before, after = (bool(re.match(_OF_WORDS, sign.encode())) for sign in (value[0], value[-1]))
            spellings = _BEFORE * before + spellings + _AFTER * after
        self._spellings = re.compile(spellings)

    def reveal(self) -> str:
        """Give the key itself."""
        return self._value

    @property
    def is_plain(self) -> bool:
        """Whether ids or numbers that are no secret may hold it."""
        return len(self._value) < _SHORTEST_SECRET or set(self._value) <= _OF_NUMBERS

    def blot(self, body: bytes) -> bytes:
        """Blot the key out, in whatever way JSON may spell it; one of up to 15 characters where it is a whole word."""
        if self._value.encode() not in body and not any(escape in body for escape in self._escapes):
            return body
        return self._spellings.sub(_BLOT, body)

    def blot_text(self, text: str) -> str:
        """Blot the key out of text."""
        return self.blot(text.encode(errors="surrogateescape")).decode(errors="surrogateescape")

    def __repr__(self) -> str:
        return "ApiKey(***)"

    def __reduce__(self) -> tuple[type[ApiKey], tuple[str]]:
        raise TypeError("a key is not pickled: hand the other process TOGETHER_API_KEY")


@dataclass(frozen=True)
class Endpoint:
    """A service's base URL and the key for it.

    Attributes:
        base_url: without a trailing slash.
        timeout: seconds a request may wait for an answer.
        max_answer_bytes: how large an answer may be that is read into memory.
    """

    base_url: str
    timeout: float
    key: ApiKey | None = field(default=None, repr=False)
    max_answer_bytes: int = names.MAX_ANSWER_BYTES

    @classmethod
    def resolve(
        cls,
        base_url: str | None,
        api_key: str | None,
        timeout: float,
        max_answer_bytes: int = names.MAX_ANSWER_BYTES,
    ) -> Endpoint:
        """Take what the caller gave, else the environment, else the public service.

        Raises:
            ServiceError: the URL is not https (loopback aside), or no key is known.
            SampleError: the timeout is no number above 0, or max_answer_bytes no whole number above 0.
        """
        if base_url is not None and not isinstance(base_url, str):
            raise ServiceError(f"base_url is {shown(base_url)}, expected a URL like {names.DEFAULT_BASE_URL}")
        if api_key is not None and not isinstance(api_key, str):
            raise ServiceError(
                f"api_key is of type {type(api_key).__name__}, expected a string, or None for the environment"
            )
        url = (base_url or os.environ.get(names.ENV_BASE_URL) or names.DEFAULT_BASE_URL).rstrip("/")
        require_safe(url, "base_url")
        key = (api_key or os.environ.get(names.ENV_API_KEY) or "").strip()
        if not key and not is_loopback(url):
            raise ServiceError(
                f"no key for {url}: set {names.ENV_API_KEY} or pass api_key= (a service on this machine needs none)"
            )
        if not key.isascii() or not key.isprintable():
            raise ServiceError("api_key holds characters no key has: copy it again, without quotes or line breaks")
        largest = whole_number("max_answer_bytes", max_answer_bytes, least=1)
        return cls(url, positive("timeout", timeout, most=_LONGEST_TIMEOUT), ApiKey(key) if key else None, largest)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            f"a client is neither pickled nor copied: make one for {self.base_url} in the other process, with the key "
            f"from {names.ENV_API_KEY}; a process that is forked may use its parent's"
        )

    @property
    def is_local(self) -> bool:
        """Whether the service runs on this machine."""
        return is_loopback(self.base_url)

    def require_open(self, *, closed: bool) -> None:
        """Refuse to work for a client that was closed."""
        if closed:
            raise ConnectionFailedError(f"the client of {self.base_url} is closed: make a new one")

    def build(self, request: Request) -> httpx.Request:
        """Turn a flow's request into httpx's; the key goes to the base URL and nowhere else."""
        url = self.base_url + request.url if request.authorized else request.url
        if not request.authorized:
            require_safe(url, "the service's URL for payloads")
        try:
            host = httpx.URL(url).netloc.decode("ascii")
        except httpx.InvalidURL as error:
            raise ServiceError(
                f"could not {quoted(request.call)}: what the service named is too long or too odd for a URL ({error}); "
                "report it to the service"
            ) from error
        headers = {"host": host, "user-agent": USER_AGENT, "accept": "application/json"}
        headers |= {"accept-encoding": "identity", **request.headers}
        if request.authorized and self.key is not None:
            headers[names.AUTHORIZATION] = f"Bearer {self.key.reveal()}"
        if request.body is not None:
            headers["content-type"] = "application/json"
        if request.body is not None or request.method != "GET":
            headers["content-length"] = str(sum(map(len, request.body or ())))
        seconds = self.timeout if request.timeout is None else min(self.timeout, request.timeout)
        timeout = httpx.Timeout(seconds, connect=min(seconds, _MAX_CONNECT_SECONDS))
        return httpx.Request(
            request.method,
            url,
            headers=headers,
            stream=PieceStream(request.body or ()),
            extensions={"timeout": timeout.as_dict()},
        )

    def intake(self, response: httpx.Response, late: Callable[[], bool]) -> Intake:
        """Give what takes the body of an answer, as far as it is taken, until it is late."""
        return Intake(response, self.max_answer_bytes, late)

    def blotted(self, outcome: Outcome) -> Outcome:
        """Give what came back with the key blotted out of it, so that no error, note or log can repeat it.

        All that the service says comes through here, before anything reads it. Of an answer that succeeded the body is
        left alone where the key is a plain word or number, such as ``local``: ids and numbers may hold it.
        """
        if isinstance(outcome, Reply) and outcome.status == _NOT_FOUND and self.base_url.endswith("/v1"):
            outcome = replace(outcome, hint="leave /v1 out of the base_url: the client adds it")
        if self.key is None:
            return outcome
        if isinstance(outcome, Failure):
            return replace(outcome, reason=self.key.blot_text(outcome.reason))
        headers = {name: self.key.blot_text(value) for name, value in outcome.headers.items()}
        spared = 200 <= outcome.status < 300 and self.key.is_plain
        return replace(outcome, headers=headers, body=outcome.body if spared else self.key.blot(outcome.body))


class PieceStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A request body in pieces that can be sent again."""

    def __init__(self, pieces: tuple[bytes, ...]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


def http_options(endpoint: Endpoint) -> dict[str, Any]:
    """Give httpx's settings: no redirects, many connections, and no proxy on the way to this machine."""
    return {
        "follow_redirects": False,
        "trust_env": not endpoint.is_local,
        "limits": httpx.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS),
    }


def require_safe(url: str, what: str) -> None:
    """Refuse a URL over which a key or data could leak.

    Raises:
        ServiceError: it is not https (loopback aside), or carries a user or password.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ServiceError(f"{what} is no URL: give one like {names.DEFAULT_BASE_URL}") from error
    if parsed.port is not None and not 0 < parsed.port <= _LARGEST_PORT:
        raise ServiceError(
            f"{what} {without_secrets(url)} names port {parsed.port}, expected one of 1 to {_LARGEST_PORT}"
        )
    if parsed.userinfo:
        raise ServiceError(f"{what} {without_secrets(url)} carries a user or password: pass the key as api_key=")
    if not parsed.host:
        raise ServiceError(f"{what} {without_secrets(url)!r} names no host: give one like {names.DEFAULT_BASE_URL}")
    try:
        parsed.raw_host.decode("ascii").encode("idna")  # as sockets do before they look it up
    except UnicodeError as error:
        raise ServiceError(
            f"{what} {without_secrets(url)} names a host with an empty or overlong part: look at it"
        ) from error
    if parsed.scheme == "https" or (parsed.scheme == "http" and is_loopback(url)):
        return
    raise ServiceError(f"{what} {without_secrets(url)} is not https: only a service on this machine may be plain http")


def is_loopback(url: str) -> bool:
    """Tell whether a URL names this machine."""
    host = httpx.URL(url).host
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
