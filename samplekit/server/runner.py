"""Doing the work of operations: one queue for each session, one engine thread for all of them.

Two sessions never compute at once, and each gets its turn after one operation of another.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import orjson

from samplekit.server.policy import NoGradientError, NonFiniteError, Policy, share_cores
from samplekit.server.step_settings import muon_scaling
from samplekit.wire.names import INLINE_LIMIT_BYTES, OperationErrorCode, OperationStatus, SessionStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from samplekit.server.checkpoints import CheckpointStore
    from samplekit.server.model_loading import LoadedModel
    from samplekit.server.payloads import PayloadStore
    from samplekit.server.records import Operation, Output, Session

# How torch and the allocator say that memory is gone, each as a RuntimeError of its own.
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")

logger = logging.getLogger(__name__)


class Runner:
    """Runs queues. Its methods are called on the event loop."""

    def __init__(
        self, model: LoadedModel, payloads: PayloadStore, checkpoints: CheckpointStore, clock: Callable[[], float]
    ) -> None:
        """Start without any thread; the first work starts it.

        Args:
            model: what sessions copy.
            payloads: where uploads come from and large results go.
            checkpoints: what sessions may go on from.
            clock: gives seconds since 1970.
        """
        self._model = model
        self._payloads = payloads
        self._checkpoints = checkpoints
        self._clock = clock
        self._engine = ThreadPoolExecutor(1, "samplekit-engine", share_cores)

    def open(self, session: Session) -> asyncio.Task[None]:
        """Make the session's model, then run what was accepted meanwhile; the task ends when nothing is left."""
        session.runner = asyncio.create_task(self._open(session))
        return session.runner

    def wake(self, session: Session) -> None:
        """Run a session's queue unless it is running already."""
        if session.runner is None:
            session.runner = asyncio.create_task(self._run_queue(session))

    def stop(self, session: Session) -> None:
        """Fail what waits in a session; the session closes once the operation that runs has ended."""
        self._drop_waiting(session, "the session was stopped before this ran")
        if session.runner is None:
            self._close_session(session)

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
            session.runner = None
            return
        if session.status is SessionStatus.CREATING:
            session.status = SessionStatus.RUNNING
            logger.info("session %s: running", session.id)
        await self._run_queue(session)

    def _make_policy(self, session: Session) -> Policy:
        policy = Policy(self._model, session.lora, muon_scaling=muon_scaling(session.resources))
        if session.resumed_from is not None:
            self._checkpoints.restore(session.resumed_from, policy, with_optimizer=session.load_optimizer)
        session.step, session.version = policy.step, policy.version
        return policy

    async def _run_queue(self, session: Session) -> None:
        try:
            while session.queue:
                await self._run(session, session.queue.popleft())
        finally:
            session.runner = None
        if session.status is SessionStatus.STOPPING:
            self._close_session(session)

    async def _run(self, session: Session, operation: Operation) -> None:
        """Run one operation; one that could not even be handed to the engine fails, and the next gets its turn."""
        operation.status = OperationStatus.RUNNING
        try:
            await asyncio.get_running_loop().run_in_executor(self._engine, self._carry_out, session, operation)
        except Exception as error:
            logger.exception("operation %s (%s) could not be run", operation.id, operation.kind)
            operation.fail(OperationErrorCode.INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        self._finish(operation)

    def _carry_out(self, session: Session, operation: Operation) -> None:
        """Do an operation's work on the engine thread; whatever happens becomes its outcome."""
        started = time.perf_counter()
        work, policy = operation.work, session.policy
        try:
            if work is None or policy is None:
                raise RuntimeError("an operation without work or model was queued")
            output = self._encode(session, work(policy))
            session.step, session.version = policy.step, policy.version
            operation.complete(output)
        except NonFiniteError as error:
            operation.fail(OperationErrorCode.NON_FINITE_LOSS, str(error))
        except NoGradientError as error:
            operation.fail(OperationErrorCode.INVALID_INPUT, str(error))
        except Exception as error:
            if isinstance(error, MemoryError) or any(words in str(error) for words in _OUT_OF_MEMORY):
                operation.fail(OperationErrorCode.RESOURCE_EXHAUSTED, f"memory is gone, send smaller batches: {error}")
            else:
                logger.exception("operation %s (%s) failed", operation.id, operation.kind)
                operation.fail(OperationErrorCode.INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        what, seconds = f"{operation.kind} {operation.id} of {session.id}", time.perf_counter() - started
        logger.info("%s: %s in %.3f s", what, operation.status, seconds)

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
            operation.fail(OperationErrorCode.SESSION_NOT_ACTIVE, why)
            self._finish(operation)

    def _finish(self, operation: Operation) -> None:
        """Tell who waits, and drop the upload; the outcome stands where its file cannot be removed."""
        operation.finished.set()
        if operation.payload_id is not None:
            try:
                self._payloads.discard(operation.payload_id)
            except OSError as error:
                logger.warning("the upload of %s stays on disk: %s", operation.id, error)

    def _close_session(self, session: Session) -> None:
        session.policy = None
        session.status, session.updated_at = SessionStatus.STOPPED, self._clock()
        logger.info("session %s: stopped after %d operations", session.id, len(session.operations))
