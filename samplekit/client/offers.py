"""What the service offers: models with their limits, prices, and what a plan leaves open settled by them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from samplekit.client.flows import Terms, request_for
from samplekit.client.plans import SessionPlan
from samplekit.client.steps import Subject
from samplekit.errors import ServiceError, StatusError
from samplekit.wire import names
from samplekit.wire.answers import (
    CostEstimate,
    Limits,
    SupportedModel,
    parse_cost,
    parse_supported_models,
)
from samplekit.wire.listings import parse_checkpoint

if TYPE_CHECKING:
    from samplekit.client.steps import Flow
    from samplekit.wire.listings import Checkpoint


def get_models(terms: Terms) -> Flow[list[SupportedModel]]:
    """Ask which models the service trains."""
    return terms.call(request_for(names.SUPPORTED_MODELS, "list the supported models"), parse_supported_models)


def estimate_cost(terms: Terms, plan: SessionPlan) -> Flow[CostEstimate]:
    """Ask what the resources of a plan would cost."""
    plan, _ = yield from settle(terms, plan)
    request = request_for(names.ESTIMATE_COST, "estimate the cost of model resources", body=plan.resources_body())
    return (yield from terms.call(request, parse_cost))


def settle(terms: Terms, plan: SessionPlan) -> Flow[tuple[SessionPlan, list[SupportedModel]]]:
    """Find the base model, and the rank of a checkpoint's adapter, that a plan leaves open.

    Raises:
        ServiceError: there is not exactly one model to take, the model is not trained this way, or the LoRA rank is
            over its limit.
    """
    models = yield from models_or_none(terms)
    if plan.resume_from is not None:
        found = yield from get_checkpoint(terms, plan.resume_from)
        plan = replace(
            plan, base_model=plan.base_model or found.base_model or None, lora_rank=plan.lora_rank or found.lora_rank
        )
    plan = replace(plan, base_model=model_to_train(models, plan.base_model))
    require_offered(models, plan.base_model or "", plan.lora_rank)
    limits = limits_of(models, plan.base_model or "", lora=plan.lora_rank is not None)
    if limits is not None and limits.max_rank is not None and (plan.lora_rank or 0) > limits.max_rank:
        raise ServiceError(f"lora_rank is {plan.lora_rank}, expected at most {limits.max_rank} for {plan.base_model}")
    return plan, models


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


def limits_of(models: list[SupportedModel], base_model: str, *, lora: bool) -> Limits | None:
    """Find what one way of training a model allows."""
    found = next((model for model in models if model.base_model == base_model), None)
    return None if found is None else found.lora if lora else found.full
