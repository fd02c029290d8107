"""Small request bodies, closed: an unknown member or a value of another type is refused by its path."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from samplekit.server.refusals import describe_validation, invalid
from samplekit.wire.names import (
    ADAM_DEFAULTS,
    EXTEND_EXPIRY_SECONDS,
    INACTIVE_TIMEOUT_SECONDS,
    LORA_DEFAULTS,
    MAX_TOPK_PROMPT_LOGPROBS,
    SAMPLING_DEFAULTS,
    WeightSyncType,
)

DEFAULT_INACTIVE_TIMEOUT = 3600
MAX_RANK = 128
MAX_NUM_SAMPLES = 1024


def _int64(value: object) -> object:
    """Read an int64 that JSON may spell as a decimal string."""
    return int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else value


Int64 = Annotated[int, BeforeValidator(_int64), Field(ge=-(2**63), lt=2**64)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Decay = Annotated[float, Field(ge=0, lt=1)]


class Body(BaseModel):
    """A request body."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ComputeConfig(Body):
    """What to run on; the local service has one machine and takes any name for it."""

    gpu_type: str | None = None
    num_generator_replicas: Annotated[int, Field(ge=0)] = 1


class ResourcesBody(Body):
    """Creating model resources, or asking what they would cost."""

    base_model: str
    base_weights_ref: str | None = None
    compute_config: ComputeConfig = ComputeConfig()
    lora_enabled: bool = True
    optimizer_config: dict[str, Any] = Field(default_factory=lambda: {"adam": {}})
    inactive_timeout: Annotated[int, Field(ge=INACTIVE_TIMEOUT_SECONDS[0], le=INACTIVE_TIMEOUT_SECONDS[1])] = (
        DEFAULT_INACTIVE_TIMEOUT
    )


class ExtendBody(Body):
    """Keeping resources for longer."""

    seconds: Annotated[int, Field(ge=EXTEND_EXPIRY_SECONDS[0], le=EXTEND_EXPIRY_SECONDS[1])]


class LoraBody(Body):
    """How a LoRA session is adapted."""

    rank: Annotated[int, Field(ge=1, le=MAX_RANK)] = int(LORA_DEFAULTS["rank"])
    alpha: Annotated[int, Field(ge=1)] = int(LORA_DEFAULTS["alpha"])
    dropout: Decay = float(LORA_DEFAULTS["dropout"])
    seed: Int64 = 0
    train_unembed: bool = bool(LORA_DEFAULTS["train_unembed"])


class SessionBody(Body):
    """Opening a session."""

    model_resources_id: str
    display_name: str | None = None
    lora_config: LoraBody | None = None
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    resume_from_checkpoint_id: str | None = None
    load_optimizer: bool | None = None


class SessionUpdate(Body):
    """Renaming a session; members left out stay as they are."""

    display_name: str | None = None
    metadata: dict[str, Any] | None = None


class AdamBody(Body):
    """Settings of one Adam step; only the learning rate has no default."""

    learning_rate: NotNegative | None = None
    beta1: Decay = ADAM_DEFAULTS["beta1"]
    beta2: Decay = ADAM_DEFAULTS["beta2"]
    eps: Positive = ADAM_DEFAULTS["eps"]
    weight_decay: NotNegative = ADAM_DEFAULTS["weight_decay"]
    grad_clip_norm: NotNegative = ADAM_DEFAULTS["grad_clip_norm"]


class OptimStepBody(Body):
    """Applying the accumulated gradients."""

    adam_params: AdamBody | None = None
    muon_params: dict[str, Any] | None = None


class WeightsSyncBody(Body):
    """Handing the trained weights to the generator."""

    weight_sync_type: Annotated[WeightSyncType, Field(strict=False)]


class SamplingBody(Body):
    """How completions are drawn."""

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: NotNegative = SAMPLING_DEFAULTS["temperature"]
    top_p: Annotated[float, Field(gt=0, le=1)] = SAMPLING_DEFAULTS["top_p"]
    top_k: Annotated[int, Field(ge=-1)] = int(SAMPLING_DEFAULTS["top_k"])
    stop: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list[str])
    seed: Int64 | None = None


class SampleBody(Body):
    """Drawing completions; ``model_inputs`` are read by `samplekit.sample.ModelInput`."""

    model_inputs: Annotated[list[Any], Field(min_length=1)]
    num_samples: Annotated[int, Field(ge=1, le=MAX_NUM_SAMPLES)] = 1
    sampling_params: SamplingBody = SamplingBody()
    prompt_logprobs: bool = False
    topk_prompt_logprobs: Annotated[int, Field(ge=0, le=MAX_TOPK_PROMPT_LOGPROBS)] = 0
    return_routed_experts: bool = False


AnyBody = TypeVar("AnyBody", bound=Body)


def read_body(kind: type[AnyBody], value: object) -> AnyBody:
    """Read a parsed JSON body.

    Raises:
        Refusal: it does not hold what it should (400).
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise invalid(describe_validation(error)) from error
