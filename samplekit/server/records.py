"""What the service remembers: resources, sessions and operations, and how each is shown.

Only the event loop changes what stands here. The engine thread is handed what it needs and gives results back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from samplekit.server.timestamps import timestamp
from samplekit.wire.names import (
    INACTIVE_SESSIONS,
    CheckpointType,
    OperationErrorCode,
    OperationKind,
    OperationStatus,
    ResourcesStatus,
    SessionStatus,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from samplekit.server.checkpoints import Checkpoint
    from samplekit.server.policy import Policy
    from samplekit.server.settings import LoraSettings

CREATED_BY = "local"
# The protocol knows no other name for hardware; the local service runs on whatever torch finds.
GPU_TYPE = "B200-SXM"


@dataclass(frozen=True)
class Output:
    """What an operation gives.

    Attributes:
        inline: members that always stay in the answer.
        large: members that move to a payload where the answer would grow too large.
        leaves_gradients: whether it added to what the next optimizer step applies.
        checkpoint: what was saved, of an operation that saves one.
    """

    inline: Mapping[str, Any] = field(default_factory=dict[str, Any])
    large: Mapping[str, Any] = field(default_factory=dict[str, Any])
    leaves_gradients: bool = False
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an operation ended.

    Attributes:
        status: COMPLETED or FAILED.
        output: JSON of the result; None where it is on disk only, see `samplekit.server.outcomes`.
        error_code: why it failed.
        error_message: the same for people.
        leaves_gradients: whether it added to what the next optimizer step applies; not read back from disk.
    """

    status: OperationStatus
    output: bytes | None = b"{}"
    error_code: OperationErrorCode | None = None
    error_message: str = ""
    leaves_gradients: bool = False

    @classmethod
    def failed(cls, code: OperationErrorCode, message: str) -> Outcome:
        """Say why there is no result."""
        return cls(OperationStatus.FAILED, error_code=code, error_message=message)


@dataclass(slots=True)
class Operation:
    """One accepted operation; its work is dropped once it is done.

    Attributes:
        id: given by the service.
        kind: as the path spells it.
        key: the caller's idempotency key.
        digest: of the body, to tell a retry from another request.
        work: computes the output on the session's policy.
        payload_id: of the uploaded body, dropped with the work.
        is_running: whether its turn has come.
        outcome: how it ended, all of it at once; None before.
        number: its place in the journal of a state directory; 0 without one.
    """

    id: str
    kind: OperationKind
    key: str
    digest: bytes
    work: Callable[[Policy], Output] | None
    payload_id: str | None = None
    is_running: bool = False
    outcome: Outcome | None = None
    number: int = 0
    _ended: asyncio.Event | None = None  # where somebody waits: all operations stay in memory

    @property
    def status(self) -> OperationStatus:
        """Where it stands."""
        return self._status(self.outcome)

    def end(self, outcome: Outcome) -> None:
        """Keep how it ended; what it needed to run is dropped."""
        self.outcome, self.work = outcome, None
        if self._ended is not None:
            self._ended.set()
        self._ended = None

    async def wait(self) -> None:
        """Return once there is an outcome."""
        if self.outcome is None:
            self._ended = self._ended or asyncio.Event()
            await self._ended.wait()

    def to_json(self, outcome: Outcome | None) -> bytes:
        """Show the operation as the protocol does.

        Args:
            outcome: what `outcome` was when it was read, with its result where that was on disk.
        """
        shown: dict[str, Any] = {"id": self.id, "status": self._status(outcome)}
        if outcome is not None and outcome.status is OperationStatus.FAILED:
            shown["error"] = {"code": outcome.error_code, "message": outcome.error_message}
        elif outcome is not None:
            shown["output"] = orjson.Fragment(outcome.output or b"{}")
        return orjson.dumps(shown)

    def _status(self, outcome: Outcome | None) -> OperationStatus:
        if outcome is not None:
            return outcome.status
        return OperationStatus.RUNNING if self.is_running else OperationStatus.PENDING


@dataclass
class Resources:
    """Model resources: here only a licence to open sessions."""

    id: str
    base_model: str
    lora_enabled: bool
    num_generators: int
    optimizer_config: Mapping[str, Any]
    inactive_timeout: int
    created_at: float
    expires_at: float
    status: ResourcesStatus = ResourcesStatus.READY
    updated_at: float = 0.0

    @property
    def shown_status(self) -> ResourcesStatus:
        """Where they stand, for requests."""
        return self.status

    def to_wire(self) -> dict[str, Any]:
        """Show the resources as the protocol does."""
        shown: dict[str, Any] = {
            "id": self.id,
            "base_model": self.base_model,
            "status": self.status,
            "status_details": {},
            "compute_config": {"num_generator_replicas": self.num_generators, "gpu_type": GPU_TYPE},
            "inactive_timeout": self.inactive_timeout,
            "lora_enabled": self.lora_enabled,
            "optimizer_config": self.optimizer_config,
            "created_at": timestamp(self.created_at),
            "updated_at": timestamp(max(self.created_at, self.updated_at)),
            "created_by": CREATED_BY,
        }
        if self.status is ResourcesStatus.READY:
            shown["expires_at"] = timestamp(self.expires_at)
        return shown


@dataclass
class Session:
    """A training session with its model and its queue.

    Attributes:
        status: as it is recorded; what is shown besides is ERROR, while there is an error.
        error: why this process cannot go on with it; not recorded, so that the next start tries again.
    """

    id: str
    resources: Resources
    created_at: float
    lora: LoraSettings | None = None
    display_name: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    status: SessionStatus = SessionStatus.CREATING
    error: str = ""
    policy: Policy | None = None
    updated_at: float = 0.0
    step: int = 0
    version: int = 0
    operations: dict[str, Operation] = field(default_factory=dict[str, Operation])  # by id, as accepted
    by_key: dict[str, Operation] = field(default_factory=dict[str, Operation])
    queue: deque[Operation] = field(default_factory=deque["Operation"])
    runner: asyncio.Task[None] | None = None
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict[str, "Checkpoint"])  # that it saved, by id
    resumed_from: Checkpoint | None = None
    load_optimizer: bool = True  # of the checkpoint it was resumed from

    @property
    def is_active(self) -> bool:
        """Whether the session has not ended."""
        return self.status not in INACTIVE_SESSIONS

    @property
    def shown_status(self) -> SessionStatus:
        """Where it stands, for requests."""
        return SessionStatus.ERROR if self.error and self.is_active else self.status

    def to_wire(self) -> dict[str, Any]:
        """Show the session as the protocol does; int64 values are strings there."""
        shown: dict[str, Any] = {
            "id": self.id,
            "base_model": self.resources.base_model,
            "status": self.shown_status,
            "step": str(self.step),
            "model_resources_id": self.resources.id,
            "metadata": self.metadata,
            "created_at": timestamp(self.created_at),
            "updated_at": timestamp(max(self.created_at, self.updated_at)),
            "created_by": CREATED_BY,
            "inference_checkpoints": self._shown(CheckpointType.INFERENCE),
            "training_checkpoints": self._shown(CheckpointType.TRAINING),
            "policy_state": {
                "applied_weights_version": str(self.version),
                "target_weights_version": str(self.version),
                "trainer_step": str(self.step),
                "pending_publish": False,
            },
        }
        if self.resumed_from is not None:
            shown["resume_from_checkpoint_id"] = self.resumed_from.id
        if self.display_name:
            shown["display_name"] = self.display_name
        if self.error:
            shown["error"] = {
                "code": "TRAINING_SESSION_ERROR_CODE_SESSION_FAILED",
                "message": self.error,
                "occurred_at": timestamp(max(self.created_at, self.updated_at)),
            }
        if self.lora is not None:
            shown["lora_config"] = {**self.lora.model_dump(), "seed": str(self.lora.seed)}
        return shown

    def _shown(self, kind: CheckpointType) -> list[dict[str, Any]]:
        return [item.to_output() for item in self.checkpoints.values() if item.type is kind]
