"""Small request bodies, closed: an unknown member or a value of another type is refused by its path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

from pydantic import AfterValidator, Field, ValidationError

from samplekit.server.refusals import describe_validation, invalid
from samplekit.server.settings import (
    AdamDefaults,
    Distribution,
    Int64,
    LoraSettings,
    MuonDefaults,
    NotNegative,
    Settings,
)
from samplekit.wire.names import (
    EXTEND_EXPIRY_SECONDS,
    GRADIENT_DTYPE,
    GRADIENT_DTYPES,
    INACTIVE_TIMEOUT_SECONDS,
    MAX_BODY_DEPTH,
    MAX_TOPK_PROMPT_LOGPROBS,
    WeightSyncType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_INACTIVE_TIMEOUT = 3600
MAX_NUM_SAMPLES = 1024
MAX_BATCH_SIZE = 512


def _gradient_dtype(value: str) -> str:
    if value not in GRADIENT_DTYPES:
        raise ValueError(f"expected one of {', '.join(sorted(GRADIENT_DTYPES))}")
    return value


Samples = Annotated[list[Any], Field(min_length=1, max_length=MAX_BATCH_SIZE)]


def _members(value: Any) -> Iterable[Any]:  # noqa: ANN401 - any JSON
    return cast("dict[str, Any]", value).values() if isinstance(value, dict) else value


def _shallow(value: dict[str, Any], levels: int = MAX_BODY_DEPTH) -> dict[str, Any]:
    """Refuse what nests deeper than the client can send, for it comes back in every list of sessions."""
    inner: list[Any] = [value]
    for _ in range(levels):
        inner = [item for outer in inner for item in _members(outer) if isinstance(item, dict | list)]
        if not inner:
            return value
    raise ValueError(f"it nests deeper than {levels} lists or objects: keep it flatter, or as text")


Metadata = Annotated[dict[str, Any], AfterValidator(_shallow)]
GradientDtype = Annotated[str, AfterValidator(_gradient_dtype)]


class ComputeConfig(Settings):
    """What to run on; the local service has one machine and takes any name for it."""

    gpu_type: str | None = None
    num_generator_replicas: Annotated[int, Field(ge=0)] = 1


class AdamBody(AdamDefaults):
    """Settings of one Adam step; resources may have been created with a learning rate."""

    learning_rate: NotNegative | None = None


class MuonBody(MuonDefaults):
    """Settings of one Muon step, with those of Adam for the weights that Muon does not train."""

    learning_rate: NotNegative | None = None
    adam: AdamBody = AdamBody()


class MuonConfig(Settings):
    """How Muon scales its step; left open, as the original does."""

    scaling_strategy: Literal[
        "MUON_SCALING_STRATEGY_UNSPECIFIED", "MUON_SCALING_STRATEGY_MATCH_ADAM", "MUON_SCALING_STRATEGY_ORIGINAL"
    ] = "MUON_SCALING_STRATEGY_UNSPECIFIED"


class OptimizerConfig(Settings):
    """Which optimizer sessions train by; learning rates may be set here once."""

    adam: AdamBody | None = None
    muon: MuonConfig | None = None


class ResourcesBody(Settings):
    """Creating model resources, or asking what they would cost."""

    base_model: str
    base_weights_ref: str | None = None
    compute_config: ComputeConfig = ComputeConfig()
    lora_enabled: bool = True
    optimizer_config: OptimizerConfig = OptimizerConfig(adam=AdamBody())
    inactive_timeout: Annotated[int, Field(ge=INACTIVE_TIMEOUT_SECONDS[0], le=INACTIVE_TIMEOUT_SECONDS[1])] = (
        DEFAULT_INACTIVE_TIMEOUT
    )


class ExtendBody(Settings):
    """Keeping resources for longer."""

    seconds: Annotated[int, Field(ge=EXTEND_EXPIRY_SECONDS[0], le=EXTEND_EXPIRY_SECONDS[1])]


class SessionBody(Settings):
    """Opening a session."""

    model_resources_id: str
    display_name: str | None = None
    lora_config: LoraSettings | None = None
    metadata: Metadata = Field(default_factory=dict[str, Any])
    resume_from_checkpoint_id: str | None = None
    load_optimizer: bool | None = None


class SessionUpdate(Settings):
    """Renaming a session; members left out stay as they are, and empty texts clear them."""

    display_name: str | None = None
    metadata: Metadata | None = None


class ForwardBackwardBody(Settings):
    """A pass; the loss is read by `samplekit.losses.Loss`, samples by `samplekit.sample.Sample`."""

    loss: Any = Field(default_factory=dict[str, Any])
    samples: Samples
    forward_only: bool = False
    return_loss_fn_outputs: bool = False


class GradientBody(Settings):
    """The gradient of one sample; its values are read with the samples."""

    data: Any
    dtype: GradientDtype = GRADIENT_DTYPE


class CustomForwardBackwardBody(Settings):
    """A pass whose gradient the caller computed."""

    samples: Samples
    gradients: list[GradientBody]


class OptimStepBody(Settings):
    """Applying the accumulated gradients."""

    adam_params: AdamBody | None = None
    muon_params: MuonBody | None = None


class WeightsSyncBody(Settings):
    """Handing the trained weights to the generator."""

    weight_sync_type: Annotated[WeightSyncType, Field(strict=False)]


class DrawingBody(Distribution):
    """How completions are drawn; the service settles a seed and a length that fits where they are left out."""

    seed: Int64 | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None


class GenerateBody(Settings):
    """Drawing completions; ``model_inputs`` are read by `samplekit.sample.ModelInput`."""

    model_inputs: Annotated[list[Any], Field(min_length=1)]
    num_samples: Annotated[int, Field(ge=1, le=MAX_NUM_SAMPLES)] = 1
    sampling_params: DrawingBody = DrawingBody()
    prompt_logprobs: bool = False
    topk_prompt_logprobs: Annotated[int, Field(ge=0, le=MAX_TOPK_PROMPT_LOGPROBS)] = 0
    return_routed_experts: bool = False


AnyBody = TypeVar("AnyBody", bound=Settings)


def parse_body(kind: type[AnyBody], value: object) -> AnyBody:
    """Make a body of parsed JSON.

    Raises:
        Refusal: it does not hold what it should (400).
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise invalid(describe_validation(error, kind)) from error
