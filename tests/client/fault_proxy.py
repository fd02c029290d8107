"""A proxy between client and service that loses answers on purpose."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

FAULTS = ("drop_before", "drop_after", "reset_after", "cut_after", "error_after")
_OWN = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class FaultProxy:
    """Forward everything to a service; for the next requests of a kind, do what was asked for instead.

    drop_before: the service never sees the request. drop_after: it answers, and the connection closes without a word.
    reset_after: likewise with a TCP reset. cut_after: half of the body arrives. error_after: a 502 arrives instead.
    """

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self._plan: list[tuple[str, str, str]] = []
        self._lock = threading.Lock()
        self.forwarded: list[tuple[str, str]] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_any(self) -> None:
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

    def fail_next(self, start: str, end: str, *faults: str) -> None:
        """Let the next requests whose "METHOD path" starts and ends like this meet a fault each."""
        self._plan += [(start, end, fault) for fault in faults]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _fault(self, line: str) -> str | None:
        with self._lock:
            for index, (start, end, fault) in enumerate(self._plan):
                if line.startswith(start) and line.endswith(end):
                    del self._plan[index]
                    return fault
        return None

    def handle(self, client: BaseHTTPRequestHandler) -> None:
        body = client.rfile.read(int(client.headers.get("content-length", 0)))
        fault = self._fault(f"{client.command} {client.path}")
        if fault == "drop_before":
            client.close_connection = True
            return
        status, headers, answer = self._forward(client, body)
        if fault == "error_after":
            status, headers, answer = 502, [], b"bad gateway"
        if fault in {"drop_after", "reset_after"}:
            if fault == "reset_after":
                client.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close_connection = True
            client.connection.close() if fault == "reset_after" else client.connection.shutdown(socket.SHUT_RDWR)
            return
        client.send_response(status)
        for name, value in headers:
            client.send_header(name, value)
        client.send_header("content-length", str(len(answer)))
        client.end_headers()
        cut = fault == "cut_after"
        client.wfile.write(answer[: len(answer) // 2] if cut else answer)
        client.close_connection = client.close_connection or cut

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
