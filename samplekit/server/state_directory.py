"""What outlives the process: accepted operations in a journal, and policies as of their last optimizer step.

An operation is journalled before its acceptance is answered, and its outcome before it is shown. Policies are written
after each optimizer step; what ran since then is run again at the next start, in the same order, which gives the same
weights to the last bit where torch computes on one thread. Outcomes that were recorded stay as they were.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
from typing import TYPE_CHECKING

from samplekit.errors import ServiceError
from samplekit.server.failures import named
from samplekit.server.journal import JOURNAL, close_journal, open_journal
from samplekit.server.policy_state import PolicyState
from samplekit.server.saved_records import (
    operation_from_row,
    resources_from,
    resources_record,
    session_from,
    session_record,
    take_progress,
)
from samplekit.wire.names import OperationKind, OperationStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from samplekit.server.checkpoints import Checkpoint
    from samplekit.server.policy import Policy
    from samplekit.server.records import Operation, Outcome, Resources, Session
    from samplekit.server.work import Work

_USED_PAYLOADS = "SELECT payload_id FROM operations WHERE session = ? AND body IS NOT NULL AND payload_id IS NOT NULL"


class StateDirectory:
    """A folder with a journal (SQLite) and the policies of active sessions. Safe to call from any thread."""

    def __init__(self, folder: Path, model_name: str) -> None:
        """Open the journal, or begin one.

        Raises:
            ServiceError: the folder cannot be used, another service uses it, or it is of another base model.
        """
        self._folder, self._policies = folder, folder / "policies"
        self._lock = threading.Lock()
        self._journal = folder / JOURNAL
        self._db = open_journal(folder, model_name)

    def load(self, checkpoints: Mapping[str, Checkpoint]) -> tuple[dict[str, Resources], dict[str, Session]]:
        """Give the resources and sessions of earlier processes, with all their operations, none of them planned.

        Raises:
            ServiceError: the journal is damaged, or older than the policies beside it.
        """
        try:
            (found,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(found)
            resources, sessions = self._read(checkpoints)
        except (sqlite3.Error, ValueError, TypeError, LookupError, AttributeError) as error:
            close_journal(self._folder, self._db)
            raise ServiceError(
                f"{self._journal} is damaged ({named(error)}): put a copy of the whole folder back, made while no "
                "service ran on it, or choose another folder"
            ) from error
        self._refuse_unknown_policies(sessions)
        return resources, sessions

    def _refuse_unknown_policies(self, sessions: Mapping[str, Session]) -> None:
        """Refuse a journal that lacks the operation after which a policy was written: it is another, or an older one.

        Each was journalled before it ran, so all else would begin anew what was answered as done.
        """
        for path in sorted(self._policies.glob("*.safetensors")):
            session, _, number = path.stem.rpartition("-")[0].rpartition("-")
            if session not in sessions or number not in {
                str(item.number) for item in sessions[session].operations.values()
            }:
                close_journal(self._folder, self._db)
                raise ServiceError(
                    f"{self._journal} knows nothing of {path.name} beside it, so it is not the journal that belongs "
                    "here, or its -wal file is gone: put a copy of the whole folder back, or choose another folder"
                )

    def _read(self, checkpoints: Mapping[str, Checkpoint]) -> tuple[dict[str, Resources], dict[str, Session]]:
        rows = self._db.execute("SELECT record FROM resources ORDER BY rowid")
        resources = {item.id: item for item in (resources_from(record) for (record,) in rows)}
        sessions: dict[str, Session] = {}
        for (record,) in self._db.execute("SELECT record FROM sessions ORDER BY rowid"):
            session = session_from(record, resources, checkpoints)
            sessions[session.id] = session
        columns = "number, id, kind, key, digest, payload_id, status, error_code, error_message, session"
        for row in self._db.execute(f"SELECT {columns} FROM operations ORDER BY number"):  # noqa: S608 - constants
            operation, session = operation_from_row(row[:-1]), sessions[row[-1]]
            session.operations[operation.id] = session.by_key[operation.key] = operation
        # A session's record is written when it is changed or used; how far it came, its outcomes say.
        query = "SELECT session, kind, output FROM operations WHERE status = ? AND kind IN (?, ?) ORDER BY number"
        progress = (OperationStatus.COMPLETED, OperationKind.OPTIM_STEP, OperationKind.WEIGHTS_SYNC)
        for name, kind, output in self._db.execute(query, progress):
            take_progress(sessions[name], OperationKind(kind), output)
        return resources, sessions

    def keep_resources(self, resources: Resources) -> None:
        """Record resources as they are now."""
        values = (resources.id, resources_record(resources))
        with self._lock, self._db:
            self._db.execute(
                "INSERT INTO resources VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record", values
            )

    def keep_session(self, session: Session) -> None:
        """Record a session as it is now; its operations are recorded by themselves."""
        with self._lock, self._db:
            self._keep_session(session)

    def accept(self, session: Session, operation: Operation, raw: bytes) -> None:
        """Record an operation with its body, number it, and record its session as it is now."""
        values = (session.id, operation.id, operation.kind, operation.key, operation.digest, raw)
        with self._lock, self._db:
            operation.number = (
                self._db.execute(
                    "INSERT INTO operations (session, id, kind, key, digest, body, payload_id, status) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (*values, operation.payload_id, OperationStatus.PENDING),
                ).lastrowid
                or 0
            )
            self._keep_session(session)

    def body_of(self, operation: Operation) -> bytes:
        """Give the body that an operation was accepted with.

        Raises:
            LookupError: it is no longer needed, and was dropped.
        """
        query = "SELECT body FROM operations WHERE number = ? AND body IS NOT NULL"
        with self._lock:
            row = self._db.execute(query, (operation.number,)).fetchone()
        if row is None:
            raise LookupError(f"the journal holds no body of operation {operation.id}")
        return bytes(row[0])

    def output_of(self, operation: Operation) -> bytes:
        """Give the JSON of an operation's result."""
        with self._lock:
            row = self._db.execute("SELECT output FROM operations WHERE number = ?", (operation.number,)).fetchone()
        return bytes(row[0])

    def settle(self, session_id: str, operation: Operation, outcome: Outcome, policy: Policy | None) -> list[str]:
        """Record how an operation ended, and the policy with it where the policy changed for good.

        Args:
            session_id: whose operation it is.
            operation: which one.
            outcome: how it ended.
            policy: what it ran on; None if it never did.

        Returns:
            The uploads that will not be needed again.
        """
        completed = policy is not None and outcome.status is OperationStatus.COMPLETED
        trained = served = ""
        if completed and policy is not None and operation.kind is OperationKind.OPTIM_STEP:
            trained = f"{session_id}-{operation.number}-trained.safetensors"
            policy.state().write(self._policies / trained)
        if completed and policy is not None and operation.kind is OperationKind.WEIGHTS_SYNC:
            served = f"{session_id}-{operation.number}-served.safetensors"
            policy.served_state().write(self._policies / served)
        values = (outcome.status, outcome.output, outcome.error_code, outcome.error_message)
        with self._lock, self._db:
            self._db.execute(
                "UPDATE operations SET status = ?, output = ?, error_code = ?, error_message = ?, passes = ? "
                "WHERE number = ?",
                (*values, 0 if policy is None else policy.num_passes, operation.number),
            )
            if trained:
                self._db.execute(
                    "UPDATE sessions SET trained = ?, covered = ? WHERE id = ?", (trained, operation.number, session_id)
                )
            if served:
                self._db.execute("UPDATE sessions SET served = ? WHERE id = ?", (served, session_id))
            dropped = self._drop_bodies(session_id, _run_for_good(operation, outcome))
        for kept, kind in ((trained, "trained"), (served, "served")):
            if kept:
                self._remove_policies(session_id, kind, kept)
        return dropped

    def restore(
        self, session_id: str, policy: Policy, ended: Iterable[Operation], plan: Callable[[Operation], Work]
    ) -> None:
        """Bring a new policy to where its session was.

        Args:
            session_id: which session.
            policy: as new, or as the checkpoint that the session was resumed from.
            ended: the session's operations that ended, oldest first.
            plan: gives the work of one that has to run again.

        Raises:
            OSError: a policy that the journal names is not there.
        """
        query = "SELECT trained, served, covered FROM sessions WHERE id = ?"
        since = "SELECT number, passes, body IS NOT NULL FROM operations WHERE session = ? AND number > ?"
        with self._lock:
            trained, served, covered = self._db.execute(query, (session_id,)).fetchone() or ("", "", 0)
            found = {number: rest for number, *rest in self._db.execute(since, (session_id, covered))}
        if trained:
            policy.restore(PolicyState.read(self._policies / trained))
        if served:
            policy.restore_served(PolicyState.read(self._policies / served))
        for operation in ended:
            if operation.number <= covered:
                continue
            passes, is_run_again = found[operation.number]
            if is_run_again:
                plan(operation)(policy)
            policy.num_passes = max(policy.num_passes, passes)

    def forget(self, session: Session) -> list[str]:
        """Drop the weights and bodies of a session that will not run again, and give the uploads it does not need."""
        for kind in ("trained", "served"):
            self._remove_policies(session.id, kind, "")
        with self._lock, self._db:
            return self._drop_bodies(session.id, range(sys.maxsize))

    def close(self) -> None:
        """Close the journal, so that another process may open it."""
        with self._lock:
            close_journal(self._folder, self._db)

    def _keep_session(self, session: Session) -> None:
        self._db.execute(
            "INSERT INTO sessions (id, record) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record",
            (session.id, session_record(session)),
        )

    def _drop_bodies(self, session_id: str, numbers: range) -> list[str]:
        where = "WHERE session = ? AND number >= ? AND number < ? AND body IS NOT NULL"
        chosen = (session_id, numbers.start, numbers.stop)
        found = self._db.execute(f"SELECT payload_id FROM operations {where}", chosen).fetchall()  # noqa: S608
        self._db.execute(f"UPDATE operations SET body = NULL {where}", chosen)  # noqa: S608
        used = {name for (name,) in self._db.execute(_USED_PAYLOADS, (session_id,))}
        return [payload_id for (payload_id,) in found if payload_id is not None and payload_id not in used]

    def _remove_policies(self, session_id: str, kind: str, kept: str) -> None:
        for path in self._policies.glob(f"{session_id}-*-{kind}.*"):
            if path.name != kept:
                path.unlink(missing_ok=True)


def _run_for_good(operation: Operation, outcome: Outcome) -> range:
    """Number the operations that no later start runs again, so that their bodies may go."""
    if outcome.status is OperationStatus.COMPLETED and operation.kind is OperationKind.OPTIM_STEP:
        return range(operation.number + 1)  # the policy that is written holds all that came before
    if outcome.leaves_gradients:
        return range(0)
    return range(operation.number, operation.number + 1)
