"""A file that is being fetched: under a name of its own until it is whole, and held by one download at a time."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import threading
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from samplekit.errors import ServiceError

if TYPE_CHECKING:
    from samplekit.wire.listings import CheckpointFile

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger(__name__)


class PartFile:
    """A file that is being fetched.

    Whoever fetches it has it open and locked, from what is found there to the name it gets in the end, so that two
    processes never write to it by turns. The lock is on the file, not on its name: who waits for it sees afterwards
    whether that very file was finished meanwhile.

    Attributes:
        item: what the service says of it.
        num_bytes: of it are here; known once it is held.
    """

    def __init__(self, folder: Path, item: CheckpointFile, source: str) -> None:
        digest = hashlib.sha256(f"{source}/{item.size}".encode()).hexdigest()[:12]
        self.item, self.num_bytes = item, 0
        self._path, self._target = folder / f".{item.filename}.{digest}.part", folder / item.filename
        self._stream: FileIO | None = None
        self._is_held = False
        self._writing = threading.Lock()  # a cancelled download may still write from another thread

    @property
    def num_missing(self) -> int:
        """Bytes that are not here yet."""
        return self.item.size - self.num_bytes

    def hold(self) -> bool:
        """Take the file for this download alone; False where another has it, and then it is to be asked again."""
        while not self._is_held:
            self._stream = stream = self._stream or FileIO(self._path, "r+", opener=_open_or_make)
            if not _lock(stream):
                return False
            size = os.fstat(stream.fileno()).st_size
            self._is_held = _is_at(self._path, stream) or (size == self.item.size and _is_at(self._target, stream))
            if not self._is_held:  # whoever had it dropped it
                self.close()
                continue
            self.num_bytes = size
            if size > self.item.size:
                self.discard()
        return True

    def append(self, piece: bytes) -> None:
        """Keep the next bytes; none once the file was let go.

        Raises:
            ServiceError: they are more than the service said there are.
        """
        with self._writing:
            if self._stream is None:
                return
            if self.num_bytes + len(piece) > self.item.size:
                self.discard()
                raise ServiceError(
                    f"{self.item.filename} has more than the {self.item.size} bytes that the service named: "
                    "nothing of it was kept; report it to the service"
                )
            left = memoryview(piece)
            self._stream.seek(self.num_bytes)
            while left:
                written = self._stream.write(left)
                left = left[written:]
                self.num_bytes += written

    def discard(self) -> None:
        """Drop what is here."""
        if self._stream is not None:
            self._stream.truncate(0)
        self.num_bytes = 0

    def make_way(self) -> None:
        """Remove what has the file's name, unless it is this very file, which another download has finished."""
        with self._writing:
            if self._stream is not None and not _is_at(self._target, self._stream):
                self._target.unlink(missing_ok=True)

    def publish(self) -> Path:
        """Give the file its name, where it does not have it already.

        Raises:
            ServiceError: it is not as large as the service said.
            OSError: it was moved away, or cannot be written to the disk.
        """
        with self._writing:
            stream = self._stream
            if stream is None:
                raise ServiceError(f"{self.item.filename} is fetched no more: download it again")
            size = os.fstat(stream.fileno()).st_size
            if size != self.item.size:
                self.discard()
                raise ServiceError(
                    f"{self._path} holds {size} bytes, expected the {self.item.size} that the service named: something "
                    "else has written to it; nothing of it was kept, download it again"
                )
            if not _is_at(self._target, stream):
                os.fsync(stream.fileno())
                if sys.platform == "win32":
                    stream.close()  # what is open cannot be renamed there
                self._path.replace(self._target)
            self._is_held = False
            return self._target

    def close(self) -> None:
        """Let go of the file, for whoever waits for it; an empty one is dropped."""
        with self._writing:
            stream, self._stream = self._stream, None
            if stream is None:
                return
            is_empty = self._is_held and not self.num_bytes and _is_at(self._path, stream)
            self._is_held = False
            if sys.platform == "win32":
                stream.close()
            if is_empty:  # while it is locked still: whoever waits for it must see it gone
                self._path.unlink()
            stream.close()


def _open_or_make(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o666)


def _is_at(path: Path, stream: FileIO) -> bool:
    """Tell whether a path still leads to an open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(stream.fileno()))
    except FileNotFoundError:
        return False


def _lock(stream: FileIO) -> bool:
    """Lock a file; False where somebody else has. Where there are no locks, `publish` finds what went wrong."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # some network file systems have no locks
        logger.warning("%s cannot be locked (%s): download into its folder from one process at a time", stream.name,
                       error.strerror)  # fmt: skip
    return True
