"""Model resources on their own: created, waited for, kept up, shared by several sessions, stopped."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from samplekit.client import opening, upkeep
from samplekit.client.async_session import AsyncSession
from samplekit.client.flows import resources_request
from samplekit.client.plans import SessionPlan
from samplekit.client.session import Session
from samplekit.client.settings import positive
from samplekit.client.stopping import stop_resources
from samplekit.wire.lifecycles import parse_lifecycle, short_status
from samplekit.wire.names import ResourcesStatus

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from samplekit.client.drivers import AsyncDriver, BlockingDriver
    from samplekit.client.flows import Terms
    from samplekit.client.ownership import Reminders
    from samplekit.client.plans import OpenSession
    from samplekit.client.steps import Flow
    from samplekit.wire.lifecycles import Lifecycle


class ResourcesState:
    """What blocking and async resources share.

    Attributes:
        info: what the service said of them last.
    """

    def __init__(self, info: Lifecycle, terms: Terms, reminders: Reminders, *, owned: bool) -> None:
        self.info = info
        self._terms, self._reminders = terms, reminders
        self._stops = owned
        self._reminder = reminders.watch_resources(self, info.id) if owned else None

    @property
    def id(self) -> str:
        """The service's id, for ``client.attach_resources``."""
        return self.info.id

    @property
    def base_model(self) -> str:
        """The model they are for."""
        return self.info.base_model

    @property
    def status(self) -> str:
        """The status last heard of, as people say it: ``"READY"``."""
        return short_status(self.info.status)

    def detach(self) -> None:
        """Let them run on when their block is left. They cost until stopped."""
        self._stops = False
        if self._reminder is not None:
            self._reminder.cancel()

    def _heard(self, found: Lifecycle | None) -> None:
        """Keep what the service says of them; None where it does not know them any more."""
        self.info = found or replace(self.info, status=ResourcesStatus.STOPPED)

    def _look_flow(self) -> Flow[str]:
        self._heard((yield from self._terms.call(resources_request(self.id), parse_lifecycle)))
        return self.status

    def _wait_flow(self, timeout: float) -> Flow[None]:
        yield from opening.wait_for_resources(self._terms, self.id, positive("timeout", timeout), self._heard)

    def _extend_flow(self, seconds: int) -> Flow[None]:
        self._heard((yield from upkeep.extend_expiry(self._terms, self.id, seconds)))

    def _session_flow(self, plan: SessionPlan) -> Flow[OpenSession]:
        return opening.open_session_on(self._terms, self.info, plan, self._heard)

    def _stop_flow(self) -> Flow[None]:
        self.detach()  # what follows stops them, or says why it could not
        yield from stop_resources(self._terms, self.id, heard=self._heard)
        self._reminders.forget(self.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.base_model}: {self.status}>"


class Resources(ResourcesState):
    """Hardware with a base model on it; leaving its ``with`` block stops what was created."""

    def __init__(
        self, info: Lifecycle, terms: Terms, driver: BlockingDriver, reminders: Reminders, *, owned: bool
    ) -> None:
        super().__init__(info, terms, reminders, owned=owned)
        self._driver = driver

    def refresh(self) -> str:
        """Ask for the status."""
        return self._driver.run(self._look_flow())

    def wait(self, timeout: float = opening.OPEN_SECONDS) -> None:
        """Wait until sessions can be created on them.

        Raises:
            ServiceError: they never will be, or not within the timeout (seconds).
        """
        self._driver.run(self._wait_flow(timeout))

    def extend(self, seconds: int) -> None:
        """Keep them up for at least so many seconds (60 to 86,400) from now."""
        self._driver.run(self._extend_flow(seconds))

    def session(
        self,
        *,
        lora_rank: int | None = None,
        lora_alpha: int | None = None,
        lora_seed: int | None = None,
        name: str | None = None,
        resume_from: str | None = None,
        lora_dropout: float | None = None,
        lora_train_unembed: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
        load_optimizer: bool | None = None,
    ) -> Session:
        """Create a session on them; arguments as in ``client.session``. Leaving it leaves them running.

        Resources made with ``lora=True`` need a lora_rank, others refuse it: neither trains something else than asked.
        """
        plan = SessionPlan(
            None, lora_rank, lora_alpha, lora_seed, 1, name, resume_from,
            lora_dropout, lora_train_unembed, metadata, load_optimizer,
        )  # fmt: skip
        opened = self._driver.run(self._session_flow(plan))
        return Session(opened, self._terms, self._driver, self._reminders)

    def stop(self) -> None:
        """Stop them with every session on them, and wait until nothing more is paid."""
        self._driver.run(self._stop_flow())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._stops:
            self.stop()


class AsyncResources(ResourcesState):
    """Hardware with a base model on it; leaving its ``async with`` block stops what was created."""

    def __init__(
        self, info: Lifecycle, terms: Terms, driver: AsyncDriver, reminders: Reminders, *, owned: bool
    ) -> None:
        super().__init__(info, terms, reminders, owned=owned)
        self._driver = driver

    async def refresh(self) -> str:
        """Ask for the status."""
        return await self._driver.run(self._look_flow())

    async def wait(self, timeout: float = opening.OPEN_SECONDS) -> None:
        """Wait until sessions can be created on them.

        Raises:
            ServiceError: they never will be, or not within the timeout (seconds).
        """
        await self._driver.run(self._wait_flow(timeout))

    async def extend(self, seconds: int) -> None:
        """Keep them up for at least so many seconds (60 to 86,400) from now."""
        await self._driver.run(self._extend_flow(seconds))

    async def session(
        self,
        *,
        lora_rank: int | None = None,
        lora_alpha: int | None = None,
        lora_seed: int | None = None,
        name: str | None = None,
        resume_from: str | None = None,
        lora_dropout: float | None = None,
        lora_train_unembed: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
        load_optimizer: bool | None = None,
    ) -> AsyncSession:
        """Create a session on them; arguments as in ``client.session``. Leaving it leaves them running.

        Resources made with ``lora=True`` need a lora_rank, others refuse it: neither trains something else than asked.
        """
        plan = SessionPlan(
            None, lora_rank, lora_alpha, lora_seed, 1, name, resume_from,
            lora_dropout, lora_train_unembed, metadata, load_optimizer,
        )  # fmt: skip
        opened = await self._driver.run(self._session_flow(plan))
        return AsyncSession(opened, self._terms, self._driver, self._reminders)

    async def stop(self) -> None:
        """Stop them with every session on them, and wait until nothing more is paid."""
        await self._driver.run(self._stop_flow())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._stops:
            await self.stop()
