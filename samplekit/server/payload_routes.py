"""Payloads: signed URLs, writing and reading them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.responses import FileResponse, Response

from samplekit.server.refusals import JSON_TYPE, Refusal, not_found
from samplekit.server.requests import json_response, limited, service_of
from samplekit.wire.names import PAYLOAD_LIMIT_BYTES

if TYPE_CHECKING:
    from starlette.requests import Request

    from samplekit.server.service import Service

PAYLOAD_PREFIX = "/payloads/"
PAYLOAD_PATH = PAYLOAD_PREFIX + "{payload_id}"


async def upload_url(request: Request) -> Response:
    """Give the URL that a large body is to be PUT to."""
    service = service_of(request)
    session = service.find_session(request.path_params["session_id"])
    payload_id = service.payloads.create(session.id)
    return json_response({"payload_id": payload_id, "upload_url": _signed_url(request, service, payload_id)})


async def download_url(request: Request) -> Response:
    """Give the URL that a large result is to be read from."""
    service = service_of(request)
    session = service.find_session(request.path_params["session_id"])
    payload_id = request.path_params["payload_id"]
    if service.payloads.owned(payload_id, session.id) is None:
        raise not_found("payload of this session", payload_id)
    return json_response({"download_url": _signed_url(request, service, payload_id)})


async def put_payload(request: Request) -> Response:
    """Write a payload, whole or not at all; a try that was given up may still be on its way beside its retry."""
    service, payload_id = _admitted(request)
    try:
        with service.payloads.writing(payload_id) as file:
            async for piece in limited(request, PAYLOAD_LIMIT_BYTES):
                file.write(piece)
    except KeyError:
        raise not_found("payload", payload_id) from None
    return Response(status_code=200)


async def get_payload(request: Request) -> Response:
    """Read a payload."""
    service, payload_id = _admitted(request)
    path = service.payloads.path(payload_id)
    if not path.exists():
        raise not_found("payload", payload_id)
    return FileResponse(path, media_type=JSON_TYPE)


def _admitted(request: Request) -> tuple[Service, str]:
    service = service_of(request)
    payload_id = request.path_params["payload_id"]
    if not service.payloads.is_signed(payload_id, request.query_params.get("signature", "")):
        raise Refusal(403, f"the URL of payload {payload_id!r:.80} is not signed by this service: ask for a new one")
    return service, payload_id


def _signed_url(request: Request, service: Service, payload_id: str) -> str:
    query = urlencode({"signature": service.payloads.signature(payload_id)})
    return f"{str(request.base_url).rstrip('/')}{PAYLOAD_PREFIX}{payload_id}?{query}"
