"""Submitting operations and asking after them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import orjson

from samplekit.server.records import Operation
from samplekit.server.refusals import Refusal, invalid, not_found
from samplekit.server.requests import MAX_BODY_BYTES, json_response, parse_json, receive_bytes, service_of
from samplekit.server.work import plan_work
from samplekit.wire.names import IDEMPOTENCY_KEY, OperationKind

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from samplekit.server.records import Session
    from samplekit.server.service import Service
    from samplekit.server.work import Work

# Members of a request that never go into its upload.
FLAGS = ("forward_only", "return_loss_fn_outputs")
# A poll is answered when the operation is done, at the latest after this many seconds.
POLL_WAIT = 0.4


async def submit_operation(request: Request) -> Response:
    """Accept an operation once its body holds; the same key and body give the operation accepted before."""
    service = service_of(request)
    session = service.find_session(request.path_params["session_id"])
    kind = _kind(request)
    key = request.headers.get(IDEMPOTENCY_KEY, "")
    if not key:
        raise invalid("the Idempotency-Key header is missing: make one key for each operation and keep it for retries")
    raw = await receive_bytes(request, MAX_BODY_BYTES)
    digest = hashlib.sha256(raw).digest()
    known = service.find_accepted(session, key, kind, digest)
    if known is None:
        service.refuse_inactive(session)
        payload_id, work = await service.parse(lambda: _plan(raw, kind, session, service))
        # While the body was parsed, a retry may have been accepted or the session stopped.
        known = service.find_accepted(session, key, kind, digest)
        if known is None:
            service.refuse_inactive(session)
            known = Operation(f"op-{secrets.token_hex(8)}", kind, key, digest, work, payload_id)
            service.accept(session, known)
    return json_response(orjson.Fragment(known.to_json()))


async def get_operation(request: Request) -> Response:
    """Show an operation."""
    service = service_of(request)
    session = service.find_session(request.path_params["session_id"])
    identifier = request.path_params["operation_id"]
    operation = session.operations.get(identifier)
    if operation is None or operation.kind != _kind(request):
        raise not_found(f"{request.path_params['kind']} operation of this session", identifier)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(operation.finished.wait(), POLL_WAIT)
    return json_response(orjson.Fragment(operation.to_json()))


def _kind(request: Request) -> OperationKind:
    name = request.path_params["kind"]
    if name not in set(OperationKind):
        raise Refusal(404, f"there is no operation {name!r}, expected one of {', '.join(OperationKind)}")
    return OperationKind(name)


def _plan(raw: bytes, kind: OperationKind, session: Session, service: Service) -> tuple[str | None, Work]:
    """Parse a body, of an uploaded one the upload, and plan its work; runs off the event loop."""
    body = _object(raw)
    payload_id = body.pop("payload_id", None)
    if payload_id is not None:
        path = service.payloads.owned(str(payload_id), session.id)
        if path is None:
            raise invalid(
                f"payload_id {payload_id!r} has no upload in this session: PUT the body to its upload_url first"
            )
        flags = {name: body.pop(name) for name in FLAGS if name in body}
        uploaded = _object(path.read_bytes())
        refuse_other_shape(body, uploaded, "the body")
        body = {**uploaded, **flags}
    return None if payload_id is None else str(payload_id), plan_work(kind, body, session, service.model)


def _object(raw: bytes) -> dict[str, Any]:
    body = parse_json(raw)
    if not isinstance(body, dict):
        raise invalid(f"the body is a JSON {type(body).__name__}, expected an object")
    return cast("dict[str, Any]", body)


def refuse_other_shape(stand_in: object, uploaded: object, path: str) -> None:
    """Refuse an upload that is not what its stand-in announces: other members, other dtypes, another count of samples.

    A stand-in is a body whose number lists are cut short; what its numbers say is not looked at.
    """
    if isinstance(stand_in, Mapping) and isinstance(uploaded, Mapping):
        shown, full = cast("Mapping[str, Any]", stand_in), cast("Mapping[str, Any]", uploaded)
        missing = sorted(set(shown) - set(full))
        if missing:
            raise invalid(f"{path} announces {missing}, which the uploaded payload does not hold: upload it again")
        for name, value in shown.items():
            if name == "dtype" and value != full[name]:
                raise invalid(f"{path}.dtype is {value!r} but {full[name]!r} in the uploaded payload")
            if name != "chunks":  # later chunks may be left out of a stand-in
                refuse_other_shape(value, full[name], f"{path}.{name}")
    elif isinstance(stand_in, list) and isinstance(uploaded, list):
        listed, whole = cast("Sequence[Any]", stand_in), cast("Sequence[Any]", uploaded)
        if any(isinstance(item, Mapping) for item in listed):
            if len(listed) != len(whole):
                raise invalid(f"{path} announces {len(listed)} items, the uploaded payload holds {len(whole)}")
            for index, (item, other) in enumerate(zip(listed, whole, strict=True)):
                refuse_other_shape(item, other, f"{path}[{index}]")
