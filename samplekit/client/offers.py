"""What the service offers: models with their limits, prices, and what a plan leaves open settled by them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from samplekit.client.flows import Terms, request_for
from samplekit.client.plans import ResourcesPlan, SessionPlan
from samplekit.client.steps import Subject
from samplekit.errors import ServiceError, StatusError
from samplekit.wire import names
from samplekit.wire.listings import parse_checkpoint
from samplekit.wire.offers import (
    CostEstimate,
    Limits,
    SupportedModel,
    parse_cost,
    parse_supported_models,
)

if TYPE_CHECKING:
    from samplekit.client.steps import Flow
    from samplekit.wire.listings import Checkpoint


def get_models(terms: Terms) -> Flow[list[SupportedModel]]:
    """Ask which models the service trains."""
    return terms.call(request_for(names.SUPPORTED_MODELS, "list the supported models"), parse_supported_models)


def estimate_cost(terms: Terms, plan: ResourcesPlan, lora_rank: int | None) -> Flow[CostEstimate]:
    """Ask what the resources of a plan would cost, by the body that would create them."""
    plan = yield from settle_resources(terms, plan, lora_rank)
    request = request_for(names.ESTIMATE_COST, "estimate the cost of model resources", body=plan.body())
    return (yield from terms.call(request, parse_cost))


def settle_resources(terms: Terms, plan: ResourcesPlan, lora_rank: int | None = None) -> Flow[ResourcesPlan]:
    """Find the base model that a plan leaves open.

    Args:
        terms: clock, chance, retries.
        plan: what the resources should be.
        lora_rank: of a session on them, where known.

    Raises:
        ServiceError: as `settle` does.
    """
    models = yield from models_or_none(terms)
    plan = replace(plan, base_model=model_to_train(models, plan.base_model))
    require_offered(models, plan.base_model or "", lora_rank or (1 if plan.lora else None))
    _require_rank(models, plan.base_model or "", plan.gpu_type or "", lora_rank)
    return plan


def settle(
    terms: Terms, plan: SessionPlan, gpu_type: str = "", lora_enabled: bool | None = None
) -> Flow[tuple[SessionPlan, list[SupportedModel]]]:
    """Find the base model, and the rank of a checkpoint's adapter, that a plan leaves open.

    Args:
        terms: clock, chance, retries.
        plan: what the session should be.
        gpu_type: the hardware it will run on; empty for the default.
        lora_enabled: whether its resources hold adapters, else full weights; None where that is not known, or follows.

    Raises:
        ServiceError: there is not exactly one model to take, the model or the resources are not trained this way, or
            the LoRA rank is over its limit.
    """
    models = yield from models_or_none(terms)
    if plan.resume_from is not None:
        found = yield from get_checkpoint(terms, plan.resume_from)
        plan = replace(
            plan, base_model=plan.base_model or found.base_model or None, lora_rank=plan.lora_rank or found.lora_rank
        )
    plan = replace(plan, base_model=model_to_train(models, plan.base_model))
    _require_held(plan, lora_enabled)
    require_offered(models, plan.base_model or "", plan.lora_rank)
    _require_rank(models, plan.base_model or "", gpu_type, plan.lora_rank)
    return plan, models


def _require_held(plan: SessionPlan, lora_enabled: bool | None) -> None:
    """Refuse to train something else than asked for: the service gives LoRA resources an adapter without being asked.

    What a checkpoint holds of which the service names no rank is left to the service.
    """
    if lora_enabled and plan.lora_rank is None and plan.resume_from is None:
        raise ServiceError(
            "lora_rank is None (full weights) and these model resources hold LoRA adapters: pass lora_rank= (the "
            f"service's default is {names.LORA_DEFAULTS['rank']}), or create resources with lora=False"
        )
    if lora_enabled is False and plan.lora_rank is not None:
        raise ServiceError(
            f"lora_rank is {plan.lora_rank} and these model resources train full weights: leave lora_rank out, or "
            "create resources with lora=True"
        )


def _require_rank(models: list[SupportedModel], base_model: str, gpu_type: str, lora_rank: int | None) -> None:
    limits = limits_of(models, base_model, gpu_type, lora=lora_rank is not None)
    if limits is not None and limits.max_rank is not None and (lora_rank or 0) > limits.max_rank:
        raise ServiceError(f"lora_rank is {lora_rank}, expected at most {limits.max_rank} for {base_model}")


def get_checkpoint(terms: Terms, checkpoint_id: str) -> Flow[Checkpoint]:
    """Ask what a checkpoint is."""
    subject = Subject("checkpoint", checkpoint_id)
    request = request_for(names.GET_CHECKPOINT, f"get {subject}", subject=subject, checkpoint_id=checkpoint_id)
    return terms.call(request, parse_checkpoint)


def model_to_train(models: list[SupportedModel], base_model: str | None) -> str:
    """Take the model that was named, else the only one there is."""
    if base_model is not None:
        return base_model
    if len(models) != 1:
        offered = ", ".join(model.base_model for model in models) or "none"
        raise ServiceError(f"base_model is None and the service trains {offered}: pass base_model=")
    return models[0].base_model


def require_offered(models: list[SupportedModel], base_model: str, lora_rank: int | None) -> None:
    """Refuse LoRA where a model offers full weights only, and the reverse; what is not known is left to the service."""
    found = next((model for model in models if model.base_model == base_model), None)
    if found is None:
        return
    if lora_rank is None and found.full is None and found.lora is not None:
        raise ServiceError(f"lora_rank is None (full weights) and {base_model} offers LoRA only: pass lora_rank=")
    if lora_rank is not None and found.lora is None and found.full is not None:
        raise ServiceError(f"lora_rank is {lora_rank} and {base_model} offers full weights only: leave lora_rank out")


def models_or_none(terms: Terms) -> Flow[list[SupportedModel]]:
    """Ask for the models; a service without the list leaves the limits unknown."""
    try:
        return (yield from get_models(terms))
    except StatusError as error:
        if error.status == 404:
            return []
        raise


def limits_of(models: list[SupportedModel], base_model: str, gpu_type: str, *, lora: bool) -> Limits | None:
    """Find what one way of training a model on some hardware allows, on the default where none is named."""
    found = next((model for model in models if model.base_model == base_model), None)
    return None if found is None else found.limits(gpu_type, lora=lora)


def has_choice(models: list[SupportedModel], base_model: str) -> bool:
    """Tell whether a model is trained on several kinds of hardware, so that its limits depend on which."""
    return any(len(model.hardware) > 1 for model in models if model.base_model == base_model)
