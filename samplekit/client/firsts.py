"""What answers name as new, so that no answer is taken for that of a later call.

A proxy that answers one request twice shifts every later answer on its connection by one. An answer that must be about
a known id shows it; one that names something new shows it only to who remembers what was new before.
"""

from __future__ import annotations

from collections import OrderedDict

from samplekit.wire.answers import AnswerError

_REMEMBERED = 4096  # an unused connection, with what came on it too much, is dropped after 5 s


class Firsts:
    """Which call was the first to be given a name; threads may share it, for every step is one of the dictionary."""

    def __init__(self) -> None:
        self._owners = OrderedDict[tuple[str, str], object]()

    def heard_of(self, what: str, name: str, owner: object = None) -> object:
        """Remember a name, and give who was given it first."""
        first = self._owners.setdefault((what, name), owner)
        if len(self._owners) > _REMEMBERED:
            self._owners.popitem(last=False)
        return first

    def require(self, what: str, name: str, owner: object) -> None:
        """Refuse what another call was given before.

        Args:
            what: it is, for the error: ``"operation"``.
            name: its own, which only this call's answer may be the first to give.
            owner: the call, however often it is sent: such as its idempotency key.

        Raises:
            AnswerError: the answer is that of another call.
        """
        if self.heard_of(what, name, owner) != owner:
            raise AnswerError(f"the answer names the {what} of an earlier call, which was answered twice it seems")
