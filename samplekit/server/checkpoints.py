"""Checkpoints on disk: one folder each, with a record of what it is; a folder that is there is whole."""

from __future__ import annotations

import logging
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from samplekit.errors import ServiceError
from samplekit.server.checkpoint_files import merged, read_weights, write_adapter, write_model
from samplekit.server.failures import named
from samplekit.server.folders import flush, private_folder
from samplekit.server.policy_state import PolicyState
from samplekit.server.settings import LoraSettings
from samplekit.server.timestamps import timestamp
from samplekit.wire.names import CheckpointType, CheckpointVariant

if TYPE_CHECKING:
    from collections.abc import Callable

    from samplekit.server.model_loading import LoadedModel
    from samplekit.server.policy import Policy

logger = logging.getLogger(__name__)

STATE_FILE = "training_state.safetensors"
_RECORD = "record.json"
_FOLDERS = {CheckpointVariant.ADAPTER: "adapter", CheckpointVariant.MERGED: "merged"}


@dataclass(frozen=True)
class Checkpoint:
    """What is known of a checkpoint without its weights.

    Attributes:
        id: given by the service.
        base_model: what was trained.
        session_id: which session saved it.
        step: optimizer steps done then.
        type: weights to serve, or the state to train on from.
        created_at: seconds since 1970.
        lora: how the session was adapted; None for full weights.
        by_muon: whether its optimizer's state is Muon's.
    """

    id: str
    base_model: str
    session_id: str
    step: int
    type: CheckpointType
    created_at: float
    lora: LoraSettings | None
    by_muon: bool

    def to_output(self) -> dict[str, Any]:
        """Show it as the operation that saved it does, and its session."""
        return {"id": self.id, "step": str(self.step), "created_at": timestamp(self.created_at)}

    def to_wire(self) -> dict[str, Any]:
        """Show it as lists do."""
        rank = {} if self.lora is None else {"lora_rank": self.lora.rank}
        known = {"base_model": self.base_model, "session_id": self.session_id, "type": self.type}
        return {**self.to_output(), **known, **rank}

    def to_record(self) -> bytes:
        """Give what `from_record` reads."""
        lora = None if self.lora is None else self.lora.model_dump()
        return orjson.dumps({**self.__dict__, "lora": lora})

    @classmethod
    def unread(cls, identifier: str) -> Checkpoint:
        """Stand for a checkpoint whose record is gone: whoever restores it finds out about its files."""
        return cls(identifier, "", "", 0, CheckpointType.TRAINING, 0.0, None, by_muon=False)

    @classmethod
    def from_record(cls, record: bytes) -> Checkpoint:
        """Read what `to_record` gave."""
        known: dict[str, Any] = orjson.loads(record)
        lora = None if known["lora"] is None else LoraSettings.model_validate(known["lora"])
        known |= {"lora": lora, "type": CheckpointType(known["type"])}
        return cls(**known)


class CheckpointStore:
    """Checkpoints of one service.

    `save` and `restore` touch files only and run on the engine thread; what is listed changes on the event loop.

    Attributes:
        records: what is listed, by id, oldest first.
    """

    def __init__(self, model: LoadedModel, folder: Path | None = None) -> None:
        """Keep checkpoints in ``folder``, with those that are there, or in a temporary one that `close` removes.

        Raises:
            ServiceError: the folder cannot be made.
        """
        self._model = model
        self._folder = folder if folder is not None else Path(tempfile.mkdtemp(prefix="samplekit-checkpoints-"))
        try:
            private_folder(self._folder)
        except OSError as error:
            raise ServiceError(f"checkpoints cannot be kept in {folder} ({error.strerror}): choose another") from error
        # Runs at close, when the store is forgotten, or at exit: a service that never ran leaves no folder behind.
        self._remove = None if folder is not None else weakref.finalize(self, shutil.rmtree, self._folder, True)
        for left in self._folder.glob("*.partial"):
            shutil.rmtree(left)
        found = filter(None, map(_recorded, self._folder.iterdir()))
        self.records = {item.id: item for item in sorted(found, key=lambda item: item.created_at)}

    def save(self, checkpoint: Checkpoint, policy: Policy) -> None:
        """Write a policy, without listing it; one of this id that an interrupted service left is written again.

        Raises:
            OSError: it cannot be written; nothing of it is there then.
        """

        def fill(folder: Path) -> None:
            folder.mkdir()
            if checkpoint.type is CheckpointType.TRAINING:
                policy.state().write(folder / STATE_FILE)
            elif checkpoint.lora is None:
                write_model(policy.trained, self._model, folder / "merged")
            else:
                write_adapter(policy, self._model, folder / "adapter")
            (folder / _RECORD).write_bytes(checkpoint.to_record())

        _publish(self._folder / checkpoint.id, fill)

    def folder_of(self, checkpoint: Checkpoint, variant: CheckpointVariant) -> Path:
        """Give where a variant's files are; those of an adapter that nobody has merged are not there yet."""
        return self._folder / checkpoint.id / _FOLDERS[variant]

    def merge(self, checkpoint: Checkpoint) -> None:
        """Merge an adapter, unless that was done. Takes long: one thread does it for all."""
        folder = self.folder_of(checkpoint, CheckpointVariant.MERGED)
        adapter = self.folder_of(checkpoint, CheckpointVariant.ADAPTER)
        if not folder.exists():
            _publish(folder, lambda partial: write_model(merged(self._model, adapter), self._model, partial))

    def restore(self, checkpoint: Checkpoint, policy: Policy, *, with_optimizer: bool) -> None:
        """Let a new policy go on from a checkpoint, and its generator use the same weights.

        Raises:
            OSError: the checkpoint's files are gone.
            ValueError: the policy is of another shape.
        """
        folder = self._folder / checkpoint.id
        if checkpoint.type is CheckpointType.TRAINING:
            policy.restore(PolicyState.read(folder / STATE_FILE), with_optimizer=with_optimizer)
        else:
            read_weights(policy, folder / ("merged" if checkpoint.lora is None else "adapter"))
        policy.sync()

    def close(self) -> None:
        """Remove the temporary folder, if it was one."""
        if self._remove is not None:
            self._remove()


def _recorded(folder: Path) -> Checkpoint | None:
    """Read what a checkpoint is; None for one that is damaged, which costs the service no other."""
    try:
        found = Checkpoint.from_record((folder / _RECORD).read_bytes())
        if found.id != folder.name:
            raise ValueError(f"it is of {found.id!r}")
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        logger.warning(
            "the checkpoint in %s is left out, for its %s cannot be read (%s): put a copy back or remove the folder",
            folder, _RECORD, named(error),
        )  # fmt: skip
        return None
    return found


def _publish(folder: Path, fill: Callable[[Path], None]) -> None:
    """Fill a folder under another name, flush its files to disk, and give it its name."""
    partial = folder.with_name(f"{folder.name}.partial")
    for left in (partial, folder):
        shutil.rmtree(left, ignore_errors=True)
    try:
        fill(partial)
        for path in [*partial.rglob("*"), partial]:
            flush(path)
        partial.rename(folder)
        flush(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
