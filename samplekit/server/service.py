"""The state of a service: what exists, what is accepted, what is refused.

Everything here is called on the event loop and computes nothing: `samplekit.server.runner` does the work.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from samplekit.server.checkpoints import CheckpointStore
from samplekit.server.engine import Engine
from samplekit.server.lifetimes import Lifetimes
from samplekit.server.outcomes import Outcomes
from samplekit.server.payloads import PayloadStore
from samplekit.server.planning import plan_operation
from samplekit.server.records import Operation, Resources, Session
from samplekit.server.refusals import conflict, invalid, not_found
from samplekit.server.resuming import refuse_resuming, resumed_adapter
from samplekit.server.runner import Runner
from samplekit.server.settings import LoraSettings
from samplekit.server.state_directory import StateDirectory
from samplekit.server.step_settings import refuse_optimizer
from samplekit.wire.names import CheckpointVariant, ResourcesStatus, SessionStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from samplekit.server.bodies import ResourcesBody, SessionBody, SessionUpdate
    from samplekit.server.checkpoints import Checkpoint
    from samplekit.server.model_loading import LoadedModel
    from samplekit.server.work import Work

logger = logging.getLogger(__name__)

# How long opening a session may take before it is answered as still being created.
CREATION_WAIT = 10.0


class Service:
    """A local service with one base model.

    Attributes:
        model: the base model of every session.
        resources: by id, oldest first.
        sessions: by id, oldest first.
        payloads: bodies and results on disk.
        checkpoints: saved weights.
        outcomes: results of operations.
        lifetimes: stops what is asked for and what nobody uses.
        clock: gives seconds since 1970.
    """

    def __init__(
        self, model: LoadedModel, *, state_dir: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """Start with nothing, or with what an earlier process left in the state directory.

        Args:
            model: the base model.
            state_dir: where everything is kept that outlives the process; None keeps it in memory, and payloads and
                checkpoints in temporary folders.
            clock: gives seconds since 1970.

        Raises:
            ServiceError: the state directory cannot be used.
        """
        self.model = model
        # Opened first: it refuses a folder that another service uses.
        self._state = None if state_dir is None else StateDirectory(state_dir, model.name)
        self.payloads = PayloadStore(None if state_dir is None else state_dir / "payloads")
        self.checkpoints = CheckpointStore(model, None if state_dir is None else state_dir / "checkpoints")
        self.resources: dict[str, Resources] = {}
        self.sessions: dict[str, Session] = {}
        if self._state is not None:
            self.resources, self.sessions = self._state.load(self.checkpoints.records)
        self.clock = clock
        self.outcomes = Outcomes(self.payloads, self._state)
        engine = Engine(model, self.payloads, self.checkpoints, state=self._state, plan=self._plan_accepted)
        self._runner = Runner(engine, self.payloads, self.checkpoints, self.outcomes, self._now)
        self.lifetimes = Lifetimes(self.resources, self.sessions, self._runner, self._now, self._state)
        self._parsers = ThreadPoolExecutor(2, thread_name_prefix="samplekit-parser")
        self._merger = ThreadPoolExecutor(1, thread_name_prefix="samplekit-merger")

    def resume(self) -> None:
        """Go on with the sessions of an earlier process."""
        for session in self.sessions.values():
            self.lifetimes.resume(session)

    @property
    def operations(self) -> list[Operation]:
        """Every accepted operation: session by session, in the order of acceptance."""
        return [operation for session in self.sessions.values() for operation in session.operations.values()]

    def create_resources(self, body: ResourcesBody) -> Resources:
        """Give out resources, ready at once."""
        self.refuse_other_model(body)
        refuse_optimizer(body.optimizer_config)
        now = self.clock()
        resources = Resources(
            id=f"mr-{secrets.token_hex(8)}",
            base_model=body.base_model,
            lora_enabled=body.lora_enabled,
            num_generators=body.compute_config.num_generator_replicas,
            optimizer_config=body.optimizer_config.model_dump(exclude_unset=True),
            inactive_timeout=body.inactive_timeout,
            created_at=now,
            expires_at=now + body.inactive_timeout,
        )
        self.lifetimes.keep_resources(resources)
        self.resources[resources.id] = resources
        logger.info("resources %s: created for %s", resources.id, "LoRA" if body.lora_enabled else "full weights")
        return resources

    def refuse_other_model(self, body: ResourcesBody) -> None:
        """Refuse resources for a model that this service did not load."""
        if body.base_model != self.model.name:
            raise invalid(
                f"base_model is {body.base_model!r}, expected {self.model.name!r}, the model this service trains"
            )
        if body.base_weights_ref is not None:
            raise invalid("base_weights_ref is not known here: start the service with those weights as its --model")

    async def create_session(self, body: SessionBody) -> Session:
        """Open a session; its model is copied on the engine thread."""
        resources = self.find_resources(body.model_resources_id)
        self._refuse_session(resources, body)
        checkpoint = self._resumable(resources, body)
        lora = None
        if resources.lora_enabled:
            asked = body.lora_config
            lora = asked or LoraSettings() if checkpoint is None else resumed_adapter(checkpoint, asked)
        session = Session(
            id=f"ts-{secrets.token_hex(8)}",
            resources=resources,
            created_at=self.clock(),
            lora=lora,
            display_name=body.display_name or "",
            metadata=body.metadata,
            resumed_from=checkpoint,
            load_optimizer=checkpoint is not None and body.load_optimizer is not False,
        )
        self.lifetimes.keep_session(session)
        self.sessions[session.id] = session
        await asyncio.wait({self._runner.open(session)}, timeout=CREATION_WAIT)
        return session

    def update_session(self, session: Session, body: SessionUpdate) -> None:
        """Rename a session or change its metadata, once that is recorded."""
        changed: dict[str, Any] = {"updated_at": self.clock()}
        if body.display_name is not None:
            changed["display_name"] = body.display_name
        if body.metadata is not None:
            merged = {**session.metadata, **body.metadata}
            changed["metadata"] = {name: value for name, value in merged.items() if value != ""}  # which clears it
        self.lifetimes.change(session, **changed)

    def find_resources(self, identifier: str) -> Resources:
        """Look resources up by id."""
        if identifier not in self.resources:
            raise not_found("model resource", identifier)
        return self.resources[identifier]

    def find_session(self, identifier: str) -> Session:
        """Look a session up by id."""
        if identifier not in self.sessions:
            raise not_found("training session", identifier)
        return self.sessions[identifier]

    def find_accepted(self, session: Session, key: str, kind: str, digest: bytes) -> Operation | None:
        """Give the operation that an earlier request with this key made; another body under it is a conflict."""
        known = session.by_key.get(key)
        if known is not None and (known.digest != digest or known.kind != kind):
            raise conflict(
                f"the idempotency key {key!r:.80} was used for another request: make a new key for a new operation"
            )
        return known

    def refuse_inactive(self, session: Session) -> None:
        """Refuse new operations for a session that is not running."""
        status = session.shown_status
        if status is SessionStatus.ERROR:
            raise invalid(f"session {session.id} is {status}, expected RUNNING: {session.error}")
        if status not in {SessionStatus.RUNNING, SessionStatus.CREATING}:
            raise invalid(f"session {session.id} is {status}, expected RUNNING: open a new session")

    def accept(self, session: Session, operation: Operation, raw: bytes) -> None:
        """Put an operation at the end of its session's queue, once its body is in the journal where there is one."""
        if self._state is not None:
            self._state.accept(dataclasses.replace(session, updated_at=self.clock()), operation, raw)
        self.lifetimes.use(session)
        session.operations[operation.id] = session.by_key[operation.key] = operation
        session.queue.append(operation)
        self._runner.wake(session)

    async def parse(self, parser: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the parser gives
        """Do some parsing off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._parsers, parser)

    async def merge(self, checkpoint: Checkpoint) -> None:
        """Merge an adapter unless that was done: seconds for a large model, in which nobody else waits."""
        if not self.checkpoints.folder_of(checkpoint, CheckpointVariant.MERGED).exists():
            await asyncio.get_running_loop().run_in_executor(self._merger, self.checkpoints.merge, checkpoint)

    async def finish(self) -> None:
        """Let the operation that runs end, and take no other.

        What waits fails and sessions stop, unless a state directory keeps them for the next start.
        """
        await self._runner.finish(self.sessions.values())
        if self._state is None:
            for session in self.sessions.values():
                self.lifetimes.stop_session(session)

    def close(self) -> None:
        """End all threads and remove temporary files."""
        self._runner.close()
        for threads in (self._parsers, self._merger):
            threads.shutdown(wait=True, cancel_futures=True)
        self.payloads.close()
        self.checkpoints.close()
        if self._state is not None:
            self._state.close()

    def _now(self) -> float:
        return self.clock()

    def _plan_accepted(self, session: Session, operation: Operation) -> Work:
        """Plan an operation again that an earlier process accepted."""
        if self._state is None:
            raise LookupError(f"nothing was recorded of operation {operation.id}")
        raw = self._state.body_of(operation)
        return plan_operation(raw, operation.kind, operation.key, session, self)[1]

    def _refuse_session(self, resources: Resources, body: SessionBody) -> None:
        if resources.status is not ResourcesStatus.READY:
            raise invalid(f"resources {resources.id} are {resources.status}, expected READY: create new ones")
        if not resources.lora_enabled:
            if body.lora_config is not None:
                raise invalid("lora_config was sent for resources of full weights: create resources with lora_enabled")
            if any(session.resources is resources and session.is_active for session in self.sessions.values()):
                raise invalid(f"resources {resources.id} hold their one full-weight session already: stop it first")

    def _resumable(self, resources: Resources, body: SessionBody) -> Checkpoint | None:
        """Give the checkpoint that a session is to go on from."""
        if body.resume_from_checkpoint_id is None:
            if body.load_optimizer is not None:
                raise invalid("load_optimizer was sent without resume_from_checkpoint_id: leave it out")
            return None
        checkpoint = self.checkpoints.records.get(body.resume_from_checkpoint_id)
        if checkpoint is None:
            raise not_found("checkpoint", body.resume_from_checkpoint_id)
        refuse_resuming(checkpoint, resources, body)
        return checkpoint
