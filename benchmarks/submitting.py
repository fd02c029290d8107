"""A batch on its way to a service that takes every byte and answers at once: what submitting costs the client.

The service is a process of its own, so that its time is not counted, and bytes go through a socket, as they must.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import json
import subprocess
import sys
import weakref
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, Protocol

import httpx

from benchmarks.row import Work, require

SESSION = "ts-1"
OPERATIONS = f"/v1/rl/training-sessions/{SESSION}/operations/forward-backward"
UPLOAD_URL = f"/v1/rl/training-sessions/{SESSION}/payloads/upload-url"
INLINE_BYTES = 524_288
_PIECE = 1 << 20


class Sink:
    """The service: started at once, ended with this process."""

    def __init__(self) -> None:
        code = "from benchmarks.submitting import serve; serve()"
        self._process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        atexit.register(self.close)

    def largest(self) -> bytes:
        """Give the largest body since this was asked last: the batch."""
        return httpx.get(f"{self.url}/largest", trust_env=False).content

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.communicate()


def serve() -> None:
    """Serve in this process, and print the port."""
    bodies: list[bytes] = []
    numbers = itertools.count()  # of what is new: no two calls are given the same

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_any(self) -> None:
            left, pieces = int(self.headers.get("content-length") or 0), list[bytes]()
            while left:
                pieces.append(self.rfile.read(min(left, _PIECE)))
                left -= len(pieces[-1])
            if pieces:
                bodies.append(b"".join(pieces))
                del bodies[:-3]  # those of one batch
            answer = self._answer()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PUT = do_any  # noqa: N815 - the names that http.server calls

        def _answer(self) -> bytes:
            if self.path == "/largest":
                found = max(bodies, key=len)
                bodies.clear()
                return found
            if self.path == UPLOAD_URL:
                return json.dumps(
                    {"payload_id": f"p-{next(numbers)}", "upload_url": f"http://{self.headers['host']}/up"}
                ).encode()
            if self.path == OPERATIONS:
                output = {"loss": 1.0, "metrics": {}}
                return json.dumps(
                    {"id": f"op-{next(numbers)}", "status": "TRAINING_OPERATION_STATUS_COMPLETED", "output": output}
                ).encode()
            running = {"id": SESSION, "status": "TRAINING_SESSION_STATUS_RUNNING", "base_model": "m"}
            return json.dumps({**running, "model_resources_id": "r", "data": []}).encode()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


class Submitter(Protocol):
    """Sends batches to a service."""

    def __init__(self, url: str) -> None: ...

    def submit(self, samples: Iterable[Any]) -> None:
        """Check, print and send a batch."""
        ...


class Ours:
    """Submits Samples with our client."""

    def __init__(self, url: str) -> None:
        from samplekit import ImportanceSampling
        from samplekit.client import Client

        self._loss = ImportanceSampling()
        client = Client(base_url=url, api_key="key")
        weakref.finalize(self, client.close)
        self._session = client.attach(SESSION)

    def submit(self, samples: Iterable[Any]) -> None:
        """Check, print and send a batch."""
        self._session.forward_backward(samples, self._loss).result()


class Sdk:
    """Submits dicts with together's client: the coroutine that its trainer runs for a batch."""

    def __init__(self, url: str) -> None:
        require("together.post_training")
        from together import AsyncTogether

        self._make = lambda: AsyncTogether(api_key="key", base_url=url, max_retries=0)

    def submit(self, samples: Iterable[Any]) -> None:
        """Coerce, print and send a batch."""
        asyncio.run(self._submit(samples))

    async def _submit(self, samples: Iterable[Any]) -> None:
        from together.post_training.clients import trainer

        loss: Any = {"type": "LOSS_TYPE_IMPORTANCE_SAMPLING"}
        async with self._make() as client:
            session: Any = SimpleNamespace(_client=client, _session_id=SESSION)
            await trainer._submit_forward_backward(session, samples=samples, loss=loss)  # noqa: SLF001


def upload_of(body: bytes, url: str) -> Work:
    """Give the floor: a body that is there already, uploaded in three requests (or sent in one where it is small)."""
    client = httpx.Client(base_url=url, trust_env=False)
    stand_in = json.dumps({"loss": {}, "samples": [], "payload_id": "p"}).encode()
    is_large = len(body) > INLINE_BYTES

    def work() -> None:
        if is_large:
            client.post(UPLOAD_URL).json()
            client.put("/up", content=body)
        client.post(OPERATIONS, content=stand_in if is_large else body).json()

    weakref.finalize(work, client.close)
    return work
