"""Doing the work of operations: one queue for each session, one engine thread for all of them.

Two sessions never compute at once, and each gets its turn after one operation of another. The engine thread changes
policies and files, and gives back what it found; what requests look at changes on the event loop, in one piece.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from samplekit.server.engine import Ended, UnrecordedError
from samplekit.server.failures import failure_of, named
from samplekit.server.json_log import fields
from samplekit.server.operation_log import described, log_operation
from samplekit.server.policy import share_cores
from samplekit.server.records import Outcome
from samplekit.wire.names import OperationErrorCode, SessionStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from samplekit.server.checkpoints import CheckpointStore
    from samplekit.server.engine import Engine
    from samplekit.server.outcomes import Outcomes
    from samplekit.server.payloads import PayloadStore
    from samplekit.server.policy import Policy
    from samplekit.server.records import Operation, Session

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class Runner:
    """Runs queues. Its public methods are called on the event loop."""

    def __init__(
        self,
        engine: Engine,
        payloads: PayloadStore,
        checkpoints: CheckpointStore,
        outcomes: Outcomes,
        clock: Callable[[], float],
    ) -> None:
        """Start without any thread; the first work starts it.

        Args:
            engine: does the work.
            payloads: where uploads come from.
            checkpoints: list what was saved.
            outcomes: take the results.
            clock: gives seconds since 1970.
        """
        self._engine = engine
        self._payloads = payloads
        self._checkpoints = checkpoints
        self._outcomes = outcomes
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "samplekit-engine", share_cores)
        self._closing = False

    def open(self, session: Session) -> asyncio.Task[None]:
        """Make the session's model, then run what was accepted meanwhile; the task ends when nothing is left."""
        session.runner = asyncio.create_task(self._live(session, opening=True))
        return session.runner

    def wake(self, session: Session) -> None:
        """Run a session's queue unless it is running already."""
        if session.runner is None:
            session.runner = asyncio.create_task(self._live(session, opening=False))

    def stop(self, session: Session, *, final: SessionStatus = SessionStatus.STOPPED) -> None:
        """Fail what waits in a session; it closes as ``final`` once the operation that runs has ended.

        That it stops is recorded already, so that a later start fails the same.
        """
        self._drop_waiting(session, "the session was stopped before this ran")
        if session.runner is None:
            self._close_session(session, final)

    def clear(self, session: Session) -> None:
        """Fail what waits in a session that is over, and drop what a process that was killed left of it."""
        self._drop_waiting(session, f"the session is {session.status}")
        self._forget(session)

    async def finish(self, sessions: Iterable[Session]) -> None:
        """Let the operation that runs end; those that have not begun stay in their queues."""
        self._closing = True
        self._thread.shutdown(wait=False, cancel_futures=True)
        await asyncio.gather(*(item.runner for item in sessions if item.runner is not None), return_exceptions=True)

    def close(self) -> None:
        """End the thread, once it has nothing to do."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def _live(self, session: Session, *, opening: bool) -> None:
        try:
            if opening:
                await self._open(session)
            while session.queue and not session.error:
                await self._run(session, session.queue.popleft())
        finally:
            session.runner = None
        if session.status is SessionStatus.STOPPING:
            self._drop_waiting(session, "the session was stopped before what came of this was recorded")
            self._close_session(session, SessionStatus.STOPPED)

    async def _open(self, session: Session) -> None:
        ended = [item for item in session.operations.values() if item.outcome is not None]
        try:
            policy = await self._on_engine(lambda: self._engine.make_policy(session, ended))
        except Exception as error:
            why = f"its model could not be made ({named(error)})"
            # A file that is gone or damaged is named: no traceback says more.
            logger.error("session %s: %s", session.id, why, exc_info=not isinstance(error, OSError))  # noqa: TRY400
            self._halt(session, why)
            return
        session.policy, session.step, session.version = policy, policy.step, policy.version
        if session.status is SessionStatus.CREATING:
            session.status = SessionStatus.RUNNING
            self._keep(session)
            logger.info("session %s: running", session.id)

    async def _run(self, session: Session, operation: Operation) -> None:
        """Run one operation; one that could not even be handed to the engine fails, and the next gets its turn."""
        operation.is_running = True
        policy = session.policy
        try:
            ended = await self._ended(session, operation, policy)
        except asyncio.CancelledError:  # the service closes before its turn came
            operation.is_running = False
            session.queue.appendleft(operation)
            raise
        except UnrecordedError as error:
            operation.is_running = False
            session.queue.appendleft(operation)
            self._halt(session, str(error))
            return
        if policy is not None:  # it is at rest
            session.step, session.version = policy.step, policy.version
        self._apply(session, operation, ended)

    async def _ended(self, session: Session, operation: Operation, policy: Policy | None) -> Ended:
        try:
            return await self._on_engine(lambda: self._engine.carry_out(session, operation, policy))
        except UnrecordedError:
            raise
        except Exception as error:  # noqa: BLE001 - it is logged there
            outcome = failure_of(operation, error)
            return Ended(outcome, self._engine.recorded(session, operation, outcome, None))

    def _halt(self, session: Session, why: str) -> None:
        """End work on a session that this process cannot go on with.

        Nothing of that is recorded: with a state directory its operations wait for the next start, which tries again.
        """
        session.policy = None
        if self._engine.state is None:
            session.status, session.error = SessionStatus.ERROR, why
            self._drop_waiting(session, why)
        else:
            session.error = (
                f"{why}: put that right and start the service again, which goes on with what was recorded, or stop "
                "the session"
            )

    async def _on_engine(self, work: Callable[[], Result]) -> Result:
        """Do something on the engine thread.

        Raises:
            CancelledError: the service closes, and it was not begun.
        """
        if self._closing:
            raise asyncio.CancelledError
        try:
            begun = asyncio.get_running_loop().run_in_executor(self._thread, work)
        except RuntimeError as error:
            if "shutdown" in str(error):  # the interpreter ends, and nobody stopped the service
                raise asyncio.CancelledError from error
            raise
        return await begun

    def _apply(self, session: Session, operation: Operation, ended: Ended) -> None:
        """Show how an operation ended."""
        if ended.checkpoint is not None:
            for listed in (session.checkpoints, self._checkpoints.records):
                listed[ended.checkpoint.id] = ended.checkpoint
        operation.end(ended.outcome)
        self._outcomes.keep(operation)
        status = ended.outcome.status
        told = described(session, operation, ended.outcome, ended.seconds)
        logger.info(
            "%s %s of %s: %s in %.3f s", operation.kind, operation.id, session.id, status, ended.seconds,
            extra=fields("operation", **told),
        )  # fmt: skip
        log_operation(session, operation, ended.outcome, ended.seconds)
        for payload_id in ended.unneeded:
            self._discard(payload_id)

    def _drop_waiting(self, session: Session, why: str) -> None:
        outcome = Outcome.failed(OperationErrorCode.SESSION_NOT_ACTIVE, why)
        while session.queue:
            operation = session.queue.popleft()
            try:
                unneeded = self._engine.recorded(session, operation, outcome, None)
            except UnrecordedError:  # it is logged; the next start fails it again
                unneeded = ()
            self._apply(session, operation, Ended(outcome, unneeded))

    def _discard(self, payload_id: str) -> None:
        """Drop an upload; the outcome stands where its file cannot be removed."""
        try:
            self._payloads.discard(payload_id)
        except OSError as error:
            logger.warning("the upload %s stays on disk: %s", payload_id, error)

    def _close_session(self, session: Session, final: SessionStatus) -> None:
        session.policy = None
        session.status, session.updated_at = final, self._clock()
        self._keep(session)
        self._forget(session)
        logger.info("session %s: %s after %d operations", session.id, final, len(session.operations))

    def _keep(self, session: Session) -> None:
        """Record a session as it stands; where that fails, the next start does the same again."""
        if self._engine.state is None:
            return
        try:
            self._engine.state.keep_session(session)
        except (OSError, sqlite3.Error):
            logger.exception("session %s: that it is %s cannot be written", session.id, session.status)

    def _forget(self, session: Session) -> None:
        """Drop what a session that is over needs no more; where that fails, the next start does it."""
        unneeded = self._payloads.uploads(session.id)
        try:
            if self._engine.state is not None:
                unneeded += self._engine.state.forget(session)
        except (OSError, sqlite3.Error) as error:
            logger.warning("session %s: what it needs no more stays on disk: %s", session.id, error)
            return
        for payload_id in unneeded:
            self._discard(payload_id)
