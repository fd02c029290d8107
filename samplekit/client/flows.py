"""The protocol: what is asked of the service in which order, as generators without I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode

from samplekit.client.exchange import call, poll
from samplekit.client.steps import Flow, Request
from samplekit.wire import names
from samplekit.wire.answers import (
    JsonObject,
    OperationAnswer,
    as_id,
    parse_object,
    parse_operation,
)

if TYPE_CHECKING:
    from samplekit.client.runtime import Runtime
    from samplekit.wire.names import Route
    from samplekit.wire.requests import OperationBody

T = TypeVar("T")
_LOCAL_STOP_RETRIES = 1


@dataclass(frozen=True)
class Terms:
    """On what terms flows run: whose clock and chance, how often they try again, and whether on this machine."""

    runtime: Runtime
    retries: int = names.SESSION_RETRIES
    is_local: bool = False

    @property
    def stop_retries(self) -> int:
        """How often to try again to stop something; a local service that has ended took with it what it ran."""
        return min(self.retries, _LOCAL_STOP_RETRIES) if self.is_local else self.retries

    @property
    def payload_retries(self) -> int:
        """How often to try again to move a payload: the protocol's number, never more than the caller allows."""
        return min(self.retries, names.PAYLOAD_RETRIES)

    def call(self, request: Request, parse: Callable[[bytes], T], *, retries: int | None = None) -> Flow[T]:
        """Send a request until it is answered, as the retry rules allow."""
        return call(request, parse, self.runtime, retries=self.retries if retries is None else retries)


def request_for(
    route: Route,
    what: str,
    *,
    body: tuple[bytes, ...] | None = None,
    query: Mapping[str, str] | None = None,
    key: str | None = None,
    lookup: str = "",
    **ids: str,
) -> Request:
    """Make the request of one row of the protocol.

    Args:
        route: the row.
        what: what the call does, for errors.
        body: JSON in pieces.
        query: parameters of the URL.
        key: the idempotency key, of a keyed row.
        lookup: how to find out what became of it when no answer came.
        ids: the ids in the path.
    """
    path = route.path(**ids) + (f"?{urlencode(query)}" if query else "")
    headers = {} if key is None else {names.IDEMPOTENCY_KEY: key}
    return Request(what, route.method, path, body, headers, route.repeatable, lookup=lookup)


def submit(terms: Terms, session_id: str, kind: str, body: OperationBody | None, key: str) -> Flow[OperationAnswer]:
    """Submit an operation: upload its body if it is large, and send it under one key.

    Args:
        terms: clock, chance, retries.
        session_id: the session.
        kind: the operation's kind.
        body: None for a kind without one.
        key: the idempotency key of this logical call, the same however often it is sent.
    """
    pieces: tuple[bytes, ...] | None = None
    if body is not None:
        pieces = body.inline()
        if body.needs_upload:
            pieces = body.stand_in((yield from _uploaded(terms, session_id, body, key)))
    what = f"submit {kind} to session {session_id}"
    request = request_for(names.SUBMIT_OPERATION, what, body=pieces, key=key, session_id=session_id, kind=kind)
    return (yield from terms.call(request, parse_operation))


def _uploaded(terms: Terms, session_id: str, body: OperationBody, key: str) -> Flow[str]:
    """Upload a body, unless it was uploaded for this key before; give the payload's id, which is kept first."""
    uploads = terms.runtime.uploads
    known = None if uploads is None else uploads.get(key)
    if known is not None:
        return known
    payload_id = yield from upload(terms, session_id, body.payload())
    if uploads is not None:
        uploads[key] = payload_id
    return payload_id


def wait(
    terms: Terms, session_id: str, kind: str, operation_id: str, *, since: float, deadline: float | None
) -> Flow[OperationAnswer | None]:
    """Poll an operation until it is finished; None when the deadline comes first.

    Args:
        terms: clock, chance, retries.
        session_id: the session.
        kind: the operation's kind.
        operation_id: its id.
        since: when it was submitted, on the runtime's clock.
        deadline: when to give up; None for never.
    """
    request = operation_request(session_id, kind, operation_id)
    return (
        yield from poll(
            request,
            parse_operation,
            lambda answer: answer.finished,
            terms.runtime,
            since=since,
            deadline=deadline,
            retries=terms.retries,
        )
    )


def operation_request(session_id: str, kind: str, operation_id: str) -> Request:
    """Make the request that asks for an operation."""
    what = f"get {kind} operation {operation_id}"
    return request_for(names.GET_OPERATION, what, session_id=session_id, kind=kind, operation_id=operation_id)


def resources_request(resources_id: str) -> Request:
    """Make the request that asks for model resources."""
    return request_for(names.GET_RESOURCES, f"get model resources {resources_id}", resources_id=resources_id)


def session_request(session_id: str) -> Request:
    """Make the request that asks for a training session."""
    return request_for(names.GET_SESSION, f"get training session {session_id}", session_id=session_id)


def upload(terms: Terms, session_id: str, payload: tuple[bytes, ...]) -> Flow[str]:
    """Put a payload where the service will fetch it; give its id."""
    ask = request_for(names.UPLOAD_URL, "ask where to upload a payload", session_id=session_id)
    payload_id, url = yield from terms.call(ask, _parse_upload, retries=terms.payload_retries)
    put = Request(f"upload payload {payload_id}", "PUT", url, payload, repeatable=True, authorized=False)
    yield from terms.call(put, lambda _: None, retries=terms.payload_retries)
    return payload_id


def download(terms: Terms, session_id: str, payload_id: str) -> Flow[JsonObject]:
    """Fetch the members of a result that were too large to be inline."""
    what = f"ask where to download payload {payload_id}"
    ask = request_for(names.DOWNLOAD_URL, what, session_id=session_id, payload_id=payload_id)
    url = yield from terms.call(
        ask, lambda body: as_id(parse_object(body), "download_url"), retries=terms.payload_retries
    )
    get = Request(f"download payload {payload_id}", "GET", url, repeatable=True, authorized=False)
    return (yield from terms.call(get, parse_object, retries=terms.payload_retries))


def _parse_upload(body: bytes) -> tuple[str, str]:
    answer = parse_object(body)
    return as_id(answer, "payload_id"), as_id(answer, "upload_url")


def with_payload(terms: Terms, session_id: str, output: JsonObject) -> Flow[JsonObject]:
    """Complete an output: members in its payload win over those inline."""
    payload_id = output.get("payload_id")
    if not payload_id:
        return output
    fetched = yield from download(terms, session_id, str(payload_id))
    return {**{name: value for name, value in output.items() if name != "payload_id"}, **fetched}
