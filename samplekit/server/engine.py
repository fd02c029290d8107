"""What the engine thread does: policies are made, operations carried out, and how they ended recorded."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from samplekit.server.failures import failure_of, named
from samplekit.server.policy import Policy
from samplekit.server.records import Outcome
from samplekit.server.step_settings import muon_scaling
from samplekit.wire.names import INLINE_LIMIT_BYTES, OperationStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from samplekit.server.checkpoints import Checkpoint, CheckpointStore
    from samplekit.server.model_loading import LoadedModel
    from samplekit.server.payloads import PayloadStore
    from samplekit.server.records import Operation, Output, Session
    from samplekit.server.state_directory import StateDirectory
    from samplekit.server.work import Work

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ended:
    """An operation that ended, for the event loop to apply.

    Attributes:
        outcome: how it ended, recorded where outcomes are.
        unneeded: uploads that will not be read again.
        checkpoint: what it saved.
        seconds: how long it ran; 0 if it never did.
    """

    outcome: Outcome
    unneeded: Sequence[str] = ()
    checkpoint: Checkpoint | None = None
    seconds: float = 0.0


class UnrecordedError(Exception):
    """What came of an operation could not be recorded, so it has not ended: a later start runs it again."""


class Engine:
    """Changes policies and files, and nothing that requests look at: it gives back what it found.

    Attributes:
        state: where outcomes are recorded before they are shown, if anywhere.
    """

    def __init__(
        self,
        model: LoadedModel,
        payloads: PayloadStore,
        checkpoints: CheckpointStore,
        *,
        state: StateDirectory | None = None,
        plan: Callable[[Session, Operation], Work] | None = None,
    ) -> None:
        """Do nothing yet.

        Args:
            model: what sessions copy.
            payloads: where large results go.
            checkpoints: what sessions may go on from.
            state: where outcomes are recorded before they are shown, if anywhere.
            plan: gives the work of an operation that an earlier process accepted.
        """
        self._model = model
        self._payloads = payloads
        self._checkpoints = checkpoints
        self.state = state
        self._plan = plan

    def make_policy(self, session: Session, ended: Sequence[Operation]) -> Policy:
        """Make a session's model and bring it to where the session is."""
        policy = Policy(self._model, session.lora, muon_scaling=muon_scaling(session.resources))
        if session.resumed_from is not None:
            self._checkpoints.restore(session.resumed_from, policy, with_optimizer=session.load_optimizer)
        if self.state is not None and self._plan is not None:
            plan = self._plan
            self.state.restore(session.id, policy, ended, lambda operation: plan(session, operation))
        return policy

    def carry_out(self, session: Session, operation: Operation, policy: Policy | None) -> Ended:
        """Do an operation's work and record how it ended; whatever happens is its outcome."""
        started = time.perf_counter()
        checkpoint = None
        try:
            work = operation.work
            if work is None and self._plan is not None:
                work = self._plan(session, operation)
            if work is None or policy is None:
                raise RuntimeError("an operation without work or model was queued")
            output = work(policy)
            checkpoint = output.checkpoint
            encoded = self._encode(session, output)
            outcome = Outcome(OperationStatus.COMPLETED, encoded, leaves_gradients=output.leaves_gradients)
        except UnrecordedError:
            raise
        except Exception as error:  # noqa: BLE001 - it is logged there
            outcome = failure_of(operation, error)
        unneeded = self.recorded(session, operation, outcome, policy)
        return Ended(outcome, unneeded, checkpoint, time.perf_counter() - started)

    def recorded(
        self, session: Session, operation: Operation, outcome: Outcome, policy: Policy | None
    ) -> Sequence[str]:
        """Record an outcome where outcomes are recorded, and give the uploads that will not be read again.

        Raises:
            UnrecordedError: it cannot be, so it is none.
        """
        if self.state is None:
            return [] if operation.payload_id is None else [operation.payload_id]
        try:
            return self.state.settle(session.id, operation, outcome, policy)
        except Exception as error:
            logger.exception("session %s: its state cannot be written", session.id)
            raise UnrecordedError(f"the state directory cannot be written ({named(error)})") from error

    def _encode(self, session: Session, output: Output) -> bytes:
        """Give the result as JSON, its large members in a payload where it would grow over the inline limit.

        Raises:
            UnrecordedError: the payload cannot be written, while the policy has changed: it did not fail either.
        """
        encoded = orjson.dumps({**output.inline, **output.large}, option=orjson.OPT_SERIALIZE_NUMPY)
        if len(encoded) <= INLINE_LIMIT_BYTES or not output.large:
            return encoded
        large = orjson.dumps(output.large, option=orjson.OPT_SERIALIZE_NUMPY)
        try:
            payload_id = self._payloads.store(session.id, large)
        except OSError as error:
            logger.exception("session %s: a result cannot be written", session.id)
            raise UnrecordedError(f"a result cannot be written ({named(error)})") from error
        return orjson.dumps({**output.inline, "payload_id": payload_id})
