"""What the service offers: models, the hardware that trains them, its limits, and prices."""

from __future__ import annotations

from dataclasses import dataclass

from samplekit.wire.answers import (
    JsonObject,
    as_float,
    as_id,
    as_int,
    as_list,
    as_object,
    as_optional_int,
    parse_object,
)


@dataclass(frozen=True)
class Limits:
    """What one way of training a model allows.

    Attributes:
        max_batch_size: samples in one forward_backward.
        max_seq_length: positions in one sample.
        max_rank: the largest LoRA rank; None for full weights.
    """

    max_batch_size: int
    max_seq_length: int
    max_rank: int | None = None


@dataclass(frozen=True)
class Hardware:
    """What one kind of hardware allows for a model.

    Attributes:
        gpu_type: for ``client.create_resources(gpu_type=...)``.
        lora: limits of LoRA training, None where there is none.
        full: limits of full-weight training, None where there is none.
        context_length: tokens of prompt and completion together; None where it does not generate.
    """

    gpu_type: str
    lora: Limits | None
    full: Limits | None
    context_length: int | None


@dataclass(frozen=True)
class SupportedModel:
    """A model the service trains.

    Attributes:
        base_model: its name, for ``client.session(base_model=...)``.
        gpu_type: the default hardware; limits are for it, where it trains that way, else for other hardware.
        lora: limits of LoRA training, None where there is none.
        full: limits of full-weight training, None where there is none.
        context_length: tokens of prompt and completion together; None where it does not generate.
        hardware: all there is for it, the default first, with the limits of each.
    """

    base_model: str
    gpu_type: str
    lora: Limits | None
    full: Limits | None
    context_length: int | None
    hardware: tuple[Hardware, ...] = ()

    def limits(self, gpu_type: str, *, lora: bool) -> Limits | None:
        """Give the limits of one way of training on some hardware; None where it does not train that way.

        Args:
            gpu_type: the hardware; one that is not listed, or empty, means the default.
            lora: whether adapters are trained, else full weights.
        """
        listed = [item for item in self.hardware if item.gpu_type == gpu_type]
        found = listed[0] if listed else self
        return found.lora if lora else found.full


@dataclass(frozen=True)
class CostEstimate:
    """What a session's resources cost.

    Attributes:
        currency: such as ``"USD"``.
        price_per_hour: in that currency.
    """

    currency: str
    price_per_hour: float


def parse_supported_models(body: bytes) -> list[SupportedModel]:
    """Parse which models the service trains, each with its limits."""
    return [_supported_model(as_object(item)) for item in as_list(parse_object(body).get("data"), "data")]


def _supported_model(item: JsonObject) -> SupportedModel:
    configs = [as_object(config) for config in as_list(item.get("compute_configs") or [], "compute_configs")]
    default = str(item.get("default_gpu_type") or "")
    hardware = sorted(map(_hardware, configs), key=lambda found: found.gpu_type != default)
    return SupportedModel(
        as_id(item, "base_model"),
        hardware[0].gpu_type if hardware and hardware[0].gpu_type else default,
        next((found.lora for found in hardware if found.lora), None),
        next((found.full for found in hardware if found.full), None),
        hardware[0].context_length if hardware else None,
        tuple(hardware),
    )


def _hardware(config: JsonObject) -> Hardware:
    trainer = as_object(config.get("trainer_config"))
    return Hardware(
        str(config.get("gpu_type") or ""),
        _limits(as_object(trainer.get("lora"))),
        _limits(as_object(trainer.get("full"))),
        as_optional_int(as_object(config.get("generator_config")), "context_length"),
    )


def _limits(config: JsonObject) -> Limits | None:
    if not config:
        return None
    return Limits(
        as_int(config.get("max_batch_size"), "max_batch_size"),
        as_int(config.get("max_seq_length"), "max_seq_length"),
        as_optional_int(config, "max_rank"),
    )


def parse_cost(body: bytes) -> CostEstimate:
    """Parse what a cost estimate answers."""
    answer = parse_object(body)
    return CostEstimate(str(answer.get("currency") or ""), as_float(answer.get("price_per_hour"), "price_per_hour"))
