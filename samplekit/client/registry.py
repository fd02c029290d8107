"""What a session has submitted and nobody collected yet, so that a failure is not lost in silence."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samplekit.client.faults import operation_failed
from samplekit.errors import ServiceError, StatusError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samplekit.client.accepted import Accepted
    from samplekit.client.steps import Flow

LEAVE_SECONDS = 300.0  # that leaving a session waits for what was submitted, as Operation.result does
_SPARED = 64  # operations that are kept before it is looked which of them are settled, or run
_AT_FAULT = 500  # the status from which on it is the service that fails, not what was asked for
_NAMED = 10  # operations that a warning names at most


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
    """The operations of a session of whose outcome nobody was told.

    Threads may share a session: what is known is only ever copied or changed in one step, never iterated over.
    """

    def __init__(self) -> None:
        self._accepted: dict[str, Accepted] = {}  # by key: a call made again under its key is one operation
        self._full = _SPARED

    def add(self, accepted: Accepted) -> None:
        """Remember an operation, unless it went well at once; from time to time forget those settled meanwhile."""
        if not accepted.settled:
            self._accepted[_name_of(accepted)] = accepted
        if len(self._accepted) > self._full:
            for item in list(self._accepted.values()):  # not items(): its tuples let the collector, so others, run
                if item.settled:
                    self._accepted.pop(_name_of(item), None)
            self._full = _SPARED + 2 * len(self._accepted)

    def _waiting(self) -> list[Accepted]:
        return [item for item in list(self._accepted.values()) if not item.settled]

    def review(self) -> Flow[None]:
        """Ask for the oldest once many are not known to be finished, so that leaving need not ask for thousands."""
        unknown = [item for item in self._waiting() if not item.answer.finished]
        if len(unknown) > _SPARED:
            with suppress(ServiceError):  # it is asked again
                yield from unknown[0].look()

    def settle(self, seconds: float | None) -> Flow[Leftovers]:
        """Find out what became of them.

        A service that does not answer is no error: the session is being left, and what cannot be learnt is named.

        Args:
            seconds: how long to wait for those that run; None asks each once, for a session that runs on.
        """
        waiting = self._waiting()
        deadline = None if seconds is None or not waiting else waiting[0].terms.runtime.clock() + seconds
        for item in waiting:
            try:
                if deadline is None:
                    yield from item.look()
                elif (yield from item.finish(deadline)) is None:
                    break  # they run in order: what comes after it runs, too
            except ServiceError as error:
                if not isinstance(error, StatusError) or error.status >= _AT_FAULT:
                    break
            else:
                if not item.answers:
                    break  # nor would it say anything of the others
        failed = [str(operation_failed(item.answer, item.kind)) for item in waiting if item.answer.failed]
        running = [] if seconds is None else [repr(item) for item in waiting if not item.answer.finished]
        return Leftovers(failed, running)


def _name_of(accepted: Accepted) -> str:
    return accepted.key or accepted.answer.id


def warn_of_leftovers(session_id: str, leftovers: Leftovers) -> None:
    """Warn of operations that failed unnoticed, and of those that were dropped."""
    if leftovers.failed:
        warnings.warn(
            f"session {session_id} ends with {len(leftovers.failed)} failed operations that nobody collected: "
            + _listed(leftovers.failed, "; "),
            RuntimeWarning,
            stacklevel=3,
        )
    if leftovers.running:
        warnings.warn(
            f"session {session_id} was stopped before {len(leftovers.running)} operations were known to be finished, "
            f"which may have dropped them: {_listed(leftovers.running, ', ')}; collect results before leaving",
            RuntimeWarning,
            stacklevel=3,
        )


def _listed(items: Sequence[str], separator: str) -> str:
    """Join what a warning names, and count what it does not."""
    more = len(items) - _NAMED
    return separator.join([*items[:_NAMED], *([f"and {more} more"] if more > 0 else [])])
