"""Run the service in this process, on a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from typing import TYPE_CHECKING

import uvicorn

from samplekit.chat.load import TINY
from samplekit.errors import SampleError, ServiceError
from samplekit.sample.kinds import is_whole_number
from samplekit.server.access import require_token
from samplekit.server.app import create_app
from samplekit.server.json_log import fields
from samplekit.server.listening import HOST, listen

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from starlette.applications import Starlette

    from samplekit.server.model_loading import LoadedModel
    from samplekit.server.service import Service

LARGEST_PORT = 65535
START_TIMEOUT = 30.0
GRACE_SECONDS = 1
# Longer than any pause of a polling client, so that none meets a connection that is just being closed.
KEEP_ALIVE_SECONDS = 75

logger = logging.getLogger(__name__)
# Without a handler, Python prints warnings on standard error: a script that starts a service decides what it shows.
for _name in ("samplekit.server", "uvicorn"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class LocalService:
    """A training service on this machine, reachable from this machine only.

    Use it as a context manager; leaving it finishes the operation that runs and frees the port.

    Attributes:
        service: its state, for tests that count.
    """

    def __init__(
        self,
        *,
        model: str | LoadedModel = TINY,
        port: int = 0,
        token: str | None = None,
        state_dir: str | Path | None = None,
    ) -> None:
        """Prepare a service; nothing is loaded before it is entered.

        Args:
            model: ``samplekit/tiny``, a Hugging Face path or id, or a model loaded before.
            port: 0 takes a free one.
            token: what clients must send as bearer token; None lets every client of this machine in.
            state_dir: where sessions outlive the process, see `create_app`; None keeps nothing.

        Raises:
            SampleError: the port or the token is none.
        """
        self._model = model
        self._port = _port(port)
        self._token = None if token is None else require_token(token)
        self._state_dir = state_dir
        self._url: str | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._service: Service | None = None

    @property
    def url(self) -> str:
        """The base URL for clients."""
        if self._url is None:
            raise RuntimeError("the service is not running: enter it with 'with LocalService() as service'")
        return self._url

    @property
    def service(self) -> Service:
        """The state of the running service."""
        if self._service is None:
            raise RuntimeError("the service is not running: enter it with 'with LocalService() as service'")
        return self._service

    def start(self) -> Self:
        """Load the model, listen, and return once requests are answered.

        Raises:
            SampleError: the model cannot be loaded.
            ServiceError: the port cannot be listened on, or the service did not start; nothing of it is left.
        """
        if self._server is not None:
            raise RuntimeError("the service is running already")
        with contextlib.ExitStack() as undo:
            listener = listen(self._port)
            undo.callback(listener.close)
            app = create_app(self._model, token=self._token, state_dir=self._state_dir)
            undo.callback(app.state.service.close)
            undo.callback(self.stop)
            self._serve(app, listener)
            undo.pop_all()
        self._service = app.state.service
        self._url = f"http://{HOST}:{listener.getsockname()[1]}"
        told = fields("started", model=self.service.model.name, url=self.url)
        logger.info("serving %s on %s", self.service.model.name, self.url, extra=told)
        return self

    def _serve(self, app: Starlette, listener: socket.socket) -> None:
        """Answer requests on a thread; returns once the first can come."""
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            ws="none",
            lifespan="on",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        self._server = server = uvicorn.Server(config)
        self._ended = ended = threading.Event()

        def run() -> None:
            try:
                server.run([listener])
            finally:
                ended.set()

        self._thread = threading.Thread(target=run, name="samplekit-service", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + START_TIMEOUT
        while not server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise ServiceError(f"the service did not start within {START_TIMEOUT:.0f} s: see the log of uvicorn")
            time.sleep(0.005)

    def stop(self) -> None:
        """Stop listening, finish the operation that runs, and wait until all threads have ended."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        self._ended.wait()
        self._thread.join()
        self._server = self._thread = self._service = self._url = None

    def wait(self) -> None:
        """Block until the service ends or the caller is interrupted."""
        # Not by `join`: CPython 3.11 takes a thread for ended whose `join` was interrupted.
        while self._thread is not None and not self._ended.wait(0.2):
            pass

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _port(port: object) -> int:
    if not is_whole_number(port) or not 0 <= port <= LARGEST_PORT:
        raise SampleError(f"port is {port!r}, expected a whole number of 0 (a free one) to {LARGEST_PORT}")
    return int(port)
