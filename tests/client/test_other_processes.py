"""A client in a forked process, and an async client on another event loop."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from service_double import KEY, SESSION, URL, Double

import samplekit as sk
from samplekit.client import AsyncClient, Client
from samplekit.client.connections import Connections


class Handler(BaseHTTPRequestHandler):
    """Answers what it is asked about, and keeps which connection each process used."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.used.append((self.path, self.client_address[1]))
        identity = self.path.rpartition("/")[2]
        found = {"id": identity, "status": "TRAINING_SESSION_STATUS_RUNNING", "base_model": "m"}
        if self.path.endswith("supported-models"):
            found = {"data": []}
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        found.daemon_threads, found.used = True, []
        thread = threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def in_child(work):
    """Do work in a forked process; give what it returned, as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = str(work())
        except BaseException as error:  # noqa: BLE001 - told to the parent
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_takes_connections_of_its_own(server):
    with Client(base_url=f"http://127.0.0.1:{server.server_address[1]}", api_key=KEY) as client:
        assert client.attach("mine").id == "mine"
        assert in_child(lambda: [client.attach(f"child-{n}").id for n in range(3)]) == str(
            [f"child-{n}" for n in range(3)]
        )
        assert client.attach("mine").id == "mine"
    ports = {name: {port for path, port in server.used if name in path} for name in ("mine", "child")}
    assert len(ports["mine"]) == len(ports["child"]) == 1
    assert ports["mine"].isdisjoint(ports["child"])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_closes_what_is_its_own_and_needs_no_lock_of_its_parents(server):
    client = Client(base_url=f"http://127.0.0.1:{server.server_address[1]}", api_key=KEY)
    client.attach("mine")

    def leave():
        client.close()
        return client._connections.http.is_closed

    with client._connections.http._transport._pool._optional_thread_lock:  # as another thread may at the fork
        assert in_child(leave) == "True"
    assert client.attach("mine").id == "mine"
    client.close()
    assert "is closed: make a new one" in in_child(lambda: client.attach("child"))


def test_one_process_keeps_its_connections():
    made = []

    def make():
        made.append(httpx.Client())
        return made[-1]

    connections = Connections(make)
    assert connections.http is connections.http is made[0]
    assert len(made) == 1
    made[0].close()


def test_an_async_client_on_another_loop_is_refused_by_name():
    client = AsyncClient(base_url=URL, api_key=KEY, transport=httpx.MockTransport(Double()))

    async def attach():
        return await client.attach(SESSION)

    session = asyncio.run(attach())

    async def step():
        return await session.optim_step(learning_rate=1.0)

    for again in (attach, step):
        with pytest.raises(sk.ServiceError, match=r"used on another event loop before.*inside each asyncio\.run"):
            asyncio.run(again())


def test_an_async_client_is_made_before_the_loop_that_it_is_used_on():
    client = AsyncClient(base_url=URL, api_key=KEY, transport=httpx.MockTransport(Double()))

    async def attach():
        async with client:
            return [(await client.attach(SESSION)).id for _ in range(2)]

    assert asyncio.run(attach()) == [SESSION] * 2
