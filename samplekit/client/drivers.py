"""Two drivers of flows, blocking and async, and how they send one request with httpx."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from samplekit.client.steps import Failure, Flow, Held, Outcome, Pause, Request, Step, Work

if TYPE_CHECKING:
    from samplekit.client.endpoint import Endpoint
    from samplekit.client.runtime import Runtime

T = TypeVar("T")

# Faults of httpx that come before the first byte of a request is written.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)


class BlockingDriver:
    """Run flows to their end on the calling thread."""

    def __init__(self, http: httpx.Client, endpoint: Endpoint, runtime: Runtime) -> None:
        self._http, self._endpoint, self._runtime = http, endpoint, runtime

    def run(self, flow: Flow[T]) -> T:
        """Do what the flow asks for until it returns; what goes wrong is raised inside it, so that it can clean up."""
        outcome: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = flow.send(outcome) if error is None else flow.throw(error)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            try:
                outcome, error = self._perform(step), None
            except BaseException as raised:  # noqa: BLE001 - the flow decides
                outcome, error = None, raised

    def _perform(self, step: Step) -> Any:  # noqa: ANN401 - a flow takes what it asked for
        if isinstance(step, Held):
            return self._perform(step.step)
        if isinstance(step, Request):
            return self._send(step)
        return step.run() if isinstance(step, Work) else self._runtime.sleep(step.seconds)

    def _send(self, request: Request) -> Outcome:
        self._endpoint.require_open(closed=self._http.is_closed)
        try:
            response = self._http.send(self._endpoint.build(request))
        except httpx.RequestError as error:
            return _failure(error)
        return self._endpoint.reply(response)


class AsyncDriver:
    """Run flows to their end on the running event loop."""

    def __init__(self, http: httpx.AsyncClient, endpoint: Endpoint, runtime: Runtime) -> None:
        self._http, self._endpoint, self._runtime = http, endpoint, runtime

    async def run(self, flow: Flow[T]) -> T:
        """Do what the flow asks for until it returns; what goes wrong is raised inside it, so that it can clean up.

        A cancellation that comes during a held step is raised at the next step that is not held, or at the end.
        """
        outcome: Any = None
        error: BaseException | None = None
        cancelled: asyncio.CancelledError | None = None
        while True:
            try:
                step = flow.send(outcome) if error is None else flow.throw(error)
            except StopIteration as stop:
                if cancelled is not None:
                    raise cancelled from None
                return stop.value  # type: ignore[no-any-return]
            except Exception as raised:
                if cancelled is None:
                    raise
                cancelled.add_note(str(raised))  # such as that something may run still
                raise cancelled from raised
            try:
                if isinstance(step, Held):
                    work = asyncio.ensure_future(self._perform(step.step))
                    cancelled = await _finish(work) or cancelled
                    outcome, error = work.result(), None
                elif cancelled is not None:
                    outcome, error, cancelled = None, cancelled, None
                else:
                    outcome, error = await self._perform(step), None
            except BaseException as raised:  # noqa: BLE001 - the flow decides
                outcome, error = None, raised

    async def _perform(self, step: Request | Pause | Work) -> Any:  # noqa: ANN401 - a flow takes what it asked for
        if isinstance(step, Request):
            return await self._send(step)
        if isinstance(step, Work):
            return await asyncio.to_thread(step.run) if step.large else step.run()
        return await self._runtime.async_sleep(step.seconds)

    async def _send(self, request: Request) -> Outcome:
        self._endpoint.require_open(closed=self._http.is_closed)
        try:
            response = await self._http.send(self._endpoint.build(request))
        except httpx.RequestError as error:
            return _failure(error)
        return self._endpoint.reply(response)


async def _finish(work: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until work is done, however often this task is cancelled meanwhile; give the last cancellation."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as raised:
            cancelled = raised
    return cancelled


def _failure(error: httpx.RequestError) -> Failure:
    kind = type(error).__name__
    sent = not isinstance(error, _NOT_SENT)
    late = isinstance(error, httpx.TimeoutException)
    reason = f"the connection failed ({kind}: {error})"
    if late:
        reason = f"no answer came in time ({kind})" if sent else f"no connection could be had in time ({kind})"
    return Failure(reason, sent=sent, timed_out=late and sent)
