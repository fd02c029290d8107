"""What went wrong with a request -> the answer that says so."""

from __future__ import annotations

import logging
import sqlite3
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from samplekit.server.failures import named
from samplekit.server.refusals import Refusal, error_response
from samplekit.server.requests import TOO_DEEP
from samplekit.wire.names import SHOULD_RETRY

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

logger = logging.getLogger(__name__)

_LONGEST_PATH = 200


async def _refused(request: Request, refusal: Refusal) -> Response:
    logger.warning("refused %s %s with %d: %s", request.method, request.url.path, refusal.status, refusal.message)
    return error_response(refusal.status, refusal.message, refusal.headers)


async def _disconnected(request: Request, _error: ClientDisconnect) -> Response:
    logger.warning("%s %s: the client went away before its body was here", request.method, request.url.path)
    return error_response(400, "the body ended early: send it again")  # nobody hears it


async def _too_deep(request: Request, _error: RecursionError) -> Response:
    logger.warning("refused %s %s: its body is nested too deep", request.method, request.url.path)
    return error_response(400, TOO_DEEP)


async def _unkept(request: Request, error: Exception) -> Response:
    """Say that nothing was done, for what is done is recorded first: that is safe to try again."""
    logger.error("%s %s: the service's files cannot be used", request.method, request.url.path, exc_info=error)
    message = f"the service cannot use its files ({named(error)}), and did nothing: free its disk, then try again"
    return error_response(503, message, {SHOULD_RETRY: "true"})


async def _http_error(request: Request, error: HTTPException) -> Response:
    asked = f"{request.method} {request.url.path}"
    if error.status_code == 405:
        message = (
            f"{asked:.200} is not a call of this service: the path takes {(error.headers or {}).get('Allow', 'none')}"
        )
    else:
        paths = [route.path for route in request.app.routes]
        nearest = get_close_matches(request.url.path[:_LONGEST_PATH], paths, 1, 0)
        message = f"{asked:.200} is not a path of this service; the nearest is {', '.join(nearest)}"
    return error_response(error.status_code, message, error.headers)


HANDLERS: dict[Any, Any] = {
    Refusal: _refused,
    HTTPException: _http_error,
    ClientDisconnect: _disconnected,
    RecursionError: _too_deep,
    OSError: _unkept,
    sqlite3.Error: _unkept,
}
"""How starlette answers what a route raises."""
