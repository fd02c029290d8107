"""Resources, sessions and operations as the journal of a state directory keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from samplekit.server.checkpoints import Checkpoint
from samplekit.server.records import Operation, Outcome, Resources, Session
from samplekit.server.settings import LoraSettings
from samplekit.wire.names import (
    TERMINAL_OPERATIONS,
    OperationErrorCode,
    OperationKind,
    OperationStatus,
    ResourcesStatus,
    SessionStatus,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PLAIN = ("id", "created_at", "display_name", "metadata", "status", "updated_at", "step", "version",
          "load_optimizer")  # fmt: skip


def resources_record(resources: Resources) -> bytes:
    """Give what `resources_from` reads."""
    return orjson.dumps(resources.__dict__)


def resources_from(record: bytes) -> Resources:
    """Read what `resources_record` gave."""
    known: dict[str, Any] = orjson.loads(record)
    known["status"] = ResourcesStatus(known["status"])
    return Resources(**known)


def session_record(session: Session) -> bytes:
    """Give what `session_from` reads."""
    shown: dict[str, Any] = {name: getattr(session, name) for name in _PLAIN}
    shown["resources"] = session.resources.id
    shown["lora"] = None if session.lora is None else session.lora.model_dump()
    shown["resumed_from"] = None if session.resumed_from is None else session.resumed_from.id
    return orjson.dumps(shown)


def session_from(record: bytes, resources: Mapping[str, Resources], checkpoints: Mapping[str, Checkpoint]) -> Session:
    """Read what `session_record` gave; operations are not part of it."""
    known: dict[str, Any] = orjson.loads(record)
    known["status"] = SessionStatus(known["status"])
    known["resources"] = resources[known["resources"]]
    known["lora"] = None if known["lora"] is None else LoraSettings.model_validate(known["lora"])
    resumed = known["resumed_from"]
    known["resumed_from"] = None if resumed is None else checkpoints.get(resumed) or Checkpoint.unread(resumed)
    session = Session(**known)
    session.checkpoints = {item.id: item for item in checkpoints.values() if item.session_id == session.id}
    return session


def take_progress(session: Session, kind: OperationKind, output: bytes) -> None:
    """Bring a session's counters to what a completed optimizer step or weights sync said."""
    known: dict[str, Any] = orjson.loads(output)
    if kind is OperationKind.OPTIM_STEP:
        session.step = int(known["step"])
    else:
        session.version = int(known["weights_version"])


def operation_from_row(row: Sequence[Any]) -> Operation:
    """Make an operation of its columns, its result left on disk; one that was interrupted waits again."""
    number, identifier, kind, key, digest, payload_id, status, code, message = row
    operation = Operation(identifier, OperationKind(kind), key, bytes(digest), None, payload_id, number=number)
    ended = OperationStatus(status)
    if ended in TERMINAL_OPERATIONS:
        error = None if code is None else OperationErrorCode(code)
        operation.end(Outcome(ended, None, error_code=error, error_message=message))
    return operation
