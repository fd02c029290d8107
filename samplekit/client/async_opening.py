"""What ``AsyncClient.session`` gives: a session about to be opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from types import TracebackType

    from samplekit.client.async_session import AsyncSession


class Opening:
    """A session about to be opened: awaited, or entered with ``async with``."""

    def __init__(self, open_session: Callable[[], Coroutine[Any, Any, AsyncSession]]) -> None:
        self._open = open_session
        self._session: AsyncSession | None = None

    def __await__(self) -> Generator[Any, None, AsyncSession]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncSession:
        self._session = await self
        return await self._session.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.__aexit__(kind, error, traceback)
