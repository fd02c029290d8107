"""Submitting operations and asking after them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import secrets
from typing import TYPE_CHECKING

import orjson

from samplekit.server.planning import plan_operation
from samplekit.server.records import Operation
from samplekit.server.refusals import Refusal, invalid, not_found
from samplekit.server.requests import MAX_BODY_BYTES, json_response, receive_bytes, service_of
from samplekit.wire.names import IDEMPOTENCY_KEY, SHOULD_RETRY, OperationKind

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from samplekit.server.service import Service

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
        payload_id, work = await service.parse(lambda: plan_operation(raw, kind, key, session, service))
        # While the body was parsed, a retry may have been accepted or the session stopped.
        known = service.find_accepted(session, key, kind, digest)
        if known is None:
            service.refuse_inactive(session)
            known = Operation(f"op-{secrets.token_hex(8)}", kind, key, digest, work, payload_id)
            service.accept(session, known, raw)
    return await _shown(service, known)


async def get_operation(request: Request) -> Response:
    """Show an operation."""
    service = service_of(request)
    session = service.find_session(request.path_params["session_id"])
    identifier = request.path_params["operation_id"]
    operation = session.operations.get(identifier)
    if operation is None or operation.kind != _kind(request):
        raise not_found(f"{request.path_params['kind']} operation of this session", identifier)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(operation.wait(), POLL_WAIT)
    if operation.outcome is None and session.error:
        # Neither FAILED nor COMPLETED: it may yet be either. Nothing will come of asking again before a new start.
        raise Refusal(503, f"{operation.kind} {operation.id} has not ended: {session.error}", {SHOULD_RETRY: "false"})
    return await _shown(service, operation)


async def _shown(service: Service, operation: Operation) -> Response:
    outcome = operation.outcome
    if outcome is not None and outcome.output is None:  # on disk
        output = await service.parse(lambda: service.outcomes.read(operation))
        outcome = dataclasses.replace(outcome, output=output)
    return json_response(orjson.Fragment(operation.to_json(outcome)))


def _kind(request: Request) -> OperationKind:
    name = request.path_params["kind"]
    if name not in set(OperationKind):
        raise Refusal(404, f"there is no operation {name!r:.80}, expected one of {', '.join(OperationKind)}")
    return OperationKind(name)
