"""One handle for a call that was sent in parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from samplekit.client.operations import Handle
from samplekit.errors import OperationFailedError, OperationTimeoutError
from samplekit.wire.answers import OperationAnswer
from samplekit.wire.names import OperationStatus

if TYPE_CHECKING:
    from samplekit.client.steps import Flow

T = TypeVar("T")
SEPARATOR = ","  # between the ids of parts, and between their keys


class JoinedHandle(Handle[T]):
    """The operations of one call; its id and key are theirs, with commas between.

    Args:
        parts: in the order of the samples, not of submission.
        join: makes one result of theirs.
    """

    def __init__(self, parts: Sequence[Handle[T]], join: Callable[[Sequence[T]], T]) -> None:
        keys = [part.key for part in parts if part.key is not None]
        key = SEPARATOR.join(keys) if len(keys) == len(parts) else None
        first = parts[0]
        super().__init__(first.terms, first.session_id, first.kind, key, _joined(parts), _reads_nothing)
        self._parts, self._join = parts, join

    def collect(self, timeout: float | None) -> Flow[T]:
        """Wait for all parts and join their results."""
        if self._value is None:
            clock = self.terms.runtime.clock
            deadline = None if timeout is None else clock() + timeout
            values: list[T] = []
            for index, part in enumerate(self._parts):
                left = None if deadline is None else max(deadline - clock(), 0.0)
                try:
                    values.append((yield from part.collect(left)))
                except (OperationFailedError, OperationTimeoutError) as error:
                    raise error.reworded(
                        f"{error} (it is part {index + 1} of {len(self._parts)} of a call that was too large for one "
                        "body; what the other parts add to the gradient counts by itself)"
                    ) from error
                finally:
                    self.answer = _joined(self._parts)
                    self.collected = all(item.collected for item in self._parts) or self.answer.failed
            self._value = (self._join(values),)
        return self._value[0]

    def finish(self, deadline: float | None) -> Flow[OperationAnswer | None]:
        """Wait until all parts are finished; None where the deadline comes first."""
        for part in self._parts:
            if (yield from part.finish(deadline)) is None:
                return None
        self.answer = _joined(self._parts)
        return self.answer

    def look(self) -> Flow[bool]:
        """Ask once for every part whether it is finished."""
        for part in self._parts:
            yield from part.look()
        self.answer = _joined(self._parts)
        return self.answer.finished


def _joined(parts: Sequence[Handle[Any]]) -> OperationAnswer:
    """Say of all parts what is said of one: failed where one is, finished once all are."""
    answers = [part.answer for part in parts]
    identity = SEPARATOR.join(answer.id for answer in answers)
    unfinished = next((answer for answer in answers if not answer.finished), None)
    failed = next((answer for answer in answers if answer.failed), None)
    if unfinished is not None:
        return OperationAnswer(identity, unfinished.status)
    if failed is not None:
        return OperationAnswer(identity, failed.status, code=failed.code, message=failed.message)
    return OperationAnswer(identity, OperationStatus.COMPLETED)


def _reads_nothing(*_: object) -> Any:  # noqa: ANN401 - never called: the parts read their outputs
    raise NotImplementedError
