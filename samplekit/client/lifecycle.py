"""Resources and sessions: created, waited for, stopped again whatever happens."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from samplekit.client.exchange import poll
from samplekit.client.flows import Terms, request_for
from samplekit.client.plans import OpenSession, SessionPlan
from samplekit.client.steps import held
from samplekit.errors import ServiceError, StatusError
from samplekit.wire import names
from samplekit.wire.answers import (
    CostEstimate,
    Lifecycle,
    Limits,
    SupportedModel,
    parse_cost,
    parse_lifecycle,
    parse_supported_models,
)
from samplekit.wire.names import ResourcesStatus, SessionStatus

if TYPE_CHECKING:
    from samplekit.client.steps import Flow, Request
    from samplekit.wire.names import Route

OPEN_SECONDS = 3600.0  # resources, then again a session
STOP_SECONDS = 300.0


def get_models(terms: Terms) -> Flow[list[SupportedModel]]:
    """Ask which models the service trains."""
    return terms.call(request_for(names.SUPPORTED_MODELS, "list the supported models"), parse_supported_models)


def estimate_cost(terms: Terms, plan: SessionPlan) -> Flow[CostEstimate]:
    """Ask what the resources of a plan would cost."""
    plan, _ = yield from settle(terms, plan)
    request = request_for(names.ESTIMATE_COST, "estimate the cost of model resources", body=plan.resources_body())
    return (yield from terms.call(request, parse_cost))


def open_session(terms: Terms, plan: SessionPlan) -> Flow[OpenSession]:
    """Create resources, wait until they are ready, create a session, wait until it runs.

    What was created is stopped again when anything goes wrong, Ctrl-C and cancellation included.
    """
    plan, models = yield from settle(terms, plan)
    what = f"create model resources for {plan.base_model}"
    made = yield from _create(terms, names.CREATE_RESOURCES, what, plan.resources_body(), names.LIST_RESOURCES)
    try:
        yield from wait_until(
            terms,
            f"model resources {made.id}",
            resources_request(made.id),
            ResourcesStatus.READY,
            frozenset({*names.INACTIVE_RESOURCES}),
        )
        what = f"create a training session on {made.id}"
        body = plan.session_body(made.id)
        session = yield from _create(terms, names.CREATE_SESSION, what, body, names.LIST_SESSIONS)
        yield from wait_until(
            terms,
            f"training session {session.id}",
            session_request(session.id),
            SessionStatus.RUNNING,
            frozenset({*names.INACTIVE_SESSIONS, SessionStatus.STOPPING}),
        )
    except GeneratorExit:
        raise
    except BaseException as error:
        yield from _stop_after(terms, made.id, error)
        raise
    limits = limits_of(models, plan.base_model or "", lora=plan.lora_rank is not None)
    return OpenSession(session.id, plan.base_model or "", made.id, owned=True, limits=limits)


def _stop_after(terms: Terms, resources_id: str, error: BaseException) -> Flow[None]:
    try:
        yield from stop_resources(terms, resources_id)
    except ServiceError as second:
        error.add_note(f"model resources {resources_id} could not be stopped and may still cost: {second}")


def attach_session(terms: Terms, session_id: str) -> Flow[OpenSession]:
    """Find a session that runs already; leaving it will not stop it."""
    found = yield from terms.call(session_request(session_id), parse_lifecycle)
    models = yield from _models_or_none(terms)
    limits = limits_of(models, found.base_model, lora=found.lora_rank is not None)
    return OpenSession(found.id, found.base_model, found.resources_id, owned=False, limits=limits)


def settle(terms: Terms, plan: SessionPlan) -> Flow[tuple[SessionPlan, list[SupportedModel]]]:
    """Find the base model that a plan leaves open.

    Raises:
        ServiceError: there is not exactly one model to take, the model is not trained this way, or the LoRA rank is
            over its limit.
    """
    models = yield from _models_or_none(terms)
    if plan.base_model is None and plan.resume_from is not None:
        what = f"get checkpoint {plan.resume_from}"
        request = request_for(names.GET_CHECKPOINT, what, checkpoint_id=plan.resume_from)
        checkpoint = yield from terms.call(request, parse_lifecycle)
        plan = replace(plan, base_model=checkpoint.base_model or None)
    if plan.base_model is None:
        if len(models) != 1:
            offered = ", ".join(model.base_model for model in models) or "none"
            raise ServiceError(f"base_model is None and the service trains {offered}: pass base_model=")
        plan = replace(plan, base_model=models[0].base_model)
    _require_offered(models, plan)
    limits = limits_of(models, plan.base_model or "", lora=plan.lora_rank is not None)
    if limits is not None and limits.max_rank is not None and (plan.lora_rank or 0) > limits.max_rank:
        raise ServiceError(f"lora_rank is {plan.lora_rank}, expected at most {limits.max_rank} for {plan.base_model}")
    return plan, models


def _require_offered(models: list[SupportedModel], plan: SessionPlan) -> None:
    """Refuse LoRA where a model offers full weights only, and the reverse; what is not known is left to the service."""
    found = next((model for model in models if model.base_model == plan.base_model), None)
    if found is None:
        return
    if plan.lora_rank is None and found.full is None and found.lora is not None:
        raise ServiceError(f"lora_rank is None (full weights) and {plan.base_model} offers LoRA only: pass lora_rank=")
    if plan.lora_rank is not None and found.lora is None and found.full is not None:
        raise ServiceError(
            f"lora_rank is {plan.lora_rank} and {plan.base_model} offers full weights only: leave lora_rank out"
        )


def _models_or_none(terms: Terms) -> Flow[list[SupportedModel]]:
    """Ask for the models; a service without the list leaves the limits unknown."""
    try:
        return (yield from get_models(terms))
    except StatusError as error:
        if error.status == 404:
            return []
        raise


def limits_of(models: list[SupportedModel], base_model: str, *, lora: bool) -> Limits | None:
    """Find what one way of training a model allows."""
    found = next((model for model in models if model.base_model == base_model), None)
    return None if found is None else found.lora if lora else found.full


def _create(terms: Terms, route: Route, what: str, body: tuple[bytes, ...], listing: Route) -> Flow[Lifecycle]:
    """Create resources or a session: never sent twice unless the service refused before it began.

    Once it is sent, its answer is waited for even where the task is cancelled: what was created must be known.
    """
    lookup = (
        f"look for it with {listing.method} {listing.path()}?created_by=me before repeating, and stop what you find"
    )
    return held(terms.call(request_for(route, what, body=body, lookup=lookup), parse_lifecycle), pauses=False)


def wait_until(
    terms: Terms, what: str, request: Request, wanted: str, dead: frozenset[str], timeout: float = OPEN_SECONDS
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
            f"{': ' + answer.detail if answer.detail else ''}; open a new session"
        )
    return answer


def short_status(status: str) -> str:
    """Give a status as people say it: ``READY`` for ``MODEL_RESOURCES_STATUS_READY``."""
    return status.rpartition("_STATUS_")[2] or "unknown"


def resources_request(resources_id: str) -> Request:
    """Make the request that asks for model resources."""
    return request_for(names.GET_RESOURCES, f"get model resources {resources_id}", resources_id=resources_id)


def session_request(session_id: str) -> Request:
    """Make the request that asks for a training session."""
    return request_for(names.GET_SESSION, f"get training session {session_id}", session_id=session_id)


def stop_session(terms: Terms, session_id: str, timeout: float = STOP_SECONDS) -> Flow[None]:
    """Stop a session and wait until it is inactive, even where the task is cancelled meanwhile."""
    request = request_for(names.STOP_SESSION, f"stop training session {session_id}", session_id=session_id)
    inactive = frozenset({*names.INACTIVE_SESSIONS})
    yield from held(_stop(terms, request, session_request(session_id), inactive, timeout), pauses=True)


def stop_resources(terms: Terms, resources_id: str, timeout: float = STOP_SECONDS) -> Flow[None]:
    """Stop resources with every session on them, and wait until they cost nothing more, cancelled or not."""
    what = f"stop model resources {resources_id}"
    request = request_for(names.STOP_RESOURCES, what, query={"force": "true"}, resources_id=resources_id)
    look = resources_request(resources_id)
    yield from held(_stop(terms, request, look, frozenset({*names.INACTIVE_RESOURCES}), timeout), pauses=True)


def _stop(terms: Terms, request: Request, look: Request, inactive: frozenset[str], timeout: float) -> Flow[None]:
    """Ask to stop, whatever became of the request look whether it stopped, and ask once more if not."""
    for last in (False, True):
        try:
            answer = yield from terms.call(request, parse_lifecycle)
        except ServiceError as error:
            state = yield from _look(terms, look)
            if state is None or state.status in inactive:
                return
            if last or (isinstance(error, StatusError) and error.status < 500):
                raise
            answer = state
        else:
            break
    if answer.status in inactive:
        return
    now = terms.runtime.clock()
    try:
        found = yield from poll(
            look,
            parse_lifecycle,
            lambda state: state.status in inactive,
            terms.runtime,
            since=now - names.NOT_FOUND_GRACE,
            deadline=now + timeout,
            retries=terms.retries,
        )
    except StatusError as error:
        if error.status == 404:  # gone altogether
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
