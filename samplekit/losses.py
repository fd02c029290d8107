"""Which loss, with what settings, reading which inputs.

Bounds are absolute ratios, never offsets: an old recipe's 0.2 and 0.28 mean 0.8 and 1.28 here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from samplekit.errors import SampleError
from samplekit.sample.kinds import describe_kind, is_mapping, is_number, shown

_MOST = 1e30  # a float32 holds it, and the product of it with any advantage of a sane size

Aggregation: TypeAlias = Literal["fixed_horizon", "token_mean", "sequence_mean"]
Ratio: TypeAlias = Literal["token", "sequence"]

_WIRE_NAMES = {
    "clip_low": "clip_low_threshold",
    "clip_high": "clip_high_threshold",
    "aggregation": "agg_type",
    "ratio": "ratio_type",
}
_ENUM_PREFIXES = {"aggregation": "GRPO_LOSS_AGGREGATION_TYPE_", "ratio": "GRPO_LOSS_RATIO_TYPE_"}
_POLICY_INPUTS = frozenset({"target_tokens", "logprobs", "advantages"})
_MASK_INPUTS = frozenset({"weights", "mask"})


@dataclass(frozen=True)
class Loss:
    """What every loss answers: its wire spelling and the inputs it reads."""

    wire_type: ClassVar[str]
    wire_params: ClassVar[str]

    def to_wire(self) -> dict[str, Any]:
        """Spell the loss as the service does; every setting is sent, so no server default decides."""
        settings = {
            _WIRE_NAMES.get(item.name, item.name): _wire_value(item.name, getattr(self, item.name))
            for item in fields(self)
        }
        return {"type": self.wire_type, **({self.wire_params: settings} if settings else {})}

    def required_inputs(self) -> frozenset[str]:
        """Name the loss_fn_inputs that must be there."""
        return _POLICY_INPUTS

    def optional_inputs(self) -> frozenset[str]:
        """Name the loss_fn_inputs that are read when they are there; every other one is left out of a request."""
        return _MASK_INPUTS

    @classmethod
    def from_wire(cls, mapping: Mapping[str, Any]) -> Loss:
        """Read what `to_wire` gives; settings left out take our defaults.

        Raises:
            SampleError: the type is unknown, or a setting is unknown or out of its range.
        """
        given: object = mapping
        if not is_mapping(given):
            raise SampleError(f"loss is {describe_kind(given)}, expected an object with a type: pass loss.to_wire()")
        kind = given.get("type")
        found = next((loss for loss in LOSSES if loss.wire_type == kind), None)
        if found is None:
            raise SampleError(
                f"loss.type is {shown(kind)}, expected one of {', '.join(loss.wire_type for loss in LOSSES)}"
            )
        extra = set(given) - {"type", found.wire_params}
        if extra:
            raise SampleError(
                f"loss holds {_names(extra)}, expected only 'type' and {found.wire_params!r}: take it out"
            )
        return found.from_params(given.get(found.wire_params))

    @classmethod
    def from_params(cls, params: Mapping[str, Any] | None) -> Loss:
        """Read the settings of this loss in the service's spelling; None where there are none.

        Raises:
            SampleError: a setting is unknown, missing or out of its range.
        """
        given: object = {} if params is None else params
        if not is_mapping(given):
            raise SampleError(f"loss.{cls.wire_params} is {describe_kind(given)}, expected an object of settings")
        names = {_WIRE_NAMES.get(item.name, item.name): item.name for item in fields(cls)}
        unknown = set(given) - set(names)
        if unknown:
            raise SampleError(
                f"loss.{cls.wire_params} holds {_names(unknown)}, expected only {sorted(names)}: take it out"
            )
        settings = {names[key]: _own_value(names[key], value) for key, value in given.items() if value is not None}
        missing = sorted({item.name for item in fields(cls) if item.default is MISSING} - set(settings))
        if missing:
            raise SampleError(f"loss.{cls.wire_params} lacks {missing}, which has no default: add it")
        return cls(**settings)


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """The negative log likelihood of the target tokens: per token ``-w * lp``.

    The service reports the sum over trained tokens; divide by their count for a mean. Fractional weights count.
    """

    wire_type: ClassVar[str] = "LOSS_TYPE_CROSS_ENTROPY"
    wire_params: ClassVar[str] = "cross_entropy_params"

    def required_inputs(self) -> frozenset[str]:
        """Name the loss_fn_inputs that must be there: target_tokens and weights."""
        return frozenset({"target_tokens", "weights"})

    def optional_inputs(self) -> frozenset[str]:
        """Cross-entropy reads nothing else."""
        return frozenset()


@dataclass(frozen=True)
class ImportanceSampling(Loss):
    """The policy gradient corrected for the sampling policy: per token ``-r * A``, with ``r = exp(lp - q)``.

    Source: the form published for the same name elsewhere; the service does not document its own.
    """

    wire_type: ClassVar[str] = "LOSS_TYPE_IMPORTANCE_SAMPLING"
    wire_params: ClassVar[str] = "importance_sampling_params"


@dataclass(frozen=True)
class PPO(Loss):
    """The clipped surrogate: per token ``-min(r * A, clip(r, clip_low, clip_high) * A)``.

    Args:
        clip_low: the lowest ratio that still counts, absolute, in [0, 1].
        clip_high: the highest one, absolute, 1 or more.

    Source: Schulman et al. 2017, Proximal Policy Optimization Algorithms, equation 7.
    """

    wire_type: ClassVar[str] = "LOSS_TYPE_PPO"
    wire_params: ClassVar[str] = "ppo_params"
    clip_low: float = 0.8
    clip_high: float = 1.2

    def __post_init__(self) -> None:
        _check_clip(self, self.clip_low, self.clip_high)


@dataclass(frozen=True)
class GRPO(Loss):
    """PPO's term with an optional penalty towards a reference policy: ``PPO + beta * kl``.

    Args:
        clip_low: the lowest ratio that still counts, absolute, in [0, 1].
        clip_high: the highest one, absolute, 1 or more.
        beta: weight of the KL penalty, 0 or more; above 0 the sample needs reference_logprobs.
        aggregation: how token terms become one number.
        ratio: ``"token"``, or ``"sequence"`` for one ratio a completion (GSPO). The bounds stay 0.8 and 1.2, though
            GSPO's authors clip far nearer to 1 (about 3e-4 away): set them.

    Source: Shao et al. 2024, DeepSeekMath, equation 3; sequence ratio: Zheng et al. 2025, Group Sequence Policy
    Optimization, equation 7.
    """

    wire_type: ClassVar[str] = "LOSS_TYPE_GRPO"
    wire_params: ClassVar[str] = "grpo_params"
    clip_low: float = 0.8
    clip_high: float = 1.2
    beta: float = 0.0
    aggregation: Aggregation = "fixed_horizon"
    ratio: Ratio = "token"

    def __post_init__(self) -> None:
        _check_clip(self, self.clip_low, self.clip_high)
        _check_number(self, "beta", self.beta, 0.0, _MOST)
        _check_choice(self, "aggregation", self.aggregation, get_args(Aggregation))
        _check_choice(self, "ratio", self.ratio, get_args(Ratio))

    def required_inputs(self) -> frozenset[str]:
        """Name the loss_fn_inputs that must be there; reference_logprobs are when beta is above 0."""
        return _POLICY_INPUTS | ({"reference_logprobs"} if self.beta > 0 else frozenset[str]())

    def optional_inputs(self) -> frozenset[str]:
        """Name the loss_fn_inputs that are read when they are there."""
        return _MASK_INPUTS | (frozenset[str]() if self.beta > 0 else {"reference_logprobs"})


@dataclass(frozen=True)
class CISPO(Loss):
    """The clipped ratio as a weight on the log likelihood: per token ``-clip(r, lo, hi).detach() * A * lp``.

    The weight is clipped whatever the sign of A; ``loss/clip/high_fraction`` counts only positions of A > 0.

    Args:
        clip_low: the lowest weight, absolute, in [0, 1].
        clip_high: the highest one, absolute, 1 or more.

    Source: MiniMax 2025, MiniMax-M1, equation 4.
    """

    wire_type: ClassVar[str] = "LOSS_TYPE_CISPO"
    wire_params: ClassVar[str] = "cispo_params"
    clip_low: float = 0.0
    clip_high: float = 4.0

    def __post_init__(self) -> None:
        _check_clip(self, self.clip_low, self.clip_high)


@dataclass(frozen=True)
class DPPO(Loss):
    """Importance sampling without the tokens whose probability moved too far in the wrong direction.

    Args:
        delta_low: how far a probability may fall while the advantage is negative, in [0, 1].
        delta_high: how far it may rise while the advantage is positive, in [0, 1].

    Source: the form published for the same name elsewhere; the service does not document its own.
    """

    wire_type: ClassVar[str] = "LOSS_TYPE_DPPO"
    wire_params: ClassVar[str] = "dppo_params"
    delta_low: float = 0.15
    delta_high: float = 0.15

    def __post_init__(self) -> None:
        _check_number(self, "delta_low", self.delta_low, 0.0, 1.0)
        _check_number(self, "delta_high", self.delta_high, 0.0, 1.0)


@dataclass(frozen=True)
class DRO(Loss):
    """Direct reward optimisation: per token ``-(lp * A - beta / 2 * (lp - q)**2)``.

    Args:
        beta: weight of the quadratic penalty, 0 or more; there is no default.

    Source: Richemond et al. 2024, Offline Regularised Reinforcement Learning for LLM Alignment, equation 6.
    """

    wire_type: ClassVar[str] = "LOSS_TYPE_DRO"
    wire_params: ClassVar[str] = "dro_params"
    beta: float

    def __post_init__(self) -> None:
        _check_number(self, "beta", self.beta, 0.0, _MOST)


LOSSES: tuple[type[Loss], ...] = (CrossEntropy, ImportanceSampling, PPO, GRPO, CISPO, DPPO, DRO)
"""Every loss the service knows."""


def _names(keys: AbstractSet[Any]) -> str:
    """List keys, which need not be text."""
    return f"[{', '.join(sorted(map(shown, keys)))}]"


def _wire_value(name: str, value: Any) -> float | str:  # noqa: ANN401 - a setting, checked by its loss
    prefix = _ENUM_PREFIXES.get(name)
    return float(value) if prefix is None else f"{prefix}{value}".upper()


def _own_value(name: str, value: object) -> object:
    """Read a setting in the service's spelling: enum members lose their prefix, and are refused without it."""
    prefix = _ENUM_PREFIXES.get(name)
    if prefix is None:
        return value
    if not isinstance(value, str) or not value.startswith(prefix):
        raise SampleError(
            f"loss setting {name} is {shown(value)}, expected text that starts with {prefix}: see Loss.to_wire"
        )
    return value.removeprefix(prefix).lower()


def _check_number(loss: Loss, name: str, value: object, low: float, high: float) -> None:
    number = float(value) if is_number(value) else math.nan
    if not (math.isfinite(number) and low <= number <= high):
        raise SampleError(
            f"{type(loss).__name__}({name}={shown(value)}) is out of range, expected a number of {low:g} to {high:g}: "
            f"set {name}"
        )


def _check_clip(loss: Loss, low: float, high: float) -> None:
    _check_number(loss, "clip_low", low, 0.0, _MOST)
    _check_number(loss, "clip_high", high, 0.0, _MOST)
    if low > 1 or high < 1:
        raise SampleError(
            f"{type(loss).__name__}(clip_low={low}, clip_high={high}) keeps no ratio of 1, expected clip_low <= 1 and "
            "clip_high >= 1: bounds are absolute ratios, not offsets (0.2 and 0.28 in an old recipe are clip_low=0.8 "
            "and clip_high=1.28)"
        )


def _check_choice(loss: Loss, name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise SampleError(f"{type(loss).__name__}({name}={shown(value)}) is unknown: use one of {', '.join(choices)}")
