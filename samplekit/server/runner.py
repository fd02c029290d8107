"""Doing the work of operations: one queue for each session, one engine thread for all of them.

Two sessions never compute at once, and each gets its turn after one operation of another.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import orjson

from samplekit.server.operation_log import log_operation
from samplekit.server.policy import NoGradientError, NonFiniteError, Policy, share_cores
from samplekit.server.records import Outcome
from samplekit.server.step_settings import muon_scaling
from samplekit.wire.names import INLINE_LIMIT_BYTES, OperationErrorCode, OperationStatus, SessionStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from samplekit.server.checkpoints import CheckpointStore
    from samplekit.server.model_loading import LoadedModel
    from samplekit.server.outcomes import Outcomes
    from samplekit.server.payloads import PayloadStore
    from samplekit.server.records import Operation, Output, Session
    from samplekit.server.state_directory import StateDirectory
    from samplekit.server.work import Work

# How torch and the allocator say that memory is gone, each as a RuntimeError of its own.
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")

logger = logging.getLogger(__name__)


class Runner:
    """Runs queues. Its methods are called on the event loop."""

    def __init__(
        self,
        model: LoadedModel,
        payloads: PayloadStore,
        checkpoints: CheckpointStore,
        clock: Callable[[], float],
        outcomes: Outcomes,
        *,
        state: StateDirectory | None = None,
        plan: Callable[[Session, Operation], Work] | None = None,
    ) -> None:
        """Start without any thread; the first work starts it.

        Args:
            model: what sessions copy.
            payloads: where uploads come from and large results go.
            checkpoints: what sessions may go on from.
            clock: gives seconds since 1970.
            outcomes: take the results.
            state: where outcomes are recorded before they are shown, if anywhere.
            plan: gives the work of an operation that an earlier process accepted.
        """
        self._model = model
        self._payloads = payloads
        self._checkpoints = checkpoints
        self._clock = clock
        self._outcomes = outcomes
        self._state = state
        self._plan = plan
        self._engine = ThreadPoolExecutor(1, "samplekit-engine", share_cores)

    def open(self, session: Session) -> asyncio.Task[None]:
        """Make the session's model, then run what was accepted meanwhile; the task ends when nothing is left."""
        session.runner = asyncio.create_task(self._open(session))
        return session.runner

    def wake(self, session: Session) -> None:
        """Run a session's queue unless it is running already."""
        if session.runner is None:
            session.runner = asyncio.create_task(self._run_queue(session))

    def stop(self, session: Session, *, final: SessionStatus = SessionStatus.STOPPED) -> None:
        """Fail what waits in a session; it closes as ``final`` once the operation that runs has ended."""
        self._drop_waiting(session, "the session was stopped before this ran")
        if session.runner is None:
            self._close_session(session, final)

    def close(self) -> None:
        """Wait for the operation that runs, and end the thread."""
        self._engine.shutdown(wait=True, cancel_futures=True)

    async def _open(self, session: Session) -> None:
        loop = asyncio.get_running_loop()
        try:
            session.policy = await loop.run_in_executor(self._engine, self._make_policy, session)
        except Exception as error:
            logger.exception("session %s: its model could not be made", session.id)
            session.status, session.error = SessionStatus.ERROR, f"{type(error).__name__}: {error}"
            self._drop_waiting(session, "the session could not be opened")
            self._keep(session)
            session.runner = None
            return
        if session.status is SessionStatus.CREATING:
            session.status = SessionStatus.RUNNING
            self._keep(session)
            logger.info("session %s: running", session.id)
        await self._run_queue(session)

    def _make_policy(self, session: Session) -> Policy:
        """Make a session's model and bring it to where the session is."""
        policy = Policy(self._model, session.lora, muon_scaling=muon_scaling(session.resources))
        if session.resumed_from is not None:
            self._checkpoints.restore(session.resumed_from, policy, with_optimizer=session.load_optimizer)
        if self._state is not None and self._plan is not None:
            plan = self._plan
            self._state.restore(session, policy, lambda operation: plan(session, operation))
        session.step, session.version = policy.step, policy.version
        return policy

    async def _run_queue(self, session: Session) -> None:
        try:
            while session.queue:
                await self._run(session, session.queue.popleft())
        finally:
            session.runner = None
        if session.status is SessionStatus.STOPPING:
            self._close_session(session, SessionStatus.STOPPED)

    async def _run(self, session: Session, operation: Operation) -> None:
        """Run one operation; one that could not even be handed to the engine fails, and the next gets its turn."""
        operation.status = OperationStatus.RUNNING
        try:
            await asyncio.get_running_loop().run_in_executor(self._engine, self._carry_out, session, operation)
        except Exception as error:
            logger.exception("operation %s (%s) could not be run", operation.id, operation.kind)
            self._settle(session, operation, Outcome.failed(OperationErrorCode.INTERNAL_ERROR, _named(error)))
        operation.finished.set()
        if session.status is SessionStatus.ERROR:
            self.fail_waiting(session)

    def fail_waiting(self, session: Session) -> None:
        """Fail what waits in a session that is over."""
        self._drop_waiting(session, session.error or f"the session is {session.status}")

    def _carry_out(self, session: Session, operation: Operation) -> None:
        """Do an operation's work on the engine thread; whatever happens becomes its outcome."""
        started = time.perf_counter()
        outcome = self._outcome(session, operation)
        self._settle(session, operation, outcome, time.perf_counter() - started)

    def _outcome(self, session: Session, operation: Operation) -> Outcome:
        work, policy = operation.work, session.policy
        try:
            if work is None and self._plan is not None:
                work = self._plan(session, operation)
            if work is None or policy is None:
                raise RuntimeError("an operation without work or model was queued")
            output = self._encode(session, work(policy))
            session.step, session.version = policy.step, policy.version
            return Outcome(OperationStatus.COMPLETED, output)
        except NonFiniteError as error:
            return Outcome.failed(OperationErrorCode.NON_FINITE_LOSS, str(error))
        except NoGradientError as error:
            return Outcome.failed(OperationErrorCode.INVALID_INPUT, str(error))
        except Exception as error:
            if isinstance(error, MemoryError) or any(words in str(error) for words in _OUT_OF_MEMORY):
                why = f"memory is gone, send smaller batches: {error}"
                return Outcome.failed(OperationErrorCode.RESOURCE_EXHAUSTED, why)
            logger.exception("operation %s (%s) failed", operation.id, operation.kind)
            return Outcome.failed(OperationErrorCode.INTERNAL_ERROR, _named(error))

    def _settle(self, session: Session, operation: Operation, outcome: Outcome, seconds: float = 0.0) -> None:
        """Record an outcome where outcomes are recorded, then show it; one that cannot be recorded ends the session."""
        unneeded = [operation.payload_id]
        # What fails because the session did is not recorded: a service that starts again may do it.
        if self._state is not None and session.status is not SessionStatus.ERROR:
            try:
                unneeded = [*self._state.settle(session, operation, outcome, session.policy)]
            except (OSError, sqlite3.Error) as error:
                logger.exception("session %s: its state cannot be written", session.id)
                session.status = SessionStatus.ERROR
                session.error = (
                    f"the state directory cannot be written ({_named(error)}): free its disk and start the service "
                    "again, which goes on from the last outcome that was recorded"
                )
                unneeded, outcome = [], Outcome.failed(OperationErrorCode.INTERNAL_ERROR, session.error)
        operation.end(outcome)
        self._outcomes.keep(operation)
        logger.info("%s %s of %s: %s in %.3f s", operation.kind, operation.id, session.id, outcome.status, seconds)
        log_operation(session, operation, outcome, seconds)
        for payload_id in unneeded:
            self._discard(payload_id)

    def _encode(self, session: Session, output: Output) -> bytes:
        """Give the result as JSON, its large members in a payload where it would grow over the inline limit."""
        encoded = orjson.dumps({**output.inline, **output.large}, option=orjson.OPT_SERIALIZE_NUMPY)
        if len(encoded) <= INLINE_LIMIT_BYTES or not output.large:
            return encoded
        payload_id = self._payloads.store(session.id, orjson.dumps(output.large, option=orjson.OPT_SERIALIZE_NUMPY))
        return orjson.dumps({**output.inline, "payload_id": payload_id})

    def _drop_waiting(self, session: Session, why: str) -> None:
        while session.queue:
            operation = session.queue.popleft()
            self._settle(session, operation, Outcome.failed(OperationErrorCode.SESSION_NOT_ACTIVE, why))
            operation.finished.set()

    def _discard(self, payload_id: str | None) -> None:
        """Drop an upload; the outcome stands where its file cannot be removed."""
        try:
            if payload_id is not None:
                self._payloads.discard(payload_id)
        except OSError as error:
            logger.warning("the upload %s stays on disk: %s", payload_id, error)

    def _close_session(self, session: Session, final: SessionStatus) -> None:
        session.policy = None
        session.status, session.updated_at = final, self._clock()
        self._keep(session)
        if self._state is not None:
            self._state.forget_policies(session)
        logger.info("session %s: %s after %d operations", session.id, final, len(session.operations))

    def _keep(self, session: Session) -> None:
        if self._state is not None:
            self._state.keep_session(session)


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
