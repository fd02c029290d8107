"""One call of the protocol: a request, its answer, and whether to try again.

Nothing here does I/O: the protocol's rules are generators that yield steps and are sent outcomes.
"""

from __future__ import annotations

from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, TypeVar

from samplekit.client.faults import STRANGE_ANSWER, call_error
from samplekit.client.progress import Watch
from samplekit.client.steps import Failure, Flow, Outcome, Pause, Reply, Request, Step, Work, changed
from samplekit.errors import ConnectionFailedError
from samplekit.sample.kinds import shown
from samplekit.wire import names
from samplekit.wire.answers import AnswerError, DeepAnswerError, OperationAnswer
from samplekit.wire.lifecycles import Lifecycle, short_status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from samplekit.client.runtime import Runtime

T = TypeVar("T")
S = TypeVar("S", OperationAnswer, Lifecycle)
LARGE_ANSWER_BYTES = 262_144  # parsed off the event loop
_SHORTEST_TIMEOUT = 1.0  # seconds: what a poll gets however close the deadline is


def call(request: Request, parse: Callable[[bytes], T], runtime: Runtime, *, retries: int) -> Flow[T]:
    """Send a request until it is answered, as the retry rules of the protocol allow.

    Args:
        request: carries its idempotency key already, so every try carries the same.
        parse: reads the body of a successful answer; an AnswerError from it counts as a lost answer.
        runtime: clock and chance.
        retries: how often to try again after the first time.

    Raises:
        StatusError: the service said no.
        ConnectionFailedError: no answer came, or none that can be read.
    """
    attempt = 0
    while True:
        outcome = yield request
        value, outcome = yield from parse_outcome(request, outcome, parse)
        if outcome is None:
            return value  # type: ignore[return-value]  # pyright: ignore[reportReturnType] - parsed beside it
        delay = retry_delay(request, outcome, attempt, runtime)
        if delay is None or attempt >= retries:
            raise call_error(request, outcome, tries=attempt + 1)
        attempt += 1
        yield Pause(delay)


def parse_outcome(
    request: Request, outcome: Outcome, parse: Callable[[bytes], T]
) -> Flow[tuple[T | None, Outcome | None]]:
    """Give (value, None) for a successful answer that can be read, else (None, what went wrong)."""
    if not isinstance(outcome, Reply) or not 200 <= outcome.status < 300:
        return None, outcome
    body = outcome.body
    try:
        value: T = yield Work(lambda: parse(body), large=len(body) > LARGE_ANSWER_BYTES)
        _require_subject(request, value)
    except AnswerError as error:
        return None, Failure(str(error), sent=True, lasting=isinstance(error, DeepAnswerError), remedy=STRANGE_ANSWER)
    return value, None


def _require_subject(request: Request, value: object) -> None:
    """Refuse an answer about something else than was asked for."""
    if request.subject is not None and (found := getattr(value, "id", None)) != request.subject.id:
        raise AnswerError(f"the answer is about {shown(found)}, expected {request.subject}")


def retry_delay(request: Request, outcome: Outcome, attempt: int, runtime: Runtime) -> float | None:
    """Decide whether to try again: the seconds to wait first, or None for no.

    A call that is not repeatable is tried again only where the service cannot have begun to work on it: no byte was
    sent, or it refused with 429 or ``x-should-retry: true``.
    """
    if isinstance(outcome, Failure):
        again = not outcome.lasting and (request.repeatable or not outcome.sent)
    else:
        said = outcome.headers.get(names.SHOULD_RETRY, "").strip().lower()
        retried = outcome.status in names.RETRIED_STATUSES or outcome.status >= 500
        safe = request.repeatable or outcome.status == names.REFUSED_BEFORE_WORK
        again = said == "true" or (said != "false" and retried and safe)
    if not again:
        return None
    asked = retry_after(outcome.headers, runtime.wall_clock()) if isinstance(outcome, Reply) else None
    return backoff(attempt, runtime) if asked is None else asked


def backoff(attempt: int, runtime: Runtime) -> float:
    """Give the seconds before another try: doubling from 1 to 10, less up to a quarter by chance."""
    longest = min(names.FIRST_BACKOFF * 2.0 ** min(attempt, 16), names.MAX_BACKOFF)
    return longest * (1.0 - 0.25 * runtime.random())


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Read how long the service asks to wait, in seconds; None where it does not, or asks for over a minute."""
    for name, scale in ((names.RETRY_AFTER_MS, 0.001), (names.RETRY_AFTER, 1.0)):
        seconds = _number(headers.get(name, ""), scale)
        if seconds is None and name == names.RETRY_AFTER:
            seconds = _seconds_until(headers.get(name, ""), now)
        if seconds is not None and 0.0 < seconds <= names.MAX_RETRY_AFTER:
            return seconds
    return None


def _number(text: str, scale: float) -> float | None:
    try:
        return float(text) * scale
    except ValueError:
        return None


def _seconds_until(date: str, now: float) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() - now
    except (TypeError, ValueError, OverflowError):
        return None


def poll(
    request: Request,
    parse: Callable[[bytes], S],
    finished: Callable[[S], bool],
    runtime: Runtime,
    *,
    since: float,
    deadline: float | None,
    retries: int,
) -> Flow[S | None]:
    """Ask until the answer is final; None when the deadline comes first.

    Args:
        request: a GET.
        parse: reads an answer.
        finished: tells whether it is final.
        runtime: clock, chance, and who is told of progress.
        since: when the thing asked about was created; for 10 s after it a 404 only means "not yet visible".
        deadline: when to give up, on the runtime's clock; None for never. The first question is always asked, and a
            last one once it has come.
        retries: how many faults in a row to bear. A slow answer is no fault; a host that cannot be reached is.

    Raises:
        StatusError: the service said no; or its last answer before the deadline was that it knows no such thing.
        ConnectionFailedError: too many faults in a row.
    """
    watch = Watch(str(request.subject or request.call), runtime)
    try:
        return (yield from _poll(request, parse, finished, watch, since=since, deadline=deadline, retries=retries))
    finally:
        watch.end()


def _poll(
    request: Request,
    parse: Callable[[bytes], S],
    finished: Callable[[S], bool],
    watch: Watch,
    *,
    since: float,
    deadline: float | None,
    retries: int,
) -> Flow[S | None]:
    runtime, faults = watch.runtime, 0
    while True:
        value, outcome = yield from parse_outcome(request, (yield _timed(request, runtime, deadline)), parse)
        pause = poll_interval(watch.elapsed)
        if value is not None:
            faults = 0
            if finished(value):
                return value
            watch.tell(short_status(value.status), value.queue_position if isinstance(value, Lifecycle) else None)
        elif outcome is not None and not _is_normal(outcome, runtime.clock() - since):
            delay = retry_delay(request, outcome, faults, runtime)
            if delay is None or faults >= retries:
                raise call_error(request, outcome, tries=faults + 1)
            pause, faults = delay, faults + 1
        left = None if deadline is None else deadline - runtime.clock()
        if left is not None and left <= 0:
            if isinstance(outcome, Reply) and outcome.status == 404:
                raise call_error(request, outcome, tries=faults + 1)
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


def _timed(request: Request, runtime: Runtime, deadline: float | None) -> Request:
    """Let a request take no longer than the deadline leaves, but a moment at least."""
    if deadline is None:
        return request
    return replace(request, timeout=max(deadline - runtime.clock(), _SHORTEST_TIMEOUT))


class OutOfTimeError(Exception):
    """A flow was not done when its deadline came."""


def within(flow: Flow[T], deadline: float | None, runtime: Runtime) -> Flow[T]:
    """Do the steps of a flow up to a deadline, and a moment longer for a request that it asks for at the last.

    Args:
        flow: what is done.
        deadline: when to give up, on the runtime's clock; None for never.
        runtime: whose clock.

    Raises:
        OutOfTimeError: the deadline came first.
    """

    def cut(step: Step) -> Step:
        if deadline is None or not isinstance(step, Request | Pause):
            return step
        left = deadline - runtime.clock()
        if left + (_SHORTEST_TIMEOUT if isinstance(step, Request) else 0.0) <= 0.0:
            raise OutOfTimeError
        if isinstance(step, Pause):
            return Pause(min(step.seconds, left))
        return replace(step, timeout=min(max(left, _SHORTEST_TIMEOUT), left + _SHORTEST_TIMEOUT))

    try:
        return (yield from changed(flow, cut))
    except ConnectionFailedError as error:
        if deadline is None or runtime.clock() < deadline:
            raise
        raise OutOfTimeError from error
