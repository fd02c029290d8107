"""A server on this machine that answers with bytes nobody should take: endless, huge, deep, or compressed to death."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Self

OK = b"HTTP/1.1 200 OK\r\n"
PIECE = b" " * 65_536


class HostileServer:
    """Sends what stands under the first line of a request that begins so; counts requests and the bytes it got rid of.

    ``answers`` maps such a beginning to a callable that gives pieces of a whole raw HTTP answer.
    """

    def __init__(self, answers: dict[str, Callable[[], Iterable[bytes]]]) -> None:
        self.answers, self.lines = answers, list[str]()
        self.num_bytes = 0
        server = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                line = self.rfile.readline().decode()
                length = 0
                while (header := self.rfile.readline().strip().lower()) != b"":
                    if header.startswith(b"content-length:"):
                        length = int(header.partition(b":")[2])
                self.rfile.read(length)
                server.lines.append(line.strip())
                (found,) = [give for start, give in server.answers.items() if line.startswith(start)]
                with contextlib.suppress(OSError):  # the client has hung up, as it should
                    for piece in found():
                        self.wfile.write(piece)
                        server.num_bytes += len(piece)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def endless(head: bytes = OK, piece: bytes = PIECE, *, most: int = 1 << 30) -> Callable[[], Iterator[bytes]]:
    """A body without a length that does not end before a gibibyte."""

    def give() -> Iterator[bytes]:
        yield head + b"\r\n"
        for _ in range(most // len(piece)):
            yield piece

    return give


def whole(body: bytes, head: bytes = OK) -> Callable[[], list[bytes]]:
    """An ordinary answer."""
    return lambda: [b"%sContent-Length: %d\r\nConnection: close\r\n\r\n" % (head, len(body)), body]
