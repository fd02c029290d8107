"""What the protocol takes from the world besides the network: time, sleep, chance, new keys."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from samplekit.client.progress import Listener, TerminalLine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping


def new_key() -> str:
    """Make an idempotency key that no other call will ever have."""
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Runtime:
    """Clock, sleep and chance, handed in so that tests decide them.

    Attributes:
        clock: seconds that only grow; deadlines are read from it.
        wall_clock: seconds since 1970, for dates in headers.
        sleep: waits so many seconds, blocking.
        async_sleep: the same, awaited.
        random: uniform in [0, 1), for jitter.
        new_key: makes idempotency keys.
        uploads: payload ids by idempotency key, where another process may submit the same call again: under one key the
            service takes one body only, and that names its payload. None remembers them here until a call is accepted.
        listener: told of progress; the default shows it in a terminal, and nothing elsewhere.
    """

    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    async_sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    new_key: Callable[[], str] = new_key
    uploads: MutableMapping[str, str] | None = None
    listener: Listener = field(default_factory=TerminalLine)
