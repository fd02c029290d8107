"""The service as an ASGI application: every path of the protocol, spelled in `samplekit.wire.names`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as AppRoute

from samplekit.chat.load import TINY
from samplekit.server.access import Gate, require_token
from samplekit.server.bodies import (
    MAX_BATCH_SIZE,
    ExtendBody,
    ResourcesBody,
    SessionBody,
    SessionUpdate,
    parse_body,
)
from samplekit.server.checkpoint_routes import (
    FILE_PATH,
    download_checkpoint,
    get_checkpoint,
    get_file,
    list_checkpoints,
)
from samplekit.server.error_answers import HANDLERS
from samplekit.server.model_loading import LoadedModel, load_model
from samplekit.server.operation_routes import get_operation, submit_operation
from samplekit.server.pages import lived, page
from samplekit.server.payload_routes import PAYLOAD_PATH, download_url, get_payload, put_payload, upload_url
from samplekit.server.records import GPU_TYPE
from samplekit.server.requests import json_response, receive_json, service_of
from samplekit.server.service import Service
from samplekit.server.settings import MAX_RANK
from samplekit.wire import names as wire

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 30.0


def create_app(
    model: str | LoadedModel = TINY, *, token: str | None = None, state_dir: str | Path | None = None
) -> Starlette:
    """Build the local service as an ASGI application; ``app.state.service`` is its state.

    Args:
        model: ``samplekit/tiny``, a Hugging Face path or id, or a model loaded before.
        token: what ``Authorization: Bearer`` must hold; None lets in whoever names this machine in
            the Host header, as programs on it do.
        state_dir: where accepted operations, policies, checkpoints and payloads outlive the process; the next service
            that is started with it goes on with them. None keeps nothing.
    """
    checked = None if token is None else require_token(token)
    loaded = model if isinstance(model, LoadedModel) else load_model(model)
    service = Service(loaded, state_dir=None if state_dir is None else Path(state_dir))

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        service.resume()
        sweeping = asyncio.create_task(_sweep(service))
        yield
        sweeping.cancel()
        await service.finish()
        service.close()

    app = Starlette(
        routes=_routes(),
        middleware=[Middleware(Gate, token=checked)],
        exception_handlers=HANDLERS,
        lifespan=lifespan,
    )
    app.state.service = service
    return app


async def _sweep(service: Service) -> None:
    """Let go of what nobody has used for long, whether or not anybody asks."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        service.lifetimes.expire()


def _routes() -> list[AppRoute]:
    def route(spec: wire.Route, endpoint: Callable[[Request], Awaitable[Response]]) -> AppRoute:
        return AppRoute(spec.template, endpoint, methods=[spec.method])

    return [
        AppRoute("/healthz", healthz, methods=["GET"]),
        AppRoute(PAYLOAD_PATH, put_payload, methods=["PUT"]),
        AppRoute(PAYLOAD_PATH, get_payload, methods=["GET"]),
        AppRoute(FILE_PATH, get_file, methods=["GET"]),
        route(wire.SUPPORTED_MODELS, supported_models),
        route(wire.ESTIMATE_COST, estimate_cost),
        route(wire.CREATE_RESOURCES, create_resources),
        route(wire.LIST_RESOURCES, list_resources),
        route(wire.GET_RESOURCES, get_resources),
        route(wire.EXTEND_EXPIRY, extend_expiry),
        route(wire.STOP_RESOURCES, stop_resources),
        route(wire.CREATE_SESSION, create_session),
        route(wire.LIST_SESSIONS, list_sessions),
        route(wire.GET_SESSION, get_session),
        route(wire.UPDATE_SESSION, update_session),
        route(wire.STOP_SESSION, stop_session),
        route(wire.SUBMIT_OPERATION, submit_operation),
        route(wire.GET_OPERATION, get_operation),
        route(wire.UPLOAD_URL, upload_url),
        route(wire.DOWNLOAD_URL, download_url),
        route(wire.LIST_CHECKPOINTS, list_checkpoints),
        route(wire.GET_CHECKPOINT, get_checkpoint),
        route(wire.DOWNLOAD_CHECKPOINT, download_checkpoint),
    ]


async def healthz(request: Request) -> Response:
    """Say that the service is up, and what it holds."""
    service = service_of(request)
    active = sum(session.is_active for session in service.sessions.values())
    return json_response({"status": "ok", "base_model": service.model.name, "active_sessions": active})


async def supported_models(request: Request) -> Response:
    """List the one model and its limits."""
    model = service_of(request).model
    limits = {"max_batch_size": MAX_BATCH_SIZE, "max_seq_length": model.context_length}
    shared = {name: wire.SAMPLING_DEFAULTS[name] for name in ("max_tokens", "temperature")}
    defaults = {"logprobs": 1, "n": 1, **shared}
    config = {
        "gpu_type": GPU_TYPE,
        "trainer_config": {"lora": {**limits, "max_rank": MAX_RANK}, "full": limits},
        "generator_config": {"context_length": model.context_length, "sampling_defaults": defaults},
    }
    shown = {"base_model": model.name, "default_gpu_type": GPU_TYPE, "compute_configs": [config]}
    return json_response({"data": [shown]})


async def estimate_cost(request: Request) -> Response:
    """Say that the local service costs nothing."""
    service_of(request).refuse_other_model(parse_body(ResourcesBody, await receive_json(request)))
    return json_response({"currency": "USD", "price_per_hour": 0.0})


async def create_resources(request: Request) -> Response:
    """Give out resources."""
    body = parse_body(ResourcesBody, await receive_json(request))
    return json_response(service_of(request).create_resources(body).to_wire())


async def list_resources(request: Request) -> Response:
    """List resources, oldest first."""
    return json_response(page(request, service_of(request).resources, lived(request, wire.ResourcesStatus)))


async def get_resources(request: Request) -> Response:
    """Show resources."""
    return json_response(service_of(request).find_resources(request.path_params["resources_id"]).to_wire())


async def extend_expiry(request: Request) -> Response:
    """Keep resources for longer."""
    service = service_of(request)
    resources = service.find_resources(request.path_params["resources_id"])
    service.lifetimes.extend(resources, parse_body(ExtendBody, await receive_json(request)).seconds)
    return json_response(resources.to_wire())


async def stop_resources(request: Request) -> Response:
    """Stop resources."""
    service = service_of(request)
    resources = service.find_resources(request.path_params["resources_id"])
    force = request.query_params.get("force", "").lower() in {"true", "1"}
    service.lifetimes.stop_resources(resources, force=force)
    return json_response(resources.to_wire())


async def create_session(request: Request) -> Response:
    """Open a session."""
    body = parse_body(SessionBody, await receive_json(request))
    return json_response((await service_of(request).create_session(body)).to_wire())


async def list_sessions(request: Request) -> Response:
    """List sessions, oldest first."""
    wanted = request.query_params.get("model_resources_id")
    is_chosen = lived(request, wire.SessionStatus)
    sessions = service_of(request).sessions
    return json_response(page(request, sessions, lambda item: wanted in {None, item.resources.id} and is_chosen(item)))


async def get_session(request: Request) -> Response:
    """Show a session."""
    return json_response(service_of(request).find_session(request.path_params["session_id"]).to_wire())


async def update_session(request: Request) -> Response:
    """Rename a session."""
    service = service_of(request)
    session = service.find_session(request.path_params["session_id"])
    service.update_session(session, parse_body(SessionUpdate, await receive_json(request)))
    return json_response(session.to_wire())


async def stop_session(request: Request) -> Response:
    """Stop a session."""
    service = service_of(request)
    session = service.find_session(request.path_params["session_id"])
    service.lifetimes.stop_session(session)
    return json_response(session.to_wire())
