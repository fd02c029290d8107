"""Settings that a request may carry, each with its range; what it leaves out is what `samplekit.wire.names` says."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from samplekit.wire.names import (
    ADAM_DEFAULTS,
    LARGEST_SETTING,
    LORA_DEFAULTS,
    MAX_NEWTON_SCHULZ_STEPS,
    SAMPLING_DEFAULTS,
    SMALLEST_EPSILON,
    SMALLEST_TEMPERATURE,
)

MAX_RANK = 128
# What Muon's authors use; the service documents no defaults.
MUON_MOMENTUM, MUON_NEWTON_SCHULZ_STEPS = 0.95, 5


def _int64(value: object) -> object:
    """Take an int64 that JSON may spell as a decimal string."""
    return int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else value


Int64 = Annotated[int, BeforeValidator(_int64), Field(ge=-(2**63), lt=2**64)]
NotNegative = Annotated[float, Field(ge=0, le=LARGEST_SETTING, allow_inf_nan=False)]
Epsilon = Annotated[float, Field(ge=SMALLEST_EPSILON, le=LARGEST_SETTING, allow_inf_nan=False)]
Decay = Annotated[float, Field(ge=0, lt=1)]
NewtonSchulzSteps = Annotated[int, Field(ge=1, le=MAX_NEWTON_SCHULZ_STEPS)]


def _divides(value: float) -> float:
    if 0 < value < SMALLEST_TEMPERATURE:
        raise ValueError(f"expected 0, or {SMALLEST_TEMPERATURE:g} or more: logits divided by it leave float32")
    return value


Temperature = Annotated[NotNegative, AfterValidator(_divides)]


class Settings(BaseModel):
    """Closed and frozen: an unknown member or a value of another type is refused by its path."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class LoraSettings(Settings):
    """How a LoRA session is adapted.

    Attributes:
        rank: of every adapter.
        alpha: adapters are scaled by alpha / rank.
        dropout: on an adapter's input while training, in [0, 1).
        seed: draws the first weights.
        train_unembed: whether the output head gets an adapter too.
    """

    rank: Annotated[int, Field(ge=1, le=MAX_RANK)] = int(LORA_DEFAULTS["rank"])
    alpha: Annotated[int, Field(ge=1)] = int(LORA_DEFAULTS["alpha"])
    dropout: Decay = float(LORA_DEFAULTS["dropout"])
    seed: Int64 = 0
    train_unembed: bool = bool(LORA_DEFAULTS["train_unembed"])


class AdamDefaults(Settings):
    """All of an Adam step that has a default: all but its learning rate.

    Attributes:
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        eps: added to the denominator.
        weight_decay: decoupled, as in AdamW.
        grad_clip_norm: gradients are scaled down to this global norm; 0 switches that off.
    """

    beta1: Decay = ADAM_DEFAULTS["beta1"]
    beta2: Decay = ADAM_DEFAULTS["beta2"]
    eps: Epsilon = ADAM_DEFAULTS["eps"]
    weight_decay: NotNegative = ADAM_DEFAULTS["weight_decay"]
    grad_clip_norm: NotNegative = ADAM_DEFAULTS["grad_clip_norm"]


class AdamSettings(AdamDefaults):
    """One Adam step.

    Attributes:
        learning_rate: step size.
    """

    learning_rate: NotNegative


class MuonDefaults(Settings):
    """All of a Muon step that has a default: all but learning rates.

    Attributes:
        momentum: of the running gradient.
        newton_schulz_steps: iterations that orthogonalise it.
        weight_decay: decoupled.
        grad_clip_norm: gradients of all weights are scaled down to this global norm; 0 switches that off.
    """

    momentum: Decay = MUON_MOMENTUM
    newton_schulz_steps: NewtonSchulzSteps = MUON_NEWTON_SCHULZ_STEPS
    weight_decay: NotNegative = 0.0
    grad_clip_norm: NotNegative = ADAM_DEFAULTS["grad_clip_norm"]


class MuonSettings(MuonDefaults):
    """One Muon step; what Muon does not train takes a step of Adam beside it.

    Attributes:
        learning_rate: step size of the matrices that Muon trains.
        adam: the step of the other weights; its own grad_clip_norm is not read.
    """

    learning_rate: NotNegative
    adam: AdamSettings


class Distribution(Settings):
    """Which tokens may be drawn, and what ends a completion.

    Attributes:
        temperature: logits are divided by it; 0 takes the likeliest token.
        top_p: keep the likeliest tokens that together reach this probability, in (0, 1].
        top_k: keep this many of the likeliest tokens; -1 or 0 keeps all.
        stop: strings that end a completion; what completed one stays in it.
    """

    temperature: Temperature = SAMPLING_DEFAULTS["temperature"]
    top_p: Annotated[float, Field(gt=0, le=1)] = SAMPLING_DEFAULTS["top_p"]
    top_k: Annotated[int, Field(ge=-1)] = int(SAMPLING_DEFAULTS["top_k"])
    stop: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list[str])


class DrawingSettings(Distribution):
    """How completions are drawn, nothing left open.

    Attributes:
        seed: two calls with one seed, prompt and model state draw the same completions.
        max_tokens: of one completion.
    """

    seed: Int64
    max_tokens: Annotated[int, Field(ge=1)] = int(SAMPLING_DEFAULTS["max_tokens"])
