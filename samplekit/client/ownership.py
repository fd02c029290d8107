"""Sessions that cost until they are stopped: who forgets one is told its ids and how to stop it."""

from __future__ import annotations

import logging
import warnings
import weakref
from typing import TYPE_CHECKING

from samplekit.wire import names

if TYPE_CHECKING:
    from samplekit.client.plans import OpenSession

logger = logging.getLogger(__name__)


class Reminder:
    """Warns of one running session, once: when its holder is dropped, when the process ends, or when told to.

    Attributes:
        resources_id: what it is on, or is.
    """

    def __init__(self, holder: object, resources_id: str, message: str) -> None:
        """Watch ``holder``, which must not be kept alive by this reminder."""
        self.resources_id = resources_id
        self._finalizer = weakref.finalize(holder, _warn, message)

    def cancel(self) -> None:
        """Forget it: the session was stopped, or is meant to run on."""
        self._finalizer.detach()

    def warn(self) -> None:
        """Warn now, unless that was done or is not needed any more."""
        self._finalizer()


class Reminders:
    """Those of one client, warned of when it closes."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        # By their own ids: a WeakSet cannot be iterated over while another thread adds to it.
        self._known: weakref.WeakValueDictionary[int, Reminder] = weakref.WeakValueDictionary()

    def watch(self, holder: object, opened: OpenSession) -> Reminder | None:
        """Watch over a session; one that somebody else created needs no reminder."""
        if not opened.owned:
            return None
        if opened.stops_resources:
            stop = self._stop_request(opened.resources_id)
        else:
            stop = f"{names.STOP_SESSION.method} {self._base_url}{names.STOP_SESSION.path(session_id=opened.id)}"
        return self._add(
            holder,
            opened.resources_id,
            f"session {opened.id} on model resources {opened.resources_id} was never stopped and may cost until it is: "
            "use 'with client.session(...) as session', session.stop(), or session.detach() to let it run on; "
            f"to stop it now, {stop}",
        )

    def watch_resources(self, holder: object, resources_id: str) -> Reminder:
        """Watch over resources."""
        return self._add(
            holder,
            resources_id,
            f"model resources {resources_id} were never stopped and may cost until they are: use 'with "
            "client.create_resources(...) as resources', resources.stop(), or resources.detach() to let them run on; "
            f"to stop them now, {self._stop_request(resources_id)}",
        )

    def _stop_request(self, resources_id: str) -> str:
        stop = names.STOP_RESOURCES
        return f"{stop.method} {self._base_url}{stop.path(resources_id=resources_id)}?force=true"

    def forget(self, resources_id: str) -> None:
        """Warn no more of resources that were stopped, nor of any session that was on them and stopped with them."""
        for reminder in self._listed():
            if reminder.resources_id == resources_id:
                reminder.cancel()

    def _add(self, holder: object, resources_id: str, message: str) -> Reminder:
        reminder = Reminder(holder, resources_id, message)
        self._known[id(reminder)] = reminder
        return reminder

    def _listed(self) -> list[Reminder]:
        return [found for reference in self._known.valuerefs() if (found := reference()) is not None]

    def warn(self) -> None:
        """Warn of every session that still runs and would go on unnoticed."""
        for reminder in self._listed():
            reminder.warn()


def _warn(message: str) -> None:
    logger.warning(message)  # Python shows a ResourceWarning to nobody who did not ask for it
    warnings.warn(message, ResourceWarning, stacklevel=2)
