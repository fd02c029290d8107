"""Who may come in, and a name for every request."""

from __future__ import annotations

import hmac
import logging
import secrets
import time
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders

from samplekit.server.payload_routes import PAYLOAD_PREFIX
from samplekit.server.refusals import error_response
from samplekit.wire.names import AUTHORIZATION, REQUEST_ID

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

# Payload URLs are signed and carry no Authorization; health is nobody's secret.
OPEN_PATHS = ("/healthz", PAYLOAD_PREFIX)


class Gate:
    """Lets in who knows the token, gives each answer a request id, and logs each request."""

    def __init__(self, app: ASGIApp, *, token: str | None = None) -> None:
        """Stand before ``app``; without a token everyone may come in."""
        self._app = app
        self._expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id, started = secrets.token_hex(8), time.perf_counter()

        async def tagged(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
                took = time.perf_counter() - started
                logger.info(
                    "%s %s -> %d in %.3f s (%s)", scope["method"], scope["path"], message["status"], took, request_id
                )
            await send(message)

        if self._admits(scope):
            await self._app(scope, receive, tagged)
        else:
            refused = "the Authorization header does not hold this service's token: send it as 'Bearer <token>'"
            await error_response(401, refused, {"www-authenticate": "Bearer"})(scope, receive, tagged)

    def _admits(self, scope: Scope) -> bool:
        if self._expected is None or scope["path"].startswith(OPEN_PATHS):
            return True
        given = Headers(scope=scope).get(AUTHORIZATION, "")
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._expected)
