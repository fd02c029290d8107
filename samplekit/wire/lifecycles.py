"""Model resources and training sessions as the service reports them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from samplekit.wire.answers import JsonObject, as_id, as_int, as_object, as_optional_int
from samplekit.wire.cutting import parse_cut


@dataclass(frozen=True)
class Lifecycle:
    """Model resources or a training session, as far as waiting for them needs.

    Attributes:
        id: the service's id.
        status: one of `ResourcesStatus` or `SessionStatus`, or a status we do not know.
        base_model: the model it is for.
        resources_id: of a session, the resources it runs on.
        lora_rank: of a LoRA session, its rank.
        step: optimizer steps done.
        queue_position: place among those who wait for hardware.
        detail: what the service says about an error.
        name: of a session, as it was called.
        created_at: when, as the service writes it.
        expires_at: of resources, when they stop by themselves.
        metadata: of a session, what its owner wrote to it.
        gpu_type: of resources, their hardware.
        lora_enabled: of resources, whether they hold adapters, else full weights; None where the service does not say.
        optimizer: of resources, ``"adam"`` or ``"muon"``; empty where the service does not say.
    """

    id: str
    status: str
    base_model: str = ""
    resources_id: str = ""
    lora_rank: int | None = None
    step: int = 0
    queue_position: int | None = None
    detail: str = ""
    name: str = ""
    created_at: str = ""
    expires_at: str = ""
    metadata: JsonObject = field(default_factory=dict[str, Any])
    gpu_type: str = ""
    lora_enabled: bool | None = None
    optimizer: str = ""


def parse_lifecycle(body: bytes) -> Lifecycle:
    """Parse what creating, getting or stopping resources or a session answers."""
    return lifecycle_of(parse_cut(body))


def lifecycle_of(answer: JsonObject) -> Lifecycle:
    """Read resources or a session."""
    error = as_object(answer.get("error"))
    lora = as_object(answer.get("lora_config"))
    return Lifecycle(
        as_id(answer, "id"),
        str(answer.get("status", "")),
        str(answer.get("base_model") or ""),
        str(answer.get("model_resources_id") or ""),
        as_int(lora["rank"], "lora_config.rank") if lora.get("rank") is not None else None,
        as_int(answer.get("step") or 0, "step"),
        as_optional_int(as_object(answer.get("status_details")), "queue_position"),
        " ".join(str(error[name]) for name in ("code", "message") if error.get(name)),
        str(answer.get("display_name") or ""),
        str(answer.get("created_at") or ""),
        str(answer.get("expires_at") or ""),
        as_object(answer.get("metadata")),
        str(as_object(answer.get("compute_config")).get("gpu_type") or ""),
        None if answer.get("lora_enabled") is None else answer["lora_enabled"] is True,
        next(iter(as_object(answer.get("optimizer_config"))), ""),
    )


def short_status(status: str) -> str:
    """Give a status as people say it: ``READY`` for ``MODEL_RESOURCES_STATUS_READY``."""
    return status.rpartition("_STATUS_")[2] or "unknown"
