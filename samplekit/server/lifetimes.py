"""How long resources and sessions live: while they are used, until somebody stops them."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any

from samplekit.server.refusals import invalid
from samplekit.wire.names import INACTIVE_RESOURCES, ResourcesStatus, SessionStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from samplekit.server.records import Resources, Session
    from samplekit.server.runner import Runner
    from samplekit.server.state_directory import StateDirectory

logger = logging.getLogger(__name__)


class Lifetimes:
    """Extends, stops and expires what a service holds, and records each. Called on the event loop."""

    def __init__(
        self,
        resources: Mapping[str, Resources],
        sessions: Mapping[str, Session],
        runner: Runner,
        clock: Callable[[], float],
        state: StateDirectory | None,
    ) -> None:
        """Look after the resources and sessions of a service, those to come included.

        Args:
            resources: by id.
            sessions: by id.
            runner: closes sessions.
            clock: gives seconds since 1970.
            state: where changes are recorded, if anywhere.
        """
        self._resources, self._sessions = resources, sessions
        self._runner, self._clock, self._state = runner, clock, state

    def keep_resources(self, resources: Resources) -> None:
        """Record resources as they are now."""
        if self._state is not None:
            self._state.keep_resources(resources)

    def keep_session(self, session: Session) -> None:
        """Record a session as it is now."""
        if self._state is not None:
            self._state.keep_session(session)

    def change(self, session: Session, **changes: Any) -> None:  # noqa: ANN401 - any of its members
        """Change a session, once that is recorded."""
        self.keep_session(dataclasses.replace(session, **changes))
        for name, value in changes.items():
            setattr(session, name, value)

    def resume(self, session: Session) -> None:
        """Go on with a session of an earlier process: bring its model back, and run what was accepted."""
        waiting = [item for item in session.operations.values() if item.outcome is None]
        session.queue.extend(waiting)
        if not session.is_active:
            self._runner.clear(session)
        elif session.status is SessionStatus.STOPPING or session.resources.status in INACTIVE_RESOURCES:
            self._runner.stop(session)
        else:
            logger.info("session %s: taken up again, %d operations wait", session.id, len(waiting))
            self._prolong(session.resources)
            self._runner.open(session)

    def use(self, session: Session) -> None:
        """Note that a session and its resources are used now."""
        session.updated_at = self._clock()
        self._prolong(session.resources)

    def extend(self, resources: Resources, seconds: int) -> None:
        """Keep resources for at least this long."""
        if resources.status is not ResourcesStatus.READY:
            raise invalid(f"resources {resources.id} are {resources.status}, expected READY: create new ones")
        resources.expires_at = max(resources.expires_at, self._clock() + seconds)
        self.keep_resources(resources)

    def expire(self) -> None:
        """Stop resources that were not used for longer than their inactive timeout, and end the sessions on them.

        A session with work that runs or waits is in use. Nothing is raised, for whoever asked may have come for other
        resources: what cannot be recorded is logged, and tried again next time.
        """
        now = self._clock()
        for resources in self._resources.values():
            if resources.status is not ResourcesStatus.READY or resources.expires_at > now:
                continue
            try:
                self._expire(resources)
            except Exception:
                logger.exception("resources %s: they ran out, and could not be stopped", resources.id)

    def stop_resources(self, resources: Resources, *, force: bool) -> None:
        """Stop resources, and with ``force`` the sessions on them."""
        if resources.status in INACTIVE_RESOURCES:
            raise invalid(f"resources {resources.id} are {resources.status} already")
        active = self._active_on(resources)
        if active and not force:
            raise invalid(
                f"resources {resources.id} still have {len(active)} sessions: stop them first, or pass force=true"
            )
        for session in active:
            self.stop_session(session)
        self._end(resources)

    def stop_session(self, session: Session) -> None:
        """Stop a session: the operation that runs is finished, those that wait fail."""
        if not session.is_active:
            return
        self.change(session, status=SessionStatus.STOPPING, updated_at=self._clock())
        self._runner.stop(session)

    def _prolong(self, resources: Resources) -> None:
        resources.expires_at = max(resources.expires_at, self._clock() + resources.inactive_timeout)

    def _expire(self, resources: Resources) -> None:
        active = self._active_on(resources)
        if any(session.runner is not None or session.queue for session in active):
            return
        # Recorded first: a service that starts between the two stops sessions whose resources are.
        self._end(resources)
        for session in active:
            self._runner.stop(session, final=SessionStatus.EXPIRED)
        logger.warning(
            "resources %s: not used for %d s, stopped with %d sessions; checkpoints stay",
            resources.id,
            resources.inactive_timeout,
            len(active),
        )

    def _end(self, resources: Resources) -> None:
        """Call resources stopped, once that is recorded."""
        ended = dataclasses.replace(resources, status=ResourcesStatus.STOPPED, updated_at=self._clock())
        self.keep_resources(ended)
        resources.status, resources.updated_at = ended.status, ended.updated_at

    def _active_on(self, resources: Resources) -> list[Session]:
        return [item for item in self._sessions.values() if item.resources is resources and item.is_active]
