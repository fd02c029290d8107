"""The body of a request that is refused: it is read to its end, or the caller never hears the answer."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope

# A connection is reset where bytes arrive after it was closed, and many clients send all before they read.
DRAINED_BYTES = 1_073_741_824
DRAINED_SECONDS = 30.0


class Incoming:
    """A request's body, and how much of it is still to come."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        """Receive by ``receive``."""
        self._receive = receive
        self._more = True
        # Who asks first sends no body once it is refused.
        self._asks_first = "expect" in Headers(scope=scope)

    async def receive(self) -> Message:
        """Give the next piece."""
        message = await self._receive()
        self._more = bool(message.get("more_body", False))
        self._asks_first = False
        return message

    async def drain(self) -> None:
        """Read what is still to come and drop it, within reason."""
        left = DRAINED_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAINED_SECONDS):
                while self._more and not self._asks_first and left > 0:
                    left -= len((await self.receive()).get("body", b""))
