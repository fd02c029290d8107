"""Who may come in, and a name for every request."""

from __future__ import annotations

import hmac
import logging
import secrets
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders

from samplekit.errors import SampleError
from samplekit.server.checkpoint_routes import FILE_PREFIX
from samplekit.server.incoming import Incoming
from samplekit.server.json_log import fields
from samplekit.server.payload_routes import PAYLOAD_PREFIX
from samplekit.server.refusals import error_response
from samplekit.wire.names import AUTHORIZATION, REQUEST_ID

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

FIRST_ERROR = 400
# URLs of payloads and files are signed and carry no Authorization; health is nobody's secret.
OPEN_PATHS = ("/healthz", PAYLOAD_PREFIX, FILE_PREFIX)
# What this machine calls itself, and what starlette's test client calls it. Any other name in a request means that a
# web page had its own name resolved to this machine (DNS rebinding) and speaks through somebody's browser.
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1", "testserver"})


class Gate:
    """Lets in who knows the token, gives each answer a request id, and logs each request."""

    def __init__(self, app: ASGIApp, *, token: str | None = None) -> None:
        """Stand before ``app``; without a token everyone may come in who asks for this machine by a local name."""
        self._app = app
        self._expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id, started = secrets.token_hex(8), time.perf_counter()

        body = Incoming(scope, receive)

        async def tagged(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] >= FIRST_ERROR:
                    await body.drain()
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
                _log(scope, message["status"], time.perf_counter() - started, request_id)
            await send(message)

        await (self._refusal(scope) or self._app)(scope, body.receive, tagged)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if self._expected is None:
            return None if _is_local(headers.get("host", "")) else _other_host(headers.get("host", ""))
        given = headers.get(AUTHORIZATION, "").encode("utf-8", "replace")
        if scope["path"].startswith(OPEN_PATHS) or hmac.compare_digest(given, self._expected):
            return None
        refused = "the Authorization header does not hold this service's token: send it as 'Bearer <token>'"
        return error_response(401, refused, {"www-authenticate": "Bearer"})


def _log(scope: Scope, status: int, seconds: float, request_id: str) -> None:
    """Write a request down: its path, never its query, which holds signatures, nor its headers or body."""
    method, path = scope["method"], scope["path"]
    told = fields("request", method=method, path=path, status=status, seconds=round(seconds, 6), request_id=request_id)
    logger.info("%s %s -> %d in %.3f s (%s)", method, path, status, seconds, request_id, extra=told)


def _is_local(host: str) -> bool:
    try:
        return urlsplit(f"//{host}").hostname in LOCAL_HOSTS
    except ValueError:
        return False


def _other_host(host: str) -> Response:
    return error_response(
        400,
        f"the Host header is {host!r:.80}, expected 127.0.0.1 or localhost: to serve other names, start with a token",
    )


def require_token(token: object) -> str:
    """Take a token that a client can send: the ends of a header are stripped on the way.

    Raises:
        SampleError: nobody can send it; the message does not show it.
    """
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or token != token.strip():
        raise SampleError("token holds spaces at its ends or characters no header has: pass it without them")
    if not token:
        raise SampleError(
            "token is empty, and nobody can send that: pass one, or none at all to let in every client of this machine"
        )
    return token
