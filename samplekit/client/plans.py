"""What a session should be, and what one is once it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from samplekit.client.settings import flag, number, one_of, shown, text, whole_number
from samplekit.errors import SampleError
from samplekit.sample.kinds import is_mapping
from samplekit.wire.names import INACTIVE_TIMEOUT_SECONDS
from samplekit.wire.requests import dumps

if TYPE_CHECKING:
    from samplekit.wire.offers import Limits


@dataclass(frozen=True)
class SessionPlan:
    """What a session should be.

    Attributes:
        base_model: the model; None takes the only one there is, or the checkpoint's.
        lora_rank: None trains full weights, or takes the checkpoint's rank.
        lora_alpha: None leaves it to the service (64).
        lora_seed: seeds the first weights of an adapter; not read with resume_from, whose weights are there already.
        num_generators: replicas that generate; 0 trains only.
        name: shown in the service's lists.
        resume_from: a checkpoint's id.
        lora_dropout: None leaves it to the service (0).
        lora_train_unembed: None leaves it to the service (True).
        metadata: the caller's own, such as ``{"wandb": {"project": "p"}}``.
        load_optimizer: whether the checkpoint's optimizer is taken too; None leaves it to the service.

    Raises:
        SampleError: a setting is out of its range; the message says which. Nothing has been paid for by then.
    """

    base_model: str | None = None
    lora_rank: int | None = None
    lora_alpha: int | None = None
    lora_seed: int | None = None
    num_generators: int = 1
    name: str | None = None
    resume_from: str | None = None
    lora_dropout: float | None = None
    lora_train_unembed: bool | None = None
    metadata: Mapping[str, Any] | None = None
    load_optimizer: bool | None = None

    def __post_init__(self) -> None:
        taken: dict[str, Any] = {"num_generators": whole_number("num_generators", self.num_generators, least=0)}
        for name, least in (("lora_rank", 1), ("lora_alpha", 1), ("lora_seed", None)):
            if (value := getattr(self, name)) is not None:
                taken[name] = whole_number(name, value, least=least)
        if self.lora_dropout is not None:
            taken["lora_dropout"] = number("lora_dropout", self.lora_dropout, below=1.0)
        if self.metadata is not None:
            taken["metadata"] = metadata_body(self.metadata)
        self._check_flags()
        for name in ("lora_alpha", "lora_seed", "lora_dropout", "lora_train_unembed"):
            if self.lora_rank is None and self.resume_from is None and getattr(self, name) is not None:
                raise SampleError(
                    f"{name} is {getattr(self, name)!r} and lora_rank is None, expected both: pass lora_rank"
                )
        for name in ("base_model", "name", "resume_from"):
            if (value := getattr(self, name)) is not None:
                text(name, value)
        for name, value in taken.items():
            object.__setattr__(self, name, value)

    def _check_flags(self) -> None:
        for name in ("lora_train_unembed", "load_optimizer"):
            if (value := getattr(self, name)) is not None:
                flag(name, value)
        if self.load_optimizer is not None and self.resume_from is None:
            raise SampleError("load_optimizer is given and resume_from is None, expected both: pass resume_from")

    def resources_body(self) -> tuple[bytes, ...]:
        """Give the body that creates the resources, or estimates their cost."""
        return ResourcesPlan(self.base_model, self.lora_rank is not None, self.num_generators).body()

    def session_body(self, resources_id: str) -> tuple[bytes, ...]:
        """Give the body that creates the session on its resources."""
        lora: dict[str, Any] | None = None
        if self.lora_rank is not None:
            lora = {
                "rank": self.lora_rank,
                "alpha": self.lora_alpha,
                "dropout": self.lora_dropout,
                "seed": self.lora_seed,
                "train_unembed": self.lora_train_unembed,
            }
        return (
            dumps(
                {
                    "model_resources_id": resources_id,
                    "display_name": self.name,
                    "lora_config": lora,
                    "metadata": self.metadata,
                    "resume_from_checkpoint_id": self.resume_from,
                    "load_optimizer": self.load_optimizer,
                }
            ),
        )


def metadata_body(metadata: object) -> Mapping[str, Any]:
    """Give a copy of a caller's own metadata, which must be a mapping that JSON can say; what is sent is what was seen.

    Raises:
        SampleError: it is none.
    """
    if not is_mapping(metadata):
        raise SampleError(f"metadata is {shown(metadata)}, expected a mapping")
    copied: dict[str, Any] = json.loads(dumps({"metadata": metadata}))["metadata"]
    return copied


_SCALING = {"match_adam": "MUON_SCALING_STRATEGY_MATCH_ADAM", "original": "MUON_SCALING_STRATEGY_ORIGINAL"}


@dataclass(frozen=True)
class ResourcesPlan:
    """What resources should be; see `Client.create_resources`.

    Raises:
        SampleError: a setting is out of its range; the message says which. Nothing has been paid for by then.
    """

    base_model: str | None = None
    lora: bool = False
    num_generators: int = 1
    gpu_type: str | None = None
    optimizer: str | None = None
    muon_scaling: str | None = None
    inactive_timeout: int | None = None
    base_weights: str | None = None

    def __post_init__(self) -> None:
        flag("lora", self.lora)
        object.__setattr__(self, "num_generators", whole_number("num_generators", self.num_generators, least=0))
        for name in ("base_model", "gpu_type", "base_weights"):
            if (value := getattr(self, name)) is not None:
                text(name, value)
        if self.inactive_timeout is not None:
            low, high = INACTIVE_TIMEOUT_SECONDS
            value = whole_number("inactive_timeout", self.inactive_timeout, least=low, most=high)
            object.__setattr__(self, "inactive_timeout", value)
        one_of("optimizer", self.optimizer, (None, "adam", "muon"))
        one_of("muon_scaling", self.muon_scaling, (None, *_SCALING))
        if self.muon_scaling is not None and self.optimizer != "muon":
            raise SampleError(f"muon_scaling is {self.muon_scaling!r} and optimizer is not 'muon': pass both")

    def body(self) -> tuple[bytes, ...]:
        """Give the body that creates the resources, or estimates their cost."""
        scaling = None if self.muon_scaling is None else _SCALING[self.muon_scaling]
        optimizer = None if self.optimizer is None else {self.optimizer: {"scaling_strategy": scaling}}
        return (
            dumps(
                {
                    "base_model": self.base_model,
                    "base_weights_ref": self.base_weights,
                    "compute_config": {"gpu_type": self.gpu_type, "num_generator_replicas": self.num_generators},
                    "inactive_timeout": self.inactive_timeout,
                    "lora_enabled": self.lora,
                    "optimizer_config": optimizer,
                }
            ),
        )


@dataclass(frozen=True)
class OpenSession:
    """A session that runs, and what it allows.

    Attributes:
        id: the session's id.
        base_model: the model it trains.
        resources_id: the resources it runs on.
        owned: whether we created it, so that leaving it stops it.
        limits: batch size and length; None where the service does not say.
        stops_resources: whether stopping it stops the resources too, for they were created for it.
        lora_rank: of an adapter; None for full weights.
    """

    id: str
    base_model: str
    resources_id: str
    owned: bool
    limits: Limits | None
    stops_resources: bool = True
    lora_rank: int | None = None
