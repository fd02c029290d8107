"""What a call gave: one accepted operation, or several where it was sent in parts, and how their outputs are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from samplekit.client.exchange import OutOfTimeError, within
from samplekit.client.faults import operation_failed
from samplekit.client.flows import with_payload
from samplekit.client.steps import Work
from samplekit.errors import (
    ConnectionFailedError,
    OperationError,
    OperationFailedError,
    OperationTimeoutError,
    StatusError,
)
from samplekit.wire.answers import AnswerError, JsonObject

if TYPE_CHECKING:
    from samplekit.client.accepted import Accepted
    from samplekit.client.steps import Flow

T = TypeVar("T")
SEPARATOR = ","  # between the ids of parts, and between their keys


class Part(Generic[T]):
    """An accepted operation and what reads its output: (output, operation id) -> result."""

    def __init__(self, accepted: Accepted, read: Callable[[JsonObject, str], T]) -> None:
        self.accepted = accepted
        self._read = read
        self._value: tuple[T] | None = None

    def collect(self, timeout: float | None, deadline: float | None) -> Flow[T]:
        """Wait for the operation and read its result, once; asked again, the same is given.

        Args:
            timeout: seconds the caller waits, for the error.
            deadline: when that ends, on the runtime's clock.

        Raises:
            OperationTimeoutError: it still runs, its result is still on its way, or the service does not say.
            OperationFailedError: the service carried it out and it failed.
            OperationError: it completed, and its output cannot be read.
        """
        accepted = self.accepted
        answer = yield from accepted.finish(deadline)
        if self._value is not None:  # looked at last, for another thread may have read the output and let it go
            return self._value[0]
        if answer is None:
            raise self._late(f"{accepted.last_heard(timeout or 0.0)}: keep it and ask again")
        accepted.collected = True
        if answer.failed:
            raise operation_failed(answer, accepted.kind)
        payload = with_payload(accepted.terms, accepted.session_id, answer.output)
        try:
            output = yield from within(payload, deadline, accepted.terms.runtime)
        except OutOfTimeError as error:
            reason = f"is finished, and its result had not come after {timeout:g} s: keep it and ask again"
            raise self._late(reason) from error
        except (ConnectionFailedError, StatusError) as error:
            raise error.reworded(f"{accepted} completed, and its result did not come: {error.message}") from error
        try:
            value: T = yield Work(lambda: self._read(output, answer.id))
        except AnswerError as error:
            raise OperationError(
                f"{accepted} completed, and its output cannot be used: {error}; report it to the service with this id",
                operation_id=answer.id,
                kind=accepted.kind,
            ) from error
        self._value = (value,)
        accepted.forget_output()
        return value

    def _late(self, reason: str) -> OperationTimeoutError:
        accepted = self.accepted
        return OperationTimeoutError(f"{accepted} {reason}", operation_id=accepted.answer.id, kind=accepted.kind)


class Handle(Generic[T]):
    """The operations of one call; of several, ids and keys are joined with commas.

    Args:
        parts: in the order of the samples, not of submission.
        join: makes one result of theirs, where there are several.
    """

    def __init__(self, parts: Sequence[Part[T]], join: Callable[[Sequence[T]], T] | None = None) -> None:
        self._parts, self._join = parts, join
        self._value: tuple[T] | None = None

    @property
    def accepted(self) -> Sequence[Accepted]:
        """The operations."""
        return [part.accepted for part in self._parts]

    @property
    def kind(self) -> str:
        """Their kind."""
        return self.accepted[0].kind

    @property
    def id(self) -> str:
        """Their ids."""
        return SEPARATOR.join(item.answer.id for item in self.accepted)

    @property
    def key(self) -> str | None:
        """Their idempotency keys; None where another process submitted them."""
        keys = [item.key for item in self.accepted if item.key is not None]
        return SEPARATOR.join(keys) if len(keys) == len(self._parts) else None

    @property
    def status(self) -> str:
        """The status of one that runs still, else of one that failed, else of all."""
        answers = [item.answer for item in self.accepted]
        return min(answers, key=lambda answer: (answer.finished, not answer.failed)).status

    @property
    def rests(self) -> bool:
        """Whether a fault lets one of them be asked for later only."""
        return any(item.rests for item in self.accepted)

    def collect(self, timeout: float | None) -> Flow[T]:
        """Wait for all of them and give the result of the call; asked again, the same is given.

        Args:
            timeout: seconds for everything together; None for as long as it takes.

        Raises:
            OperationTimeoutError: one still runs, or its result is still on its way.
            OperationFailedError: the service carried one out and it failed.
            OperationError: one completed, and its output cannot be read.
        """
        if self._value is None:
            deadline = None if timeout is None else self.accepted[0].terms.runtime.clock() + timeout
            values: list[T] = []
            for index, part in enumerate(self._parts):
                try:
                    values.append((yield from part.collect(timeout, deadline)))
                except (OperationFailedError, OperationTimeoutError) as error:
                    if self._join is None:
                        raise
                    raise error.reworded(
                        f"{error} (it is part {index + 1} of {len(self._parts)} of a call that was too large for one "
                        "body; what the other parts add to the gradient counts by itself)"
                    ) from error
            self._value = (values[0] if self._join is None else self._join(values),)
        return self._value[0]

    def look(self) -> Flow[bool]:
        """Ask once for each of them whether it is finished."""
        for item in self.accepted:
            yield from item.look()
        return all(item.answer.finished for item in self.accepted)
