"""What a flow asks for and what it is given back.

A flow is a generator without I/O: it yields a `Request`, a `Pause` or some `Work`, is sent the outcome, and returns
its result. `drivers` run flows, blocking or async.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Subject:
    """What a request asks about: ``"optim-step operation"`` and its id, which the answer must hold."""

    name: str
    id: str

    def __str__(self) -> str:
        return f"{self.name} {self.id}"


@dataclass(frozen=True)
class Request:
    """What to send.

    Attributes:
        call: what it does, for errors: ``"create a training session"``.
        method: the HTTP method.
        url: a path of the service; where not authorized, a whole URL of an object store.
        body: the body in pieces, JSON, or None.
        headers: beyond those every request carries.
        repeatable: whether sending it twice does no harm.
        authorized: whether it goes to the service and carries the key.
        timeout: seconds for this request and all of its answer, where the client's own is too long.
        lookup: how to find out what became of it when no answer came.
        subject: what its answer must be about; an answer about something else is a lost one.
    """

    call: str
    method: str
    url: str
    body: tuple[bytes, ...] | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    repeatable: bool = False
    authorized: bool = True
    timeout: float | None = None
    lookup: str = ""
    subject: Subject | None = None


@dataclass(frozen=True)
class Pause:
    """Wait before going on."""

    seconds: float


@dataclass(frozen=True)
class Work:
    """Compute something: off the event loop where the driver has one and the work is large."""

    run: Callable[[], Any]
    large: bool = True


@dataclass(frozen=True)
class Fetch:
    """Send a request and hand on what a successful answer holds, piece by piece; its Reply has no body then.

    Attributes:
        request: a GET.
        begin: is given the answer's status and headers, and gives what takes the pieces, off the event loop where there
            is one; None takes nothing.
        after: called after every piece.
    """

    request: Request
    begin: Callable[[Reply], Callable[[bytes], None] | None]
    after: Callable[[], None]


@dataclass(frozen=True)
class Held:
    """A step whose outcome the flow must learn: a cancelled task does it to its end, and is cancelled afterwards.

    Attributes:
        step: what is done.
        patience: seconds that a cancelled task waits for it still, where there is no second Ctrl-C to give it up; None
            for as long as it takes.
    """

    step: Request | Pause | Work | Fetch
    patience: float | None = None


# Does nothing and is not held: a cancellation that came during held steps is raised here, before the flow returns.
FREE = Work(lambda: None, large=False)


def held(flow: Flow[T], *, pauses: bool, patience: float | None = None) -> Flow[T]:
    """Hold the steps of a flow against cancellation.

    Args:
        flow: whose steps are held.
        pauses: whether its pauses are held too, so that it runs to its end; else it may be cancelled in one.
        patience: as in `Held`.
    """
    return changed(
        flow,
        lambda step: (
            step if isinstance(step, Held) or (isinstance(step, Pause) and not pauses) else Held(step, patience)
        ),
    )


@contextlib.contextmanager
def cut_short(note: Callable[[], str]) -> Generator[None]:
    """Note what is known by then on a Ctrl-C or cancellation that cuts short what is done here; empty says nothing."""
    try:
        yield
    except (Exception, GeneratorExit):
        raise
    except BaseException as error:
        if text := note():
            error.add_note(text)
            if not isinstance(error, KeyboardInterrupt):  # who sets a timeout seldom reads what its cause notes
                logger.warning(text)
        raise


def changed(flow: Flow[T], change: Callable[[Step], Step]) -> Flow[T]:
    """Do other steps than a flow asks for; what ``change`` raises is raised in the flow, so that it can clean up."""
    outcome: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = flow.send(outcome) if error is None else flow.throw(error)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        outcome = error = None
        try:
            outcome = yield change(step)
        except GeneratorExit:
            flow.close()
            raise
        except BaseException as raised:  # noqa: BLE001 - the flow decides
            error = raised


@dataclass(frozen=True)
class Reply:
    """An answer, whatever its status.

    Attributes:
        status: the HTTP status.
        headers: names in lower case.
        body: as far as it was taken.
        hint: what to do about it, where that is known of where the service is.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    hint: str = ""


@dataclass(frozen=True)
class Failure:
    """No answer.

    Attributes:
        reason: what went wrong, without secrets.
        sent: whether the service may have seen the request.
        timed_out: whether time ran out on a connection that stood: the service may only be slow.
        lasting: whether the same would come of another try.
        remedy: what to do about it, where that is known.
    """

    reason: str
    sent: bool
    timed_out: bool = False
    lasting: bool = False
    remedy: str = ""


Outcome: TypeAlias = Reply | Failure
Step: TypeAlias = Request | Pause | Work | Fetch | Held
Flow: TypeAlias = Generator[Step, Any, T]
