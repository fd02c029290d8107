"""Resources and sessions: created, waited for, stopped again where anything goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from samplekit.client.faults import lifecycle_remedy, quoted, service_words
from samplekit.client.flows import Terms, request_for, resources_request, session_request
from samplekit.client.offers import has_choice, limits_of, models_or_none, settle, settle_resources
from samplekit.client.plans import OpenSession, ResourcesPlan, SessionPlan
from samplekit.client.polling import Inquiry
from samplekit.client.steps import FREE, held
from samplekit.client.stopping import Heard, heed_nothing, stop_resources, stop_session
from samplekit.errors import ServiceError, StatusError
from samplekit.wire import names
from samplekit.wire.answers import require_status_of
from samplekit.wire.lifecycles import Lifecycle, parse_lifecycle, short_status
from samplekit.wire.names import ResourcesStatus, SessionStatus

if TYPE_CHECKING:
    from samplekit.client.steps import Flow, Request
    from samplekit.wire.names import Route
    from samplekit.wire.offers import SupportedModel

T = TypeVar("T")
OPEN_SECONDS = 3600.0  # resources, then again a session
_OTHER_OPTIMIZER = (
    "in Python: a checkpoint of Muon is resumed on client.create_resources(optimizer='muon') by "
    "resources.session(resume_from=...), one of Adam without it; load_optimizer=False takes the weights alone"
)


class EndedError(ServiceError):
    """Resources or a session have ended, or never will be ready: nothing more comes of them."""


@dataclass(frozen=True)
class _Kind:
    """What is created and costs until it is stopped."""

    name: str
    create: Route
    listing: Route
    statuses: str
    stop: Callable[[Terms, str], Flow[None]]


_RESOURCES = _Kind(
    "model resources", names.CREATE_RESOURCES, names.LIST_RESOURCES, names.RESOURCES_STATUS, stop_resources
)
_SESSION = _Kind("training session", names.CREATE_SESSION, names.LIST_SESSIONS, names.SESSION_STATUS, stop_session)


def create_resources(terms: Terms, plan: ResourcesPlan) -> Flow[Lifecycle]:
    """Create resources that the caller will stop; they are not waited for.

    They are stopped again where the caller will never hear of them, for Ctrl-C or a cancellation came meanwhile.
    """
    plan = yield from settle_resources(terms, plan)
    return (yield from _create(terms, _RESOURCES, f"for {plan.base_model}", plan.body(), _unused))


def open_session(terms: Terms, plan: SessionPlan) -> Flow[OpenSession]:
    """Create resources, wait until they are ready, create a session, wait until it runs.

    What was created is stopped again when anything goes wrong, Ctrl-C and cancellation included.
    """
    plan, models = yield from settle(terms, plan)

    def use(resources: Lifecycle) -> Flow[OpenSession]:
        ready = yield from wait_for_resources(terms, resources.id)
        return (yield from _session_on(terms, ready, plan, models, replace(_SESSION, stop=_stops_with_them)))

    return (yield from _create(terms, _RESOURCES, f"for {plan.base_model}", plan.resources_body(), use))


def open_session_on(terms: Terms, resources: Lifecycle, plan: SessionPlan, heard: Heard) -> Flow[OpenSession]:
    """Wait until resources are ready and create a session on them; leaving it will not stop them.

    Args:
        terms: clock, chance, retries.
        resources: as they were last heard of.
        plan: what the session should be.
        heard: is told of the resources whenever the service says something of them.
    """
    plan = replace(plan, base_model=resources.base_model)
    plan, models = yield from settle(terms, plan, resources.gpu_type, resources.lora_enabled)
    ready = yield from wait_for_resources(terms, resources.id, heard=heard)
    made = yield from _session_on(terms, ready, plan, models, _SESSION)
    return replace(made, stops_resources=False)


def _session_on(
    terms: Terms, resources: Lifecycle, plan: SessionPlan, models: list[SupportedModel], kind: _Kind
) -> Flow[OpenSession]:
    """Create a session on resources that are ready, and wait until it runs."""

    def use(session: Lifecycle) -> Flow[OpenSession]:
        found = yield from wait_for_session(terms, session.id)
        rank, model = found.lora_rank or plan.lora_rank, plan.base_model or ""
        limits = limits_of(models, model, resources.gpu_type, lora=rank is not None or resources.lora_enabled is True)
        return OpenSession(session.id, model, resources.id, owned=True, limits=limits, lora_rank=rank)

    try:
        return (yield from _create(terms, kind, f"on {resources.id}", plan.session_body(resources.id), use))
    except StatusError as error:
        if plan.resume_from is None or error.status != 400 or "muon" not in service_words(error.body).lower():
            raise
        raise error.reworded(f"{error.message}; {_OTHER_OPTIMIZER}") from error


def attach_session(terms: Terms, session_id: str) -> Flow[OpenSession]:
    """Find a session that runs already; leaving it will not stop it.

    Raises:
        EndedError: it has ended.
        StatusError: 404 where the service does not know it.
    """
    found = yield from terms.call(session_request(session_id), parse_lifecycle)
    terms.firsts.heard_of(_SESSION.name, found.id)
    if found.status == SessionStatus.CREATING:
        found = yield from wait_for_session(terms, session_id)
    if found.status in {*names.INACTIVE_SESSIONS, SessionStatus.STOPPING}:
        raise EndedError(
            f"training session {session_id} is {short_status(found.status)}, expected RUNNING: open a new one with "
            f"client.session(resume_from=...) and one of client.checkpoints(session_id={session_id!r})"
        )
    models = yield from models_or_none(terms)
    gpu_type = ""
    if found.resources_id and has_choice(models, found.base_model):
        gpu_type = (yield from find_resources(terms, found.resources_id)).gpu_type
    rank = found.lora_rank
    limits = limits_of(models, found.base_model, gpu_type, lora=rank is not None)
    return OpenSession(found.id, found.base_model, found.resources_id, owned=False, limits=limits, lora_rank=rank)


def find_resources(terms: Terms, resources_id: str) -> Flow[Lifecycle]:
    """Ask for resources that are there already."""
    found = yield from terms.call(resources_request(resources_id), parse_lifecycle)
    terms.firsts.heard_of(_RESOURCES.name, found.id)
    return found


def wait_for_resources(
    terms: Terms, resources_id: str, timeout: float = OPEN_SECONDS, heard: Heard = heed_nothing
) -> Flow[Lifecycle]:
    """Wait until resources are ready, for so many seconds; ``heard`` is told of them whenever they are asked for."""
    dead = frozenset({*names.INACTIVE_RESOURCES})
    what, request = f"model resources {resources_id}", resources_request(resources_id)
    return (yield from _wait_until(terms, what, request, ResourcesStatus.READY, dead, timeout, heard))


def wait_for_session(terms: Terms, session_id: str) -> Flow[Lifecycle]:
    """Wait until a session runs."""
    dead = frozenset({*names.INACTIVE_SESSIONS, SessionStatus.STOPPING})
    what, request = f"training session {session_id}", session_request(session_id)
    return (yield from _wait_until(terms, what, request, SessionStatus.RUNNING, dead, OPEN_SECONDS, heed_nothing))


def _create(
    terms: Terms, kind: _Kind, where: str, body: tuple[bytes, ...], use: Callable[[Lifecycle], Flow[T]]
) -> Flow[T]:
    """Create something that costs, and go on with it; where anything goes wrong from then on, stop it again.

    The create is never sent twice unless the service refused before it began. Once it is sent, its answer is waited for
    even where the task is cancelled, for what was created must be known.
    """
    listing = f"{kind.listing.method} {kind.listing.path()}?created_by=me"
    lookup = f"look for it with {listing} before repeating, and stop what you find"
    request = request_for(kind.create, f"create {kind.name} {where}", body=body, lookup=lookup)

    this_call = object()

    def parse(body: bytes) -> Lifecycle:
        answer = parse_lifecycle(body)
        require_status_of(kind.statuses, answer.status)
        terms.firsts.require(kind.name, answer.id, this_call)
        return answer

    made = yield from held(terms.call(request, parse), pauses=False)
    try:
        yield FREE
        return (yield from use(made))
    except GeneratorExit:
        raise
    except BaseException as error:
        try:
            yield from kind.stop(terms, made.id)
        except ServiceError as second:
            error.add_note(f"{kind.name} {made.id} could not be stopped and may still cost: {second}")
        raise


def _unused(made: Lifecycle) -> Flow[Lifecycle]:
    yield from ()
    return made


def _stops_with_them(terms: Terms, session_id: str) -> Flow[None]:
    """Leave a session to be stopped with its resources."""
    del terms, session_id
    yield from ()


def _wait_until(
    terms: Terms, what: str, request: Request, wanted: str, dead: frozenset[str], timeout: float, heard: Heard
) -> Flow[Lifecycle]:
    """Poll resources or a session until they have the status wanted.

    Raises:
        EndedError: they reached a status from which they never will.
        ServiceError: the time is over.
    """

    def ended(found: Lifecycle) -> bool:
        heard(found)
        return found.status == wanted or found.status in dead

    now = terms.runtime.clock()
    inquiry = Inquiry(
        request,
        parse_lifecycle,
        ended,
        terms.runtime,
        since=now,
        retries=terms.retries,
    )
    answer = yield from inquiry.poll(now + timeout)
    if answer is None:
        raise ServiceError(f"{what} did not become {short_status(wanted)} within {timeout:g} s: try again later")
    if answer.status != wanted:
        raise EndedError(
            f"{what} is {quoted(short_status(answer.status))}, expected {short_status(wanted)}"
            f"{': ' + quoted(answer.detail) if answer.detail else ''}; {lifecycle_remedy(answer.detail)}"
        )
    return answer
