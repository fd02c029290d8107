"""Resources and sessions: created, waited for, stopped again where anything goes wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from samplekit.client.exchange import poll
from samplekit.client.faults import lifecycle_remedy
from samplekit.client.flows import Terms, request_for, resources_request, session_request
from samplekit.client.lifecycle import limits_of, model_to_train, models_or_none, require_offered, settle
from samplekit.client.plans import OpenSession, ResourcesPlan, SessionPlan
from samplekit.client.steps import held
from samplekit.client.stopping import stop_resources, stop_session
from samplekit.errors import ServiceError
from samplekit.wire import names
from samplekit.wire.lifecycles import Lifecycle, parse_lifecycle, short_status
from samplekit.wire.names import ResourcesStatus, SessionStatus

if TYPE_CHECKING:
    from samplekit.client.steps import Flow, Request
    from samplekit.wire.names import Route

T = TypeVar("T")
OPEN_SECONDS = 3600.0  # resources, then again a session


def create_resources(terms: Terms, plan: ResourcesPlan) -> Flow[Lifecycle]:
    """Create resources that the caller will stop; they are not waited for."""
    models = yield from models_or_none(terms)
    plan = replace(plan, base_model=model_to_train(models, plan.base_model))
    require_offered(models, plan.base_model or "", lora_rank=1 if plan.lora else None)
    what = f"create model resources for {plan.base_model}"
    return (yield from _create(terms, names.CREATE_RESOURCES, what, plan.body(), names.LIST_RESOURCES))


def open_session(terms: Terms, plan: SessionPlan) -> Flow[OpenSession]:
    """Create resources, wait until they are ready, create a session, wait until it runs.

    What was created is stopped again when anything goes wrong, Ctrl-C and cancellation included.
    """
    plan, models = yield from settle(terms, plan)
    what = f"create model resources for {plan.base_model}"
    made = yield from _create(terms, names.CREATE_RESOURCES, what, plan.resources_body(), names.LIST_RESOURCES)
    start = _running_session_on(terms, made.id, plan)
    session = yield from _or_stop(start, stop_resources(terms, made.id), f"model resources {made.id}")
    limits = limits_of(models, plan.base_model or "", lora=plan.lora_rank is not None)
    return OpenSession(session.id, plan.base_model or "", made.id, owned=True, limits=limits)


def open_session_on(terms: Terms, resources: Lifecycle, plan: SessionPlan) -> Flow[OpenSession]:
    """Wait until resources are ready and create a session on them; leaving it will not stop them."""
    plan, models = yield from settle(terms, replace(plan, base_model=resources.base_model))
    yield from wait_for_resources(terms, resources.id)
    session = yield from _session_on(terms, resources.id, plan)
    start = wait_for_session(terms, session.id)
    yield from _or_stop(start, stop_session(terms, session.id), f"training session {session.id}")
    limits = limits_of(models, plan.base_model or "", lora=plan.lora_rank is not None)
    made = OpenSession(session.id, plan.base_model or "", resources.id, owned=True, limits=limits)
    return replace(made, stops_resources=False)


def _or_stop(work: Flow[T], stop: Flow[None], what: str) -> Flow[T]:
    """Do the work; where anything goes wrong, Ctrl-C and cancellation included, stop what was created for it."""
    try:
        return (yield from work)
    except GeneratorExit:
        raise
    except BaseException as error:
        try:
            yield from stop
        except ServiceError as second:
            error.add_note(f"{what} could not be stopped and may still cost: {second}")
        raise


def _running_session_on(terms: Terms, resources_id: str, plan: SessionPlan) -> Flow[Lifecycle]:
    yield from wait_for_resources(terms, resources_id)
    session = yield from _session_on(terms, resources_id, plan)
    yield from wait_for_session(terms, session.id)
    return session


def _session_on(terms: Terms, resources_id: str, plan: SessionPlan) -> Flow[Lifecycle]:
    what = f"create a training session on {resources_id}"
    body = plan.session_body(resources_id)
    return (yield from _create(terms, names.CREATE_SESSION, what, body, names.LIST_SESSIONS))


def attach_session(terms: Terms, session_id: str) -> Flow[OpenSession]:
    """Find a session that runs already; leaving it will not stop it.

    Raises:
        ServiceError: it has ended, or the service does not know it.
    """
    found = yield from terms.call(session_request(session_id), parse_lifecycle)
    if found.status == SessionStatus.CREATING:
        found = yield from wait_for_session(terms, session_id)
    if found.status in {*names.INACTIVE_SESSIONS, SessionStatus.STOPPING}:
        raise ServiceError(
            f"training session {session_id} is {short_status(found.status)}, expected RUNNING: open a new one with "
            f"client.session(resume_from=...) and one of client.checkpoints(session_id={session_id!r})"
        )
    models = yield from models_or_none(terms)
    limits = limits_of(models, found.base_model, lora=found.lora_rank is not None)
    return OpenSession(found.id, found.base_model, found.resources_id, owned=False, limits=limits)


def find_resources(terms: Terms, resources_id: str) -> Flow[Lifecycle]:
    """Ask for resources that are there already."""
    return terms.call(resources_request(resources_id), parse_lifecycle)


def wait_for_resources(terms: Terms, resources_id: str, timeout: float = OPEN_SECONDS) -> Flow[Lifecycle]:
    """Wait until resources are ready."""
    dead = frozenset({*names.INACTIVE_RESOURCES})
    what, request = f"model resources {resources_id}", resources_request(resources_id)
    return (yield from _wait_until(terms, what, request, ResourcesStatus.READY, dead, timeout))


def wait_for_session(terms: Terms, session_id: str) -> Flow[Lifecycle]:
    """Wait until a session runs."""
    dead = frozenset({*names.INACTIVE_SESSIONS, SessionStatus.STOPPING})
    what, request = f"training session {session_id}", session_request(session_id)
    return (yield from _wait_until(terms, what, request, SessionStatus.RUNNING, dead, OPEN_SECONDS))


def _create(terms: Terms, route: Route, what: str, body: tuple[bytes, ...], listing: Route) -> Flow[Lifecycle]:
    """Create resources or a session: never sent twice unless the service refused before it began.

    Once it is sent, its answer is waited for even where the task is cancelled: what was created must be known.
    """
    lookup = (
        f"look for it with {listing.method} {listing.path()}?created_by=me before repeating, and stop what you find"
    )
    return held(terms.call(request_for(route, what, body=body, lookup=lookup), parse_lifecycle), pauses=False)


def _wait_until(
    terms: Terms, what: str, request: Request, wanted: str, dead: frozenset[str], timeout: float
) -> Flow[Lifecycle]:
    """Poll resources or a session until they have the status wanted.

    Raises:
        ServiceError: they reached a status from which they never will, or the time is over.
    """
    now = terms.runtime.clock()
    answer = yield from poll(
        request,
        parse_lifecycle,
        lambda found: found.status == wanted or found.status in dead,
        terms.runtime,
        since=now,
        deadline=now + timeout,
        retries=terms.retries,
    )
    if answer is None:
        raise ServiceError(f"{what} did not become {short_status(wanted)} within {timeout:g} s: try again later")
    if answer.status != wanted:
        raise ServiceError(
            f"{what} is {short_status(answer.status)}, expected {short_status(wanted)}"
            f"{': ' + answer.detail if answer.detail else ''}; {lifecycle_remedy(answer.detail)}"
        )
    return answer
