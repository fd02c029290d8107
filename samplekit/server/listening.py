"""What can stop a service from starting, found before a model is loaded."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from samplekit.errors import ServiceError
from samplekit.server.folders import private_folder
from samplekit.server.journal import JOURNAL, close_journal, open_journal

if TYPE_CHECKING:
    from pathlib import Path

HOST = "127.0.0.1"


def listen(port: int) -> socket.socket:
    """Take a port of this machine; 0 takes a free one.

    Raises:
        ServiceError: it cannot be had.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        raise ServiceError(
            f"port {port} cannot be listened on ({error.strerror or error}): choose another, 0 takes a free one"
        ) from error
    return listener


def refuse_unusable(port: int, state_dir: Path | None, model_name: str) -> None:
    """Refuse a port or a state directory that the service could not use, as starting it would a while later.

    Raises:
        ServiceError: the port or the folder cannot be used, or another service uses it.
    """
    listen(port).close()
    if state_dir is None:
        return
    try:
        private_folder(state_dir)
    except OSError as error:
        raise ServiceError(f"state cannot be kept in {state_dir} ({error}): choose another folder") from error
    if (state_dir / JOURNAL).exists():  # else it is begun once there is a model
        close_journal(state_dir, open_journal(state_dir, model_name))
