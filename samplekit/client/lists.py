"""What both clients list: resources, sessions and checkpoints of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samplekit.client import listing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samplekit.client.drivers import AsyncDriver, BlockingDriver
    from samplekit.client.flows import Terms
    from samplekit.wire.lifecycles import Lifecycle
    from samplekit.wire.listings import Checkpoint


class BlockingLists:
    """The lists of the blocking client."""

    _terms: Terms
    _driver: BlockingDriver

    def resources(
        self, *, status: Iterable[str] | str = (), created_by: str | None = None, limit: int | None = None
    ) -> list[Lifecycle]:
        """List model resources.

        Args:
            status: one or several, such as ``"ready"``; none for all.
            created_by: a user's id, or ``"me"``.
            limit: the most to give; None for all there are.
        """
        flow = listing.list_resources(self._terms, status=status, created_by=created_by, limit=limit)
        return self._driver.run(flow)

    def sessions(
        self,
        *,
        status: Iterable[str] | str = (),
        created_by: str | None = None,
        resources_id: str | None = None,
        limit: int | None = None,
    ) -> list[Lifecycle]:
        """List training sessions.

        Args:
            status: one or several, such as ``"running"``; none for all.
            created_by: a user's id, or ``"me"``.
            resources_id: only those on these model resources.
            limit: the most to give; None for all there are.
        """
        flow = listing.list_sessions(
            self._terms, status=status, created_by=created_by, resources_id=resources_id, limit=limit
        )
        return self._driver.run(flow)

    def checkpoints(
        self,
        *,
        session_id: str | None = None,
        kind: str | None = None,
        base_model: str | None = None,
        limit: int | None = None,
    ) -> list[Checkpoint]:
        """List saved checkpoints.

        Args:
            session_id: only those of this session.
            kind: ``"inference"`` or ``"training"``; None for both.
            base_model: only those of this model.
            limit: the most to give; None for all there are.
        """
        flow = listing.list_checkpoints(
            self._terms, session_id=session_id, kind=kind, base_model=base_model, limit=limit
        )
        return self._driver.run(flow)


class AsyncLists:
    """The lists of the async client."""

    _terms: Terms
    _driver: AsyncDriver

    async def resources(
        self, *, status: Iterable[str] | str = (), created_by: str | None = None, limit: int | None = None
    ) -> list[Lifecycle]:
        """List model resources.

        Args:
            status: one or several, such as ``"ready"``; none for all.
            created_by: a user's id, or ``"me"``.
            limit: the most to give; None for all there are.
        """
        flow = listing.list_resources(self._terms, status=status, created_by=created_by, limit=limit)
        return await self._driver.run(flow)

    async def sessions(
        self,
        *,
        status: Iterable[str] | str = (),
        created_by: str | None = None,
        resources_id: str | None = None,
        limit: int | None = None,
    ) -> list[Lifecycle]:
        """List training sessions.

        Args:
            status: one or several, such as ``"running"``; none for all.
            created_by: a user's id, or ``"me"``.
            resources_id: only those on these model resources.
            limit: the most to give; None for all there are.
        """
        flow = listing.list_sessions(
            self._terms, status=status, created_by=created_by, resources_id=resources_id, limit=limit
        )
        return await self._driver.run(flow)

    async def checkpoints(
        self,
        *,
        session_id: str | None = None,
        kind: str | None = None,
        base_model: str | None = None,
        limit: int | None = None,
    ) -> list[Checkpoint]:
        """List saved checkpoints.

        Args:
            session_id: only those of this session.
            kind: ``"inference"`` or ``"training"``; None for both.
            base_model: only those of this model.
            limit: the most to give; None for all there are.
        """
        flow = listing.list_checkpoints(
            self._terms, session_id=session_id, kind=kind, base_model=base_model, limit=limit
        )
        return await self._driver.run(flow)
