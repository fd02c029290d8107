"""What a session should be, and what one is once it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from samplekit.client.settings import text, whole_number
from samplekit.errors import SampleError
from samplekit.wire.requests import dumps

if TYPE_CHECKING:
    from samplekit.wire.answers import Limits


@dataclass(frozen=True)
class SessionPlan:
    """What a session should be.

    Attributes:
        base_model: the model; None takes the only one there is, or the checkpoint's.
        lora_rank: None trains full weights.
        lora_alpha: None leaves it to the service (64).
        lora_seed: seeds the adapter's first weights.
        num_generators: replicas that generate; 0 trains only.
        name: shown in the service's lists.
        resume_from: a checkpoint's id.

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

    def __post_init__(self) -> None:
        taken: dict[str, Any] = {"num_generators": whole_number("num_generators", self.num_generators, least=0)}
        for name, least in (("lora_rank", 1), ("lora_alpha", 1), ("lora_seed", None)):
            if (value := getattr(self, name)) is not None:
                taken[name] = whole_number(name, value, least=least)
        for name in ("lora_alpha", "lora_seed"):
            if self.lora_rank is None and getattr(self, name) is not None:
                raise SampleError(
                    f"{name} is {getattr(self, name)!r} and lora_rank is None, expected both: pass lora_rank"
                )
        for name in ("base_model", "name", "resume_from"):
            if (value := getattr(self, name)) is not None:
                text(name, value)
        for name, value in taken.items():
            object.__setattr__(self, name, value)

    def resources_body(self) -> tuple[bytes, ...]:
        """Give the body that creates the resources, or estimates their cost."""
        return (
            dumps(
                {
                    "base_model": self.base_model,
                    "compute_config": {"num_generator_replicas": self.num_generators},
                    "lora_enabled": self.lora_rank is not None,
                }
            ),
        )

    def session_body(self, resources_id: str) -> tuple[bytes, ...]:
        """Give the body that creates the session on its resources."""
        lora: dict[str, Any] | None = None
        if self.lora_rank is not None:
            lora = {"rank": self.lora_rank, "alpha": self.lora_alpha, "seed": self.lora_seed}
        return (
            dumps(
                {
                    "model_resources_id": resources_id,
                    "display_name": self.name,
                    "lora_config": lora,
                    "resume_from_checkpoint_id": self.resume_from,
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
    """

    id: str
    base_model: str
    resources_id: str
    owned: bool
    limits: Limits | None
