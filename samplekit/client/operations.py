"""Handles of submitted operations: asked for, awaited, collected in any order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from samplekit.client.exchange import poll_interval
from samplekit.client.faults import operation_failed
from samplekit.client.flows import Terms, operation_request, wait, with_payload
from samplekit.client.progress import Watch
from samplekit.client.settings import seconds
from samplekit.client.steps import Flow, Pause, Work
from samplekit.errors import OperationError, OperationTimeoutError, StatusError
from samplekit.wire.answers import AnswerError, JsonObject, OperationAnswer, parse_operation
from samplekit.wire.names import NOT_FOUND_GRACE

if TYPE_CHECKING:
    from samplekit.client.drivers import AsyncDriver, BlockingDriver

T = TypeVar("T")


class Handle(Generic[T]):
    """What a blocking and an async operation share: identity, state, and the flows that advance it."""

    def __init__(
        self,
        terms: Terms,
        session_id: str,
        kind: str,
        key: str | None,
        answer: OperationAnswer,
        read: Callable[[JsonObject, str], T],
    ) -> None:
        self.terms, self.session_id, self.kind, self.key = terms, session_id, kind, key
        self.answer, self._read = answer, read
        self._since = terms.runtime.clock()
        self._value: tuple[T] | None = None
        self.collected = False

    def collect(self, timeout: float | None) -> Flow[T]:
        """Wait for the operation and read its result, once; asked again, the same is given.

        Raises:
            OperationTimeoutError: it still runs.
            OperationFailedError: the service carried it out and it failed.
            OperationError: it completed, and its output cannot be read.
        """
        if self._value is not None:
            return self._value[0]
        deadline = None if timeout is None else self.terms.runtime.clock() + timeout
        answer = yield from self.finish(deadline)
        if answer is None:
            raise OperationTimeoutError(
                f"{self.kind} operation {self.answer.id} still runs after {timeout:g} s: keep it and ask again",
                operation_id=self.answer.id,
                kind=self.kind,
            )
        self.collected = True
        if answer.failed:
            raise operation_failed(answer, self.kind)
        output = yield from with_payload(self.terms, self.session_id, answer.output)
        try:
            value: T = yield Work(lambda: self._read(output, answer.id))
        except AnswerError as error:
            raise OperationError(
                f"{self.kind} operation {answer.id} completed, and its output cannot be used: {error}; "
                "report it to the service with this id",
                operation_id=answer.id,
                kind=self.kind,
            ) from error
        self._value = (value,)
        return value

    def finish(self, deadline: float | None) -> Flow[OperationAnswer | None]:
        """Wait until it is finished; None where the deadline, on the runtime's clock, comes first."""
        if self.answer.finished:
            return self.answer
        where = (self.terms, self.session_id, self.kind, self.answer.id)
        try:
            answer = yield from wait(*where, since=self._since, deadline=deadline)
        except StatusError as error:
            if error.status != 404:
                raise
            if self.key is None or not self._is_fresh():
                raise self._unknown(error) from error
            return None  # it was accepted, and may only not be visible yet
        if answer is not None:
            self.answer = answer
        return answer

    def look(self) -> Flow[bool]:
        """Ask once whether it is finished."""
        if self.answer.finished:
            return True
        request = operation_request(self.session_id, self.kind, self.answer.id)
        try:
            self.answer = yield from self.terms.call(request, parse_operation)
        except StatusError as error:
            if error.status != 404:
                raise
            if not self._is_fresh():
                raise self._unknown(error) from error
        return self.answer.finished

    def _is_fresh(self) -> bool:
        """Tell whether a 404 may only mean that it is not visible yet."""
        return self.terms.runtime.clock() - self._since < NOT_FOUND_GRACE

    def _unknown(self, error: StatusError) -> StatusError:
        return error.reworded(
            f"the service knows no {self.kind} operation {self.answer.id} in session {self.session_id}: "
            f"check id, kind and session ({error.message})"
        )

    def __repr__(self) -> str:
        return f"{self.kind} operation {self.answer.id}"


class _Named(Generic[T]):
    """What a handle shows of itself."""

    def __init__(self, handle: Handle[T]) -> None:
        self._handle = handle

    @property
    def id(self) -> str:
        """The service's id: with `kind`, enough for another process to pick the operation up."""
        return self._handle.answer.id

    @property
    def kind(self) -> str:
        """The operation's kind, such as ``"forward-backward"``."""
        return self._handle.kind

    @property
    def idempotency_key(self) -> str | None:
        """The key it was submitted under; None for one that another process submitted."""
        return self._handle.key

    @property
    def status(self) -> str:
        """The status last heard of, as the service spells it."""
        return self._handle.answer.status

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.kind} {self.id}: {self.status.rpartition('_')[2] or 'unknown'}>"


class Operation(_Named[T]):
    """An operation the service accepted. It runs whether or not it is asked for."""

    def __init__(self, handle: Handle[T], driver: BlockingDriver) -> None:
        super().__init__(handle)
        self._driver = driver

    def done(self) -> bool:
        """Ask whether it is finished, without waiting."""
        return self._driver.run(self._handle.look())

    def result(self, timeout: float | None = 300.0) -> T:
        """Wait for the operation and give its result; asked again, the same result.

        Args:
            timeout: seconds to wait; None for as long as it takes.

        Raises:
            SampleError: the timeout is no number of 0 or more.
            OperationTimeoutError: it still runs: keep this Operation and ask again, never submit anew.
            StatusError: 404, the service knows no such operation, as where a wrong id was picked up.
            OperationFailedError: the service carried it out and it failed.
        """
        return self._driver.run(self._handle.collect(seconds("timeout", timeout)))

    def next_finished(self, operations: Sequence[Operation[Any]]) -> int:
        """Wait until one of several is finished and give its index."""
        return self._driver.run(_next_finished([item._handle for item in operations]))  # noqa: SLF001 - of this class


class AsyncOperation(_Named[T]):
    """An operation the service accepted. It runs whether or not it is asked for."""

    def __init__(self, handle: Handle[T], driver: AsyncDriver) -> None:
        super().__init__(handle)
        self._driver = driver

    async def done(self) -> bool:
        """Ask whether it is finished, without waiting."""
        return await self._driver.run(self._handle.look())

    async def result(self, timeout: float | None = 300.0) -> T:
        """Wait for the operation and give its result; asked again, the same result.

        Args:
            timeout: seconds to wait; None for as long as it takes.

        Raises:
            SampleError: the timeout is no number of 0 or more.
            OperationTimeoutError: it still runs: keep this operation and ask again, never submit anew.
            StatusError: 404, the service knows no such operation, as where a wrong id was picked up.
            OperationFailedError: the service carried it out and it failed.
        """
        return await self._driver.run(self._handle.collect(seconds("timeout", timeout)))

    def __await__(self) -> Generator[Any, None, T]:
        return self.result().__await__()

    async def next_finished(self, operations: Sequence[AsyncOperation[Any]]) -> int:
        """Wait until one of several is finished and give its index."""
        return await self._driver.run(_next_finished([item._handle for item in operations]))  # noqa: SLF001


def _next_finished(handles: Sequence[Handle[Any]]) -> Flow[int]:
    """Look at operations in turn until one is finished; give its index."""
    watch = Watch(f"{len(handles)} operations", handles[0].terms.runtime)
    try:
        while True:
            for index, handle in enumerate(handles):
                if (yield from handle.look()):
                    return index
            watch.tell("RUNNING")
            yield Pause(poll_interval(watch.elapsed))
    finally:
        watch.end()


@overload
def as_completed(operations: Iterable[Operation[T]]) -> Iterator[Operation[T]]: ...
@overload
def as_completed(operations: Iterable[AsyncOperation[T]]) -> AsyncIterator[AsyncOperation[T]]: ...
def as_completed(operations: Iterable[Any]) -> Any:
    """Give operations one by one as they finish, failed ones included; ask each for its ``result()``.

    Args:
        operations: blocking ones, for ``for``, or async ones, for ``async for``; of any sessions and kinds.
    """
    pending = list(operations)
    if pending and isinstance(pending[0], AsyncOperation):
        return _async_completed(pending)
    return _completed(pending)


def _completed(pending: list[Operation[Any]]) -> Iterator[Operation[Any]]:
    while pending:
        yield pending.pop(pending[0].next_finished(pending))


async def _async_completed(pending: list[AsyncOperation[Any]]) -> AsyncIterator[AsyncOperation[Any]]:
    while pending:
        yield pending.pop(await pending[0].next_finished(pending))
