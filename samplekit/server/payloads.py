"""Bodies and results too large to be sent inline, kept on disk."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import IO, TYPE_CHECKING

from samplekit.errors import ServiceError
from samplekit.server.folders import flush, private_folder

if TYPE_CHECKING:
    from collections.abc import Generator

_SECRET_BYTES = 32
# How ids of uploads begin, which end with their session at the latest; results are kept.
_UPLOAD = "pl-up-"


class PayloadStore:
    """Files that a URL, not a key, gives access to: whoever holds the signed URL may read or write that one file.

    Payloads are given out, written and dropped on the event loop; `store` and `content` run on any thread.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Keep payloads in ``folder``, or in a temporary one that `close` removes."""
        self._folder = folder if folder is not None else Path(tempfile.mkdtemp(prefix="samplekit-payloads-"))
        try:
            private_folder(self._folder)
        except OSError as error:
            raise ServiceError(f"payloads cannot be kept in {folder} ({error.strerror}): choose another") from error
        # Runs at close, when the store is forgotten, or at exit: a service that never ran leaves no folder behind.
        self._remove = None if folder is not None else weakref.finalize(self, shutil.rmtree, self._folder, True)
        for left in self._folder.glob("*.partial"):  # of a process that was killed
            left.unlink()
        # Names say whose a payload is, so that a restarted service knows; one that waits for its content is empty.
        names = [path.name.split(".") for path in self._folder.glob("pl-*.*.*")]
        self._owners = {payload_id: session_id for payload_id, session_id, _ in names}
        self._secret = secrets.token_bytes(_SECRET_BYTES) if folder is None else _kept_secret(folder / "secret")

    def create(self, session_id: str) -> str:
        """Give the id of a new upload of a session; it has no content yet."""
        payload_id = f"{_UPLOAD}{secrets.token_hex(12)}"
        self._owners[payload_id] = session_id
        self.path(payload_id).with_suffix(".waiting").touch()
        return payload_id

    def path(self, payload_id: str) -> Path:
        """Give where the content of a payload is, once there is any; an id that was never given out has none."""
        return self._folder / f"{payload_id}.{self._owners.get(payload_id)}.json"

    def owned(self, payload_id: str, session_id: str) -> Path | None:
        """Give the file of a session's payload, None where it has no such payload or no content."""
        path = self._folder / f"{payload_id}.{session_id}.json"
        return path if self._owners.get(payload_id) == session_id and path.exists() else None

    def content(self, payload_id: str, session_id: str) -> bytes | None:
        """Read a session's payload for an operation, which may be accepted then: a loss of power leaves it there.

        None where the session has no such payload, or no content, or it was dropped meanwhile.
        """
        path = self.owned(payload_id, session_id)
        if path is None:
            return None
        try:
            self._settle(path)
            return path.read_bytes()
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def writing(self, payload_id: str) -> Generator[IO[bytes]]:
        """Give a file of one's own, which becomes the payload's content when the block ends, and vanishes if it fails.

        Whoever ends last has written it; nobody else's bytes are in it.

        Raises:
            KeyError: there is no such payload, or not any more.
        """
        with tempfile.NamedTemporaryFile("wb", dir=self._folder, suffix=".partial", delete=False) as file:
            partial = Path(file.name)
            try:
                yield file
                file.flush()
                if payload_id not in self._owners:
                    raise KeyError(payload_id)
                partial.replace(self.path(payload_id))
                self.path(payload_id).with_suffix(".waiting").unlink(missing_ok=True)
            finally:
                partial.unlink(missing_ok=True)

    def store(self, session_id: str, content: bytes) -> str:
        """Write a result, which outlasts a loss of power, and give its id."""
        payload_id = f"pl-{secrets.token_hex(12)}"
        self._owners[payload_id] = session_id
        with self.writing(payload_id) as file:
            file.write(content)
        self._settle(self.path(payload_id))
        return payload_id

    def outcome_path(self, operation_id: str) -> Path:
        """Give where the result of an operation is kept that left memory; no URL leads there."""
        return self._folder / f"{operation_id}.outcome"

    def uploads(self, session_id: str) -> list[str]:
        """Name what was or is to be uploaded for a session and is still there."""
        owners = self._owners.copy()  # in one piece: results come on another thread
        return [name for name, owner in owners.items() if owner == session_id and name.startswith(_UPLOAD)]

    def discard(self, payload_id: str) -> None:
        """Forget a payload and its file."""
        if payload_id in self._owners:
            for suffix in (".json", ".waiting"):
                self.path(payload_id).with_suffix(suffix).unlink(missing_ok=True)
            del self._owners[payload_id]

    def signature(self, name: str) -> str:
        """Sign what a URL gives access to: a payload by its id, or any other file by a name that is no such id."""
        return hmac.new(self._secret, name.encode("utf-8", "replace"), hashlib.sha256).hexdigest()

    def matches(self, name: str, signature: str) -> bool:
        """Tell whether a signature, any text, is that of a name."""
        return hmac.compare_digest(self.signature(name).encode(), signature.encode("utf-8", "replace"))

    def is_signed(self, payload_id: str, signature: str) -> bool:
        """Tell whether a URL was signed by this store, for a payload that still exists."""
        return payload_id in self._owners and self.matches(payload_id, signature)

    def _settle(self, path: Path) -> None:
        if self._remove is None:  # the folder outlives the process
            flush(path)
            flush(self._folder)

    def close(self) -> None:
        """Remove the temporary folder, if it was one."""
        if self._remove is not None:
            self._remove()


def _kept_secret(path: Path) -> bytes:
    """Read the secret that signs URLs, or draw one that only this user can read: URLs outlive a restart.

    Raises:
        ServiceError: it cannot be read, or was cut short: with a short one others could sign.
    """
    try:
        if not path.exists():
            partial = path.with_suffix(".partial")
            partial.touch(mode=0o600)
            partial.write_bytes(secrets.token_bytes(_SECRET_BYTES))
            flush(partial)
            partial.replace(path)
            flush(path.parent)
        found = path.read_bytes()
    except OSError as error:
        raise ServiceError(
            f"{path} cannot be used ({error.strerror}): put it right or choose another folder"
        ) from error
    if len(found) != _SECRET_BYTES:
        raise ServiceError(
            f"{path} holds {len(found)} bytes, expected {_SECRET_BYTES}: put a copy back, or remove it, which ends the "
            "URLs that were given out"
        )
    return found
