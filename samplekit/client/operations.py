"""Handles of submitted operations: asked for, awaited, collected in any order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from samplekit.client.polling import poll_interval
from samplekit.client.progress import Watch
from samplekit.client.settings import seconds, shown
from samplekit.client.steps import Flow, Pause
from samplekit.errors import SampleError

if TYPE_CHECKING:
    from samplekit.client.drivers import AsyncDriver, BlockingDriver
    from samplekit.client.handles import Handle

T = TypeVar("T")


class _Named(Generic[T]):
    """What a handle shows of itself."""

    def __init__(self, handle: Handle[T]) -> None:
        self._handle = handle

    def _watch(self, num_operations: int) -> Watch:
        """Watch a wait for several operations, of which this is one."""
        return Watch(f"{num_operations} operations", self._handle.accepted[0].terms.runtime)

    @staticmethod
    def _is_due(operation: _Named[Any]) -> bool:
        """Tell whether one may be asked for; a fault puts that off."""
        return not operation._handle.rests

    @property
    def id(self) -> str:
        """The service's id: with `kind`, enough for another process to pick the operation up."""
        return self._handle.id

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
        return self._handle.status

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "an operation is neither pickled nor copied: keep its id and kind, and take it up elsewhere with "
            f"session.operation('{self.id}', '{self.kind}')"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.kind} {self.id}: {self.status.rpartition('_')[2] or 'unknown'}>"


class Operation(_Named[T]):
    """An operation the service accepted. It runs whether or not it is asked for."""

    def __init__(self, handle: Handle[T], driver: BlockingDriver) -> None:
        super().__init__(handle)
        self._driver = driver

    def done(self) -> bool:
        """Ask once whether it is finished, without waiting; False where that is not known.

        An answer is waited for 5 s; where that was too short, twice as long the next time, up to a minute.

        Raises:
            StatusError: the service said no, as to a wrong id, or it failed more than max_retries times in a row.
            ConnectionFailedError: it could not be reached more than max_retries times in a row.
        """
        return self._driver.run(self._handle.look())

    def result(self, timeout: float | None = 300.0) -> T:
        """Wait for the operation and give its result; asked again, the same result.

        Args:
            timeout: seconds to wait; None for as long as it takes.

        Raises:
            SampleError: the timeout is no number of 0 or more.
            OperationTimeoutError: it still runs, or its result is on its way, or the service does not say: keep this
                Operation and ask again, never submit anew.
            StatusError: 404, the service knows no such operation, as where a wrong id was picked up.
            OperationFailedError: the service carried it out and it failed.
        """
        return self._driver.run(self._handle.collect(seconds("timeout", timeout)))

    def next_finished(self, operations: Sequence[Operation[Any]]) -> int:
        """Wait until one of several is finished, each asked for through its own client, and give its index."""
        watch = self._watch(len(operations))
        try:
            while True:
                for index, item in enumerate(operations):
                    if self._is_due(item) and item.done():
                        return index
                self._driver.run(_round(watch))
        finally:
            watch.end()


class AsyncOperation(_Named[T]):
    """An operation the service accepted. It runs whether or not it is asked for."""

    def __init__(self, handle: Handle[T], driver: AsyncDriver) -> None:
        super().__init__(handle)
        self._driver = driver

    async def done(self) -> bool:
        """Ask once whether it is finished, without waiting; False where that is not known.

        An answer is waited for 5 s; where that was too short, twice as long the next time, up to a minute.

        Raises:
            StatusError: the service said no, as to a wrong id, or it failed more than max_retries times in a row.
            ConnectionFailedError: it could not be reached more than max_retries times in a row.
        """
        return await self._driver.run(self._handle.look())

    async def result(self, timeout: float | None = 300.0) -> T:
        """Wait for the operation and give its result; asked again, the same result.

        Args:
            timeout: seconds to wait; None for as long as it takes.

        Raises:
            SampleError: the timeout is no number of 0 or more.
            OperationTimeoutError: it still runs, or its result is on its way, or the service does not say: keep this
                operation and ask again, never submit anew.
            StatusError: 404, the service knows no such operation, as where a wrong id was picked up.
            OperationFailedError: the service carried it out and it failed.
        """
        return await self._driver.run(self._handle.collect(seconds("timeout", timeout)))

    def __await__(self) -> Generator[Any, None, T]:
        return self.result().__await__()

    async def next_finished(self, operations: Sequence[AsyncOperation[Any]]) -> int:
        """Wait until one of several is finished, each asked for through its own client, and give its index."""
        watch = self._watch(len(operations))
        try:
            while True:
                for index, item in enumerate(operations):
                    if self._is_due(item) and await item.done():
                        return index
                await self._driver.run(_round(watch))
        finally:
            watch.end()


def _round(watch: Watch) -> Flow[None]:
    """Tell that several operations are waited for, and wait before they are looked at again."""
    watch.tell("RUNNING")
    yield Pause(poll_interval(watch.elapsed))


@overload
def as_completed(operations: Iterable[Operation[T]]) -> Iterator[Operation[T]]: ...
@overload
def as_completed(operations: Iterable[AsyncOperation[T]]) -> AsyncIterator[AsyncOperation[T]]: ...
def as_completed(operations: Iterable[Any]) -> Any:
    """Give operations one by one as they finish, failed ones included; ask each for its ``result()``.

    Args:
        operations: blocking ones, for ``for``, or async ones, for ``async for``; of any clients, sessions and kinds.

    Raises:
        SampleError: something is no operation, or blocking and async ones are mixed.
        ServiceError: as ``result()`` raises it where one cannot be asked for; those not given yet can be waited for
            again.
    """
    pending = list(operations)
    kind = AsyncOperation if pending and isinstance(pending[0], AsyncOperation) else Operation
    for index, item in enumerate(pending):
        if not isinstance(item, kind):
            raise SampleError(
                f"operations[{index}] is {shown(item)}, expected an {kind.__name__}: await what a session of an "
                "AsyncClient gives first, and wait for blocking and async operations apart"
            )
    return _async_completed(pending) if kind is AsyncOperation else _completed(pending)


def _completed(pending: list[Operation[Any]]) -> Iterator[Operation[Any]]:
    while pending:
        yield pending.pop(pending[0].next_finished(pending))


async def _async_completed(pending: list[AsyncOperation[Any]]) -> AsyncIterator[AsyncOperation[Any]]:
    while pending:
        yield pending.pop(await pending[0].next_finished(pending))
