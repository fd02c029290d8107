"""Whose connections a client's are: those of one process, and of one event loop."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from samplekit.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx


class Connections:
    """The connections of a blocking client, made anew in a process that was forked.

    Two processes that share sockets mix up what they send and read. What was inherited is left alone, locks included.

    Args:
        make: makes an httpx client.
    """

    def __init__(self, make: Callable[[], httpx.Client]) -> None:
        self._make, self._http, self._process = make, make(), os.getpid()
        self._inherited: list[httpx.Client] = []  # kept, for what is collected is closed

    @property
    def http(self) -> httpx.Client:
        """The httpx client of this process."""
        if self._process != os.getpid():
            self._inherited.append(self._http)
            if not self._http.is_closed:
                self._http = self._make()
            self._process = os.getpid()
        return self._http


class LoopBond:
    """The event loop that an async client's connections live on, which is the first that it is used on.

    Args:
        base_url: of the client, for errors.
    """

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self._loop: asyncio.AbstractEventLoop | None = None

    def require(self) -> None:
        """Refuse to work on another loop.

        Raises:
            ServiceError: the running loop is another than before.
        """
        running = asyncio.get_running_loop()
        self._loop = self._loop or running
        if self._loop is not running:
            raise ServiceError(
                f"the AsyncClient of {self._base_url} was used on another event loop before, and its connections live "
                "there: make one inside each asyncio.run, and take sessions up with client.attach(session_id)"
            )
