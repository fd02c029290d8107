"""The protocol: what is asked of the service in which order, as generators without I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode

from samplekit.client.exchange import call
from samplekit.client.firsts import Firsts
from samplekit.client.steps import Flow, Request, Subject, cut_short, held
from samplekit.errors import ConnectionFailedError, StatusError
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
_PATIENCE = 10.0  # seconds that a cancelled submission waits for its answer still
URL_EXPIRED = frozenset({401, 403, 404, 410})  # what object stores answer once a signed URL has run out
# How a service says that it does not take a request, as one that names a payload it no longer has.
_REFUSALS = (400, 404, 410, 422)


@dataclass(frozen=True)
class Terms:
    """On what terms flows run.

    Attributes:
        runtime: whose clock and chance.
        retries: how often they try again.
        is_local: whether the service runs on this machine.
        uploads: payload ids by idempotency key, of calls that were not accepted yet.
        firsts: what answers named as new.
    """

    runtime: Runtime
    retries: int = names.SESSION_RETRIES
    is_local: bool = False
    uploads: MutableMapping[str, str] = field(default_factory=dict[str, str])
    firsts: Firsts = field(default_factory=Firsts)

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
    subject: Subject | None = None,
    **ids: str,
) -> Request:
    """Make the request of one row of the protocol.

    Args:
        route: the row.
        what: what the call does, for errors.
        body: JSON in pieces.
        query: parameters of the URL.
        key: the idempotency key, of a keyed row and of no other.
        lookup: how to find out what became of it when no answer came.
        subject: what its answer must be about.
        ids: the ids in the path.
    """
    if route.keyed != (key is not None):
        raise ValueError(f"{route.method} {route.template} takes {'an' if route.keyed else 'no'} idempotency key")
    path = route.path(**ids) + (f"?{urlencode(query)}" if query else "")
    headers = {} if key is None else {names.IDEMPOTENCY_KEY: key}
    return Request(what, route.method, path, body, headers, route.repeatable, lookup=lookup, subject=subject)


def submit(terms: Terms, session_id: str, kind: str, body: OperationBody | None, key: str) -> Flow[OperationAnswer]:
    """Submit an operation: upload its body if it is large, and send it under one key.

    Once it is sent, its answer is waited for a while even where the task is cancelled: what was accepted must be known.

    Args:
        terms: clock, chance, retries.
        session_id: the session.
        kind: the operation's kind.
        body: None for a kind without one.
        key: the idempotency key of this logical call, the same however often it is sent.
    """
    what = f"submit {kind} to session {session_id}"

    def parse(body: bytes) -> OperationAnswer:
        answer = parse_operation(body)
        terms.firsts.require("operation", f"{session_id}/{answer.id}", key)
        return answer

    def send(pieces: tuple[bytes, ...] | None) -> Flow[OperationAnswer]:
        request = request_for(names.SUBMIT_OPERATION, what, body=pieces, key=key, session_id=session_id, kind=kind)
        unknown = (
            f"outcome unknown: no answer had come to: {what}; the service may have accepted it under idempotency key "
            f"{key}, and the same call made again would count twice"
        )
        with cut_short(lambda: unknown):
            return (yield from held(terms.call(request, parse), pauses=False, patience=_PATIENCE))

    if body is None or not body.needs_upload:
        return (yield from send(None if body is None else body.inline()))
    uploads = terms.uploads if terms.runtime.uploads is None else terms.runtime.uploads
    answer = yield from _send_uploaded(terms, what, session_id, body, key, uploads, send)
    terms.uploads.pop(key, None)
    return answer


def _send_uploaded(
    terms: Terms,
    what: str,
    session_id: str,
    body: OperationBody,
    key: str,
    uploads: MutableMapping[str, str],
    send: Callable[[tuple[bytes, ...]], Flow[OperationAnswer]],
) -> Flow[OperationAnswer]:
    """Upload a body, unless an earlier try under its key did, and send what stands for it."""
    if (known := uploads.get(key)) is not None:
        try:
            return (yield from send(body.stand_in(known)))
        except StatusError as error:
            if error.status not in _REFUSALS:
                raise
            # What an earlier try uploaded is gone, and so was nothing accepted under this key.
    try:
        uploads[key] = payload_id = yield from upload(terms, session_id, body.payload(), key)
    except (ConnectionFailedError, StatusError) as error:
        raise error.reworded(f"could not {what}, for its body was not taken: {error.message}") from error
    return (yield from send(body.stand_in(payload_id)))


def operation_request(session_id: str, kind: str, operation_id: str) -> Request:
    """Make the request that asks for an operation."""
    subject = Subject(f"{kind} operation", operation_id)
    route, what = names.GET_OPERATION, f"get {subject}"
    return request_for(route, what, subject=subject, session_id=session_id, kind=kind, operation_id=operation_id)


def resources_request(resources_id: str) -> Request:
    """Make the request that asks for model resources."""
    subject = Subject("model resources", resources_id)
    return request_for(names.GET_RESOURCES, f"get {subject}", subject=subject, resources_id=resources_id)


def session_request(session_id: str) -> Request:
    """Make the request that asks for a training session."""
    subject = Subject("training session", session_id)
    return request_for(names.GET_SESSION, f"get {subject}", subject=subject, session_id=session_id)


def upload(terms: Terms, session_id: str, payload: tuple[bytes, ...], key: str) -> Flow[str]:
    """Put a payload of the call with this key where the service will fetch it; give its id.

    A URL that has run out is asked for anew, which gives another id; no operation has named the first one by then.
    """
    ask = request_for(names.UPLOAD_URL, "ask where to upload a payload", session_id=session_id)

    def put(place: _Place) -> Request:
        what = f"upload payload {place.payload_id}"
        return Request(what, "PUT", place.url, payload, repeatable=True, authorized=False)

    def parse(body: bytes) -> _Place:
        answer = parse_object(body)
        place = _Place(as_id(answer, "payload_id"), as_id(answer, "upload_url"))
        terms.firsts.require("payload", f"{session_id}/{place.payload_id}", key)
        return place

    return (yield from _move(terms, ask, parse, put, lambda place, _: place.payload_id))


def download(terms: Terms, session_id: str, payload_id: str) -> Flow[JsonObject]:
    """Fetch the members of a result that were too large to be inline; a URL that has run out is asked for anew."""
    what = f"ask where to download payload {payload_id}"
    ask = request_for(names.DOWNLOAD_URL, what, session_id=session_id, payload_id=payload_id)

    def get(place: _Place) -> Request:
        return Request(f"download payload {payload_id}", "GET", place.url, repeatable=True, authorized=False)

    def parse(body: bytes) -> _Place:
        url = as_id(parse_object(body), "download_url")
        terms.firsts.require("payload", url, f"{session_id}/{payload_id}")
        return _Place(payload_id, url)

    return (yield from _move(terms, ask, parse, get, lambda _, body: parse_object(body)))


@dataclass(frozen=True)
class _Place:
    """Where a payload is for a while; the URL may carry a signature, so it is not shown."""

    payload_id: str
    url: str = field(repr=False)


def _move(
    terms: Terms,
    ask: Request,
    parse: Callable[[bytes], _Place],
    move: Callable[[_Place], Request],
    read: Callable[[_Place, bytes], T],
) -> Flow[T]:
    """Ask where a payload goes or is, and move it; where the URL has run out, ask once more."""

    def moved(place: _Place) -> Flow[T]:
        return terms.call(move(place), partial(read, place), retries=terms.payload_retries)

    place = yield from terms.call(ask, parse, retries=terms.payload_retries)
    try:
        return (yield from moved(place))
    except StatusError as error:
        if error.status not in URL_EXPIRED:
            raise
    place = yield from terms.call(ask, parse, retries=terms.payload_retries)
    return (yield from moved(place))


def with_payload(terms: Terms, session_id: str, output: JsonObject) -> Flow[JsonObject]:
    """Complete an output: members in its payload win over those inline."""
    payload_id = output.get("payload_id")
    if not payload_id:
        return output
    fetched = yield from download(terms, session_id, str(payload_id))
    return {**{name: value for name, value in output.items() if name != "payload_id"}, **fetched}
