"""A proxy between client and service that loses, spoils and refuses on purpose, on real sockets."""

from __future__ import annotations

import contextlib
import http.client
import io
import random
import socket
import struct
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

FAULTS = ("drop_before", "drop_after", "reset_after", "cut_after", "error_after")
# The service never sees the request: the connection ends, or the proxy refuses (status, headers).
REFUSALS = {
    "408": (408, {}), "408 asked": (408, {"retry-after": "1"}),
    "409": (409, {}), "409 asked": (409, {"retry-after": "1"}),
    "429": (429, {}), "429 asked": (429, {"retry-after": "2"}), "429 ms": (429, {"retry-after-ms": "150"}),
    "500": (500, {}), "502": (502, {}), "503": (503, {}), "503 asked": (503, {"retry-after": "1"}), "529": (529, {}),
}  # fmt: skip
UNSEEN = ("drop_before", "reset_request", *REFUSALS)
# The service has worked: what it says is lost, or comes too late, or as something else (status, body), or twice.
SPOILT = {
    "error_after": (502, b"bad gateway"), "504 after": (504, b""), "html after": (200, b"<html>busy</html>"),
    "list after": (200, b"[1]"), "bytes after": (200, b"\xff\xfe\x00"), "empty after": (200, b""),
}  # fmt: skip
LOST = ("drop_after", "reset_after", "cut_after", "reset_answer", "truncated_after", "late_after", *SPOILT)
SEEN = (*LOST, "twice")
ALL = (*UNSEEN, *SEEN)
_OWN = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class FaultProxy:
    """Forward everything to a service; for the next requests of a kind, do what was asked for instead.

    drop_before: the service never sees the request; reset_request: likewise, with a TCP reset when half of its body was
    read. drop_after: the service answers, and the connection closes without a word. reset_after: likewise with a TCP
    reset; reset_answer: with one when half of the body was sent. cut_after: half of the body arrives. truncated_after:
    half of the JSON arrives as a whole answer. late_after: nothing arrives until the client has given up. twice: the
    request is sent twice, and answered by its second answer. doubled: the answer is sent twice, at once. unknown: a 404. The others are named in REFUSALS and
    SPOILT.

    Attributes:
        forwarded: method and path of what the service saw.
        met: how often each fault was met.
        weather: asked for a fault where none is planned, by "METHOD path".
    """

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self._plan: list[tuple[str, str, str]] = []
        self._lock = threading.Lock()
        self.forwarded: list[tuple[str, str]] = []
        self.met: Counter[str] = Counter()
        self.weather: Weather | None = None
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # or each answer waits 40 ms for an acknowledgement

            def do_any(self) -> None:
                with contextlib.suppress(ConnectionError):  # the client went away, as some faults make it
                    proxy.handle(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_any

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def num_planned(self) -> int:
        """How many planned faults were not met."""
        return len(self._plan)

    def fail_next(self, start: str, end: str, *faults: str) -> None:
        """Let the next requests whose "METHOD path" starts and ends like this meet a fault each."""
        self._plan += [(start, end, fault) for fault in faults]

    def forget_plans(self) -> None:
        """Let what comes next meet no fault."""
        self._plan.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _fault(self, line: str) -> str | None:
        with self._lock:
            found = self._planned(line) or (self.weather.fault(line) if self.weather else None)
            self.met[found or ""] += 1
        return found

    def _planned(self, line: str) -> str | None:
        for index, (start, end, fault) in enumerate(self._plan):
            if line.startswith(start) and line.endswith(end):
                del self._plan[index]
                return fault
        return None

    def handle(self, client: BaseHTTPRequestHandler) -> None:
        length = int(client.headers.get("content-length", 0))
        fault = self._fault(f"{client.command} {client.path}")
        if fault == "reset_request":
            client.rfile.read(length // 2)
            return reset(client)
        body = client.rfile.read(length)
        if fault == "drop_before":
            client.close_connection = True
            return None
        if fault in REFUSALS or fault == "unknown":
            status, headers = REFUSALS.get(fault, (404, {}))
            return send(client, status, list(headers.items()), b"not now")
        status, found, answer = self._forward(client, body)
        if fault == "twice":
            status, found, answer = self._forward(client, body)
        if fault in SPOILT:
            (status, answer), found = SPOILT[fault], []
        return respond(client, fault, (status, found, answer))

    def _forward(self, client: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        with self._lock:
            self.forwarded.append((client.command, client.path))
        connection = http.client.HTTPConnection(self._target.hostname or "", self._target.port)
        headers = {name: value for name, value in client.headers.items() if name.lower() not in _OWN}
        connection.request(client.command, client.path, body, headers)
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        return response.status, [pair for pair in response.getheaders() if pair[0].lower() not in _OWN], answer


class Weather:
    """Chooses faults at random; never more than a few in a row for one line, so that retries suffice."""

    def __init__(self, seed: int, rate: float, faults: tuple[str, ...], most: int = 5) -> None:
        self._random = random.Random(seed)
        self._rate, self._faults, self._most = rate, faults, most
        self._in_a_row: Counter[str] = Counter()

    def fault(self, line: str) -> str | None:
        if self._in_a_row[line] >= self._most or self._random.random() >= self._rate:
            self._in_a_row[line] = 0
            return None
        self._in_a_row[line] += 1
        return self._random.choice(self._faults)


def reset(client: BaseHTTPRequestHandler) -> None:
    client.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close_connection = True
    client.wfile.flush()
    client.connection.close()


def respond(
    client: BaseHTTPRequestHandler, fault: str | None, answer: tuple[int, list[tuple[str, str]], bytes]
) -> None:
    """Pass an answer on, or do with it what a fault says."""
    status, headers, body = answer
    half = body[: len(body) // 2]
    if fault == "reset_after":
        reset(client)
    elif fault == "drop_after":
        client.close_connection = True
        client.connection.shutdown(socket.SHUT_RDWR)
    elif fault == "late_after":
        client.close_connection = True
        client.connection.settimeout(20)
        client.connection.recv(1)  # until the client hangs up
    elif fault in {"cut_after", "reset_answer"}:
        send(client, status, headers, half, length=len(body))
        client.close_connection = True
        if fault == "reset_answer":
            reset(client)
    elif fault == "truncated_after":
        send(client, status, headers, half)
    elif fault == "doubled":
        client.wfile, plain = io.BytesIO(), client.wfile
        send(client, status, headers, body)
        plain.write(client.wfile.getvalue() * 2)
        client.wfile = plain
    else:
        send(client, status, headers, body)


def send(
    client: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], body: bytes, length: int | None = None
) -> None:
    client.send_response(status)
    for name, value in headers:
        client.send_header(name, value)
    client.send_header("content-length", str(len(body) if length is None else length))
    client.end_headers()
    client.wfile.write(body)
