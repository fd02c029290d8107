"""What a session should be, and what one is once it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    """

    base_model: str | None = None
    lora_rank: int | None = None
    lora_alpha: int | None = None
    lora_seed: int | None = None
    num_generators: int = 1
    name: str | None = None
    resume_from: str | None = None

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
