"""One JSON line for each operation that ended; nothing is written unless a handler listens."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import orjson

from samplekit.server.timestamps import timestamp

if TYPE_CHECKING:
    from samplekit.server.records import Operation, Outcome, Session

# Its messages are JSON; `samplekit serve --operation-log` listens.
NAME = "samplekit.operations"
_log = logging.getLogger(NAME)
_log.propagate = False
_log.addHandler(logging.NullHandler())


def log_operation(session: Session, operation: Operation, outcome: Outcome, seconds: float) -> None:
    """Tell how an operation ended.

    Args:
        session: which session's.
        operation: which one.
        outcome: how it ended.
        seconds: how long it ran; 0 if it never did.
    """
    if not _log.isEnabledFor(logging.INFO):
        return
    line = {"time": timestamp(time.time()), **described(session, operation, outcome, seconds)}
    _log.info(orjson.dumps(line).decode())


def described(session: Session, operation: Operation, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """Give what is written down of an operation that ended."""
    line: dict[str, Any] = {
        "session": session.id,
        "operation": operation.id,
        "kind": operation.kind,
        "status": outcome.status,
        "seconds": round(seconds, 6),
        "step": session.step,
        "output_bytes": len(outcome.output or b""),
    }
    if outcome.error_code is not None:
        line |= {"error_code": outcome.error_code, "error_message": outcome.error_message}
    return line
