"""Results of operations: the latest in memory, all of them on disk or at hand, however many there are."""

from __future__ import annotations

import logging
import threading
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
    """Keeps results in memory up to a count and a size; older ones are read back from disk. Safe from any thread."""

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
        self._held: deque[Operation] = deque()
        self._lock = threading.Lock()
        self.num_bytes = 0

    @property
    def num_held(self) -> int:
        """How many results are in memory."""
        return len(self._held)

    def keep(self, operation: Operation) -> None:
        """Take the result of an operation that ended, and let the oldest go to disk where there are too many."""
        if operation.output is None or operation.output == _NOTHING:
            return
        with self._lock:
            self._held.append(operation)
            self.num_bytes += len(operation.output)
            while len(self._held) > self._max_outcomes or self.num_bytes > self._max_bytes:
                if not self._let_go(self._held[0]):
                    return
                self._held.popleft()

    def output_of(self, operation: Operation) -> bytes:
        """Give the JSON of a result; it may be read from disk.

        Raises:
            OSError: it cannot be read.
        """
        output = operation.output
        if output is not None:
            return output
        if self._state is not None:
            return self._state.output_of(operation)
        return self._payloads.outcome_path(operation.id).read_bytes()

    def _let_go(self, operation: Operation) -> bool:
        output = operation.output or b""
        if self._state is None:
            try:
                self._payloads.outcome_path(operation.id).write_bytes(output)
            except OSError as error:
                logger.warning("results stay in memory, for they cannot be written: %s", error)
                return False
        self.num_bytes -= len(output)
        operation.output = None
        return True
