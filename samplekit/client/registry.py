"""What a session has submitted and nobody collected yet, so that a failure is not lost in silence."""

from __future__ import annotations

import warnings
from collections import deque
from typing import TYPE_CHECKING, Any

from samplekit.client.faults import operation_failed
from samplekit.errors import ServiceError

if TYPE_CHECKING:
    from samplekit.client.operations import Handle
    from samplekit.client.steps import Flow

_REMEMBERED = 64  # uncollected operations looked at when a session ends; older ones are forgotten


class Uncollected:
    """The latest operations of a session whose results nobody asked for."""

    def __init__(self) -> None:
        self._handles: deque[Handle[Any]] = deque(maxlen=_REMEMBERED)

    def add(self, handle: Handle[Any]) -> None:
        """Remember an operation, and forget those collected meanwhile."""
        while self._handles and self._handles[0].collected:
            self._handles.popleft()
        self._handles.append(handle)

    def failures(self) -> Flow[list[str]]:
        """Ask what became of them; give what the failed ones say. A service that does not answer is not an error."""
        found: list[str] = []
        for handle in self._handles:
            if handle.collected:
                continue
            try:
                yield from handle.look()
            except ServiceError:
                break  # the session is being left: what cannot be learnt now is not waited for
            if handle.answer.failed:
                found.append(str(operation_failed(handle.answer, handle.kind)))
        return found


def warn_of_failures(session_id: str, failures: list[str]) -> None:
    """Warn of operations that failed unnoticed."""
    if failures:
        warnings.warn(
            f"session {session_id} ends with {len(failures)} failed operations that nobody collected: "
            + "; ".join(failures),
            RuntimeWarning,
            stacklevel=4,
        )
