"""What a waiting caller is told: an event for each answer that is not the last one, and one line in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from samplekit.client.runtime import Runtime

_QUIET_SECONDS = 2.0  # shorter waits are not worth a line
_WIDTH = 79
UNANSWERED = "UNANSWERED"  # the status of what cannot be asked


@dataclass(frozen=True)
class Waiting:
    """Something is waited for.

    Attributes:
        what: such as ``"optim-step operation op-1"``.
        status: as people say it: ``"RUNNING"``.
        elapsed: seconds since it is waited for.
        queue_position: its place among those who wait for hardware, where the service says.
        ended: whether the wait is over, well or not; told only where it was told before that it goes on.
        trouble: why the service's last answer could not be had, or was none, so that it is asked again; None while it
            answers.
    """

    what: str
    status: str
    elapsed: float
    queue_position: int | None = None
    ended: bool = False
    trouble: str | None = None

    def __str__(self) -> str:
        if self.trouble is not None:
            return f"{self.what}: {self.trouble}, trying again, {self.elapsed:.0f} s"
        place = "" if self.queue_position is None else f", place {self.queue_position} in the queue"
        return f"{self.what}: {self.status}{place}, {self.elapsed:.0f} s"


@dataclass(frozen=True)
class Transferred:
    """A part of a file has arrived.

    Attributes:
        what: the file's name.
        num_bytes: of it are here.
        size: bytes it will have.
    """

    what: str
    num_bytes: int
    size: int

    @property
    def ended(self) -> bool:
        """Whether all of it is here."""
        return self.num_bytes >= self.size

    def __str__(self) -> str:
        return f"{self.what}: {self.num_bytes / 1e6:,.1f} of {self.size / 1e6:,.1f} MB"


Event: TypeAlias = Waiting | Transferred
Listener: TypeAlias = Callable[[Event], None]


class Watch:
    """One wait, told to the runtime's listener."""

    def __init__(self, what: str, runtime: Runtime) -> None:
        self.runtime = runtime
        self._what, self._began = what, runtime.clock()
        self._last: Waiting | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since the wait began."""
        return self.runtime.clock() - self._began

    def tell(self, status: str, queue_position: int | None = None) -> None:
        """Tell that it goes on."""
        self._last = Waiting(self._what, status, self.elapsed, queue_position)
        self.runtime.listener(self._last)

    def tell_trouble(self, trouble: str) -> None:
        """Tell that an answer could not be had, and is asked for again."""
        self._last = Waiting(self._what, UNANSWERED, self.elapsed, trouble=trouble)
        self.runtime.listener(self._last)

    def end(self, *, answered: bool = True) -> None:
        """Tell that it is over, where anything was told, and whether the service has answered at last."""
        if self._last is not None:
            trouble = None if answered else self._last.trouble
            last, self._last = self._last, None
            self.runtime.listener(Waiting(self._what, last.status, self.elapsed, ended=True, trouble=trouble))


class TerminalLine:
    """Show the latest event as one line on stderr that is wiped at the end.

    Nothing is shown where stderr is no terminal, nor where something else has taken it over, such as a progress bar or
    a notebook.
    """

    def __init__(self) -> None:
        self._shown = False

    def __call__(self, event: Event) -> None:
        """Show or wipe the line."""
        if not _is_free_terminal():
            return
        if event.ended:
            self._write("" if self._shown else None)
            self._shown = False
        elif isinstance(event, Transferred) or event.elapsed >= _QUIET_SECONDS:
            self._write(str(event)[:_WIDTH])
            self._shown = True

    @staticmethod
    def _write(line: str | None) -> None:
        if line is not None:
            sys.stderr.write(f"\r\x1b[2K{line}")
            sys.stderr.flush()


def _is_free_terminal() -> bool:
    stream = sys.__stderr__
    return stream is not None and sys.stderr is stream and stream.isatty()
