"""Sessions and resources stopped: whatever becomes of the request, until they cost nothing more or it is said."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from samplekit.client.flows import Terms, request_for, resources_request, session_request
from samplekit.client.polling import Inquiry
from samplekit.client.steps import held
from samplekit.errors import ConnectionFailedError, ServiceError, StatusError
from samplekit.wire import names
from samplekit.wire.lifecycles import Lifecycle, parse_lifecycle

if TYPE_CHECKING:
    from collections.abc import Callable

    from samplekit.client.steps import Flow, Request

STOP_SECONDS = 300.0
Heard: TypeAlias = "Callable[[Lifecycle | None], None]"


def heed_nothing(_: Lifecycle | None) -> None:
    """Keep nothing of what is heard."""


def stop_session(terms: Terms, session_id: str, timeout: float = STOP_SECONDS) -> Flow[None]:
    """Stop a session and wait until it is inactive, even where the task is cancelled meanwhile."""
    request = request_for(names.STOP_SESSION, f"stop training session {session_id}", session_id=session_id)
    inactive = frozenset({*names.INACTIVE_SESSIONS})
    yield from held(_stop(terms, request, session_request(session_id), inactive, timeout, heed_nothing), pauses=True)


def stop_all(terms: Terms, session_id: str, resources_id: str) -> Flow[None]:
    """Stop a session and its resources, the latter even where the session cannot be stopped."""
    try:
        yield from stop_session(terms, session_id)
    except ConnectionFailedError as error:
        again = terms if error.sent else replace(terms, retries=0)  # who cannot be reached was tried often enough
        yield from stop_resources(again, resources_id)
        raise
    except BaseException:
        yield from stop_resources(terms, resources_id)
        raise
    yield from stop_resources(terms, resources_id)


def stop_resources(
    terms: Terms, resources_id: str, timeout: float = STOP_SECONDS, heard: Heard = heed_nothing
) -> Flow[None]:
    """Stop resources with every session on them, and wait until they cost nothing more, cancelled or not.

    Args:
        terms: clock, chance, retries.
        resources_id: the resources.
        timeout: seconds to wait until they are stopped.
        heard: is told what the service says of them, whenever it does; None where it does not know them any more.
    """
    what = f"stop model resources {resources_id}"
    request = request_for(names.STOP_RESOURCES, what, query={"force": "true"}, resources_id=resources_id)
    look = resources_request(resources_id)
    inactive = frozenset({*names.INACTIVE_RESOURCES})
    yield from held(_stop(terms, request, look, inactive, timeout, heard), pauses=True)


def _stop(
    terms: Terms, request: Request, look: Request, inactive: frozenset[str], timeout: float, heard: Heard
) -> Flow[None]:
    """Ask to stop, whatever became of the request look whether it stopped, and ask once more if not."""
    request = replace(request, subject=look.subject)
    for last in (False, True):
        try:
            answer = yield from terms.call(request, parse_lifecycle, retries=terms.stop_retries)
        except ServiceError as error:
            if isinstance(error, ConnectionFailedError) and not error.sent:
                raise error.reworded(f"{error.message}; unless the service has ended, it may still cost") from error
            state = yield from _look(terms, look)
            heard(state)
            if state is None or state.status in inactive:
                return
            if last or (isinstance(error, StatusError) and error.status < 500):
                raise
            answer = state
        else:
            break

    def finished(state: Lifecycle) -> bool:
        heard(state)
        return state.status in inactive

    if finished(answer):
        return
    now = terms.runtime.clock()
    inquiry = Inquiry(
        look,
        parse_lifecycle,
        finished,
        terms.runtime,
        since=now - names.NOT_FOUND_GRACE,
        retries=terms.retries,
    )
    try:
        found = yield from inquiry.poll(now + timeout)
    except StatusError as error:
        if error.status == 404:  # gone altogether
            heard(None)
            return
        raise
    if found is None:
        raise ServiceError(f"could not {request.call} within {timeout:g} s: look at it again, for it may still cost")


def _look(terms: Terms, look: Request) -> Flow[Lifecycle | None]:
    """Get what is to be stopped; None where the service does not know it any more."""
    try:
        return (yield from terms.call(look, parse_lifecycle))
    except StatusError as error:
        if error.status == 404:
            return None
        raise
