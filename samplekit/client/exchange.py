"""One call of the protocol: a request, its answer, and whether to try again.

Nothing here does I/O: the protocol's rules are generators that yield steps and are sent outcomes.
"""

from __future__ import annotations

from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, TypeVar

from samplekit.client.faults import STRANGE_ANSWER, call_error, may_have_begun, told_to_retry
from samplekit.client.progress import Watch
from samplekit.client.steps import Failure, Flow, Outcome, Pause, Reply, Request, Step, Work, changed
from samplekit.errors import ConnectionFailedError
from samplekit.sample.kinds import shown
from samplekit.wire import names
from samplekit.wire.answers import AnswerError, DeepAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from samplekit.client.runtime import Runtime

T = TypeVar("T")
LARGE_ANSWER_BYTES = 262_144  # parsed off the event loop
SHORTEST_TIMEOUT = 1.0  # seconds: what a poll gets however close the deadline is


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
    attempt, answered, begun = 0, False, False
    watch = Watch(str(request.subject or request.call), runtime)
    try:
        while True:
            outcome = yield request
            value, outcome = yield from parse_outcome(request, outcome, parse)
            if outcome is None:
                answered = True
                return value  # type: ignore[return-value]  # pyright: ignore[reportReturnType] - parsed beside it
            delay = retry_delay(request, outcome, attempt, runtime)
            if delay is None or attempt >= retries:
                raise call_error(request, outcome, tries=attempt + 1, begun=begun)
            attempt, begun = attempt + 1, begun or may_have_begun(outcome)
            watch.tell_trouble(trouble_of(outcome))
            yield Pause(delay)
    finally:
        watch.end(answered=answered)


def trouble_of(outcome: Outcome) -> str:
    """Say what came instead of an answer, for somebody who waits for one."""
    return outcome.reason if isinstance(outcome, Failure) else f"status {outcome.status}"


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
        said = told_to_retry(outcome)
        retried = outcome.status in names.RETRIED_STATUSES or outcome.status >= 500
        safe = request.repeatable or outcome.status == names.REFUSED_BEFORE_WORK
        again = (retried and safe) if said is None else said
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
        if left + (SHORTEST_TIMEOUT if isinstance(step, Request) else 0.0) <= 0.0:
            raise OutOfTimeError
        if isinstance(step, Pause):
            return Pause(min(step.seconds, left))
        return replace(step, timeout=min(max(left, SHORTEST_TIMEOUT), left + SHORTEST_TIMEOUT))

    try:
        return (yield from changed(flow, cut))
    except ConnectionFailedError as error:
        if deadline is None or runtime.clock() < deadline:
            raise
        raise OutOfTimeError from error
