"""What a session has submitted and nobody collected yet, so that a failure is not lost in silence."""

from __future__ import annotations

import warnings
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from samplekit.client.faults import operation_failed
from samplekit.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samplekit.client.operations import Handle
    from samplekit.client.steps import Flow

LEAVE_SECONDS = 300.0  # that leaving a session waits for what was submitted, as Operation.result does
_REMEMBERED = 64  # uncollected operations looked at when a session ends; older ones are forgotten


@dataclass(frozen=True)
class Leftovers:
    """What was not collected when a session was left.

    Attributes:
        failed: what failed operations say.
        running: names of operations not known to be finished when the session was stopped.
    """

    failed: Sequence[str] = ()
    running: Sequence[str] = ()


class Uncollected:
    """The latest operations of a session whose results nobody asked for."""

    def __init__(self) -> None:
        self._handles: deque[Handle[Any]] = deque(maxlen=_REMEMBERED)

    def add(self, handle: Handle[Any]) -> None:
        """Remember an operation, and forget those collected meanwhile."""
        while self._handles and self._handles[0].collected:
            self._handles.popleft()
        self._handles.append(handle)

    def settle(self, seconds: float | None) -> Flow[Leftovers]:
        """Find out what became of them.

        A service that does not answer is no error: the session is being left, and what cannot be learnt is named.

        Args:
            seconds: how long to wait for those that run; None asks each once, for a session that runs on.
        """
        waiting = [handle for handle in self._handles if not handle.collected]
        deadline = None if seconds is None or not waiting else waiting[0].terms.runtime.clock() + seconds
        for handle in waiting:
            try:
                if deadline is None:
                    yield from handle.look()
                elif (yield from handle.finish(deadline)) is None:
                    break  # they run in order: what comes after it runs, too
            except ServiceError:
                break
        failed = [str(operation_failed(item.answer, item.kind)) for item in waiting if item.answer.failed]
        running = [] if seconds is None else [repr(item) for item in waiting if not item.answer.finished]
        return Leftovers(failed, running)


def warn_of_leftovers(session_id: str, leftovers: Leftovers) -> None:
    """Warn of operations that failed unnoticed, and of those that were dropped."""
    if leftovers.failed:
        warnings.warn(
            f"session {session_id} ends with {len(leftovers.failed)} failed operations that nobody collected: "
            + "; ".join(leftovers.failed),
            RuntimeWarning,
            stacklevel=3,
        )
    if leftovers.running:
        warnings.warn(
            f"session {session_id} was stopped before {len(leftovers.running)} operations were known to be finished, "
            f"which may have dropped them: {', '.join(leftovers.running)}; collect results before leaving",
            RuntimeWarning,
            stacklevel=3,
        )
