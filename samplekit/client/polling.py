"""Asking for one thing until it is final: by one set of rules, whether somebody waits for it or only looks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from samplekit.client.exchange import SHORTEST_TIMEOUT, parse_outcome, retry_delay, trouble_of
from samplekit.client.faults import call_error
from samplekit.client.progress import Watch
from samplekit.client.steps import Failure, Flow, Outcome, Pause, Request
from samplekit.wire import names
from samplekit.wire.answers import OperationAnswer
from samplekit.wire.lifecycles import Lifecycle, short_status

if TYPE_CHECKING:
    from collections.abc import Callable

    from samplekit.client.runtime import Runtime

S = TypeVar("S", OperationAnswer, Lifecycle)
_FIRST_LOOK, _LONGEST_LOOK = 5.0, 60.0  # seconds


class Inquiry(Generic[S]):
    """One thing that is asked for again and again.

    A slow answer is no fault; nor is a 404 just after creation, which only means "not yet visible". Of other faults so
    many in a row are borne as a call is tried again, and a final one ends it.

    Args:
        request: a GET.
        parse: reads an answer.
        finished: tells whether it is final.
        runtime: clock, chance, and who is told of progress.
        since: when the thing was created, on the runtime's clock.
        retries: how many faults in a row to bear.

    Attributes:
        silence: what came instead of an answer when it was asked for last; None where there was one.
        again_at: when to ask again after a fault, on the runtime's clock.
    """

    def __init__(
        self,
        request: Request,
        parse: Callable[[bytes], S],
        finished: Callable[[S], bool],
        runtime: Runtime,
        *,
        since: float,
        retries: int,
    ) -> None:
        self.request, self.runtime = request, runtime
        self.finished: Callable[[S], bool] = finished
        self.silence: Outcome | None = None
        self.again_at = 0.0
        self._parse: Callable[[bytes], S] = parse
        self._since, self._retries = since, retries
        self._faults, self._patience = 0, _FIRST_LOOK
        self._trouble = Watch(str(request.subject or request.call), runtime)

    def ask(self, seconds: float | None) -> Flow[S | None]:
        """Ask once, for so many seconds; None where no answer came and that is borne.

        Raises:
            StatusError: the service said no.
            ConnectionFailedError: too many faults in a row.
        """
        request = self.request if seconds is None else replace(self.request, timeout=seconds)
        value, self.silence = yield from parse_outcome(request, (yield request), self._parse)
        self.again_at = 0.0
        if self.silence is None:
            self._faults = 0
            self._trouble.end()
        elif not _is_normal(self.silence, self.runtime.clock() - self._since):
            self._bear(self.silence)
        return value

    def _bear(self, outcome: Outcome) -> None:
        delay = retry_delay(self.request, outcome, self._faults, self.runtime)
        if delay is None or self._faults >= self._retries:
            error = call_error(self.request, outcome, tries=self._faults + 1)
            self._faults = 0
            self._trouble.end(answered=False)
            raise error
        self._faults += 1
        self._trouble.tell_trouble(trouble_of(outcome))
        self.again_at = self.runtime.clock() + delay

    def look(self) -> Flow[S | None]:
        """Ask once and do not wait long: 5 s, and twice as long whenever that was too short, up to a minute."""
        answer = yield from self.ask(self._patience)
        if isinstance(self.silence, Failure) and self.silence.timed_out:
            self._patience = min(2.0 * self._patience, _LONGEST_LOOK)
        return answer

    def poll(self, deadline: float | None) -> Flow[S | None]:
        """Ask until the answer is final; None when the deadline comes first.

        Args:
            deadline: when to give up, on the runtime's clock; None for never. The first question is always asked, and
                a last one once it has come.

        Raises:
            StatusError: the service said no.
            ConnectionFailedError: too many faults in a row.
        """
        self._faults = 0
        watch = Watch(str(self.request.subject or self.request.call), self.runtime)
        try:
            return (yield from self._poll(watch, deadline))
        finally:
            watch.end()

    def _poll(self, watch: Watch, deadline: float | None) -> Flow[S | None]:
        clock = self.runtime.clock
        while True:
            answer = yield from self.ask(None if deadline is None else max(deadline - clock(), SHORTEST_TIMEOUT))
            if answer is not None:
                if self.finished(answer):
                    return answer
                watch.tell(
                    short_status(answer.status), answer.queue_position if isinstance(answer, Lifecycle) else None
                )
            pause = max(self.again_at - clock(), 0.0) if self.again_at else poll_interval(watch.elapsed)
            left = None if deadline is None else deadline - clock()
            if left is not None and left <= 0:
                return None
            yield Pause(pause if left is None else min(pause, left))  # at the deadline it is asked once more


def poll_interval(elapsed: float) -> float:
    """Give the seconds between two polls: 0.5 at first, a tenth of the time waited later, never over 5."""
    return min(max(names.FIRST_POLL, elapsed / 10.0), names.MAX_POLL)


def _is_normal(outcome: Outcome, age: float) -> bool:
    """Tell whether a poll that gave nothing is nothing to worry about."""
    if isinstance(outcome, Failure):
        return outcome.timed_out
    return outcome.status == 404 and age < names.NOT_FOUND_GRACE
