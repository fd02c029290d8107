"""What went wrong while an operation ran -> the outcome that says so."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from samplekit.server.policy import NoGradientError, NonFiniteError
from samplekit.server.records import Outcome
from samplekit.wire.names import OperationErrorCode

if TYPE_CHECKING:
    from samplekit.server.records import Operation

# How torch and the allocator say that memory is gone, each as a RuntimeError of its own.
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")

logger = logging.getLogger(__name__)


def failure_of(operation: Operation, error: Exception) -> Outcome:
    """Say why an operation has no result; what nobody expects is logged with its traceback."""
    if isinstance(error, NonFiniteError):
        return Outcome.failed(OperationErrorCode.NON_FINITE_LOSS, str(error))
    if isinstance(error, NoGradientError):
        return Outcome.failed(OperationErrorCode.INVALID_INPUT, str(error))
    if isinstance(error, MemoryError) or any(words in str(error) for words in _OUT_OF_MEMORY):
        why = f"memory is gone, send smaller batches: {error}"
        return Outcome.failed(OperationErrorCode.RESOURCE_EXHAUSTED, why)
    logger.error("operation %s (%s) failed", operation.id, operation.kind, exc_info=error)
    return Outcome.failed(OperationErrorCode.INTERNAL_ERROR, named(error))


def named(error: BaseException) -> str:
    """Say an error with its kind."""
    return f"{type(error).__name__}: {error}"
