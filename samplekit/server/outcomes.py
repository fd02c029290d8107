"""Results of operations: the latest in memory, all of them on disk or at hand, however many there are."""

from __future__ import annotations

import dataclasses
import logging
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samplekit.server.payloads import PayloadStore
    from samplekit.server.records import Operation
    from samplekit.server.state_directory import StateDirectory

MAX_OUTCOMES = 4096
MAX_BYTES = 67_108_864
_NOTHING = b"{}"

logger = logging.getLogger(__name__)


class Outcomes:
    """Keeps results in memory up to a count and a size; older ones are read back from disk.

    Called on the event loop, all but `read`.
    """

    def __init__(
        self,
        payloads: PayloadStore,
        state: StateDirectory | None,
        *,
        max_outcomes: int = MAX_OUTCOMES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """Start with nothing in memory.

        Args:
            payloads: where results go that leave memory, without a state directory.
            state: whose journal holds every result already, if there is one.
            max_outcomes: results in memory at most.
            max_bytes: their size at most.
        """
        self._payloads, self._state = payloads, state
        self._max_outcomes, self._max_bytes = max_outcomes, max_bytes
        self._held: deque[tuple[Operation, bytes]] = deque()
        self.num_bytes = 0

    @property
    def num_held(self) -> int:
        """How many results are in memory."""
        return len(self._held)

    def keep(self, operation: Operation) -> None:
        """Take the result of an operation that ended, and let the oldest go to disk where there are too many."""
        outcome = operation.outcome
        if outcome is None or outcome.output is None or outcome.output == _NOTHING:
            return
        self._held.append((operation, outcome.output))
        self.num_bytes += len(outcome.output)
        while len(self._held) > self._max_outcomes or self.num_bytes > self._max_bytes:
            operation, output = self._held[0]
            if not self._let_go(operation, output):
                return
            self._held.popleft()
            self.num_bytes -= len(output)

    def read(self, operation: Operation) -> bytes:
        """Read the JSON of a result that left memory; runs on any thread.

        Raises:
            OSError: it cannot be read.
        """
        if self._state is not None:
            return self._state.output_of(operation)
        return self._payloads.outcome_path(operation.id).read_bytes()

    def _let_go(self, operation: Operation, output: bytes) -> bool:
        if self._state is None:
            try:
                self._payloads.outcome_path(operation.id).write_bytes(output)
            except OSError as error:
                logger.warning("results stay in memory, for they cannot be written: %s", error)
                return False
        if operation.outcome is not None:
            operation.outcome = dataclasses.replace(operation.outcome, output=None)
        return True
