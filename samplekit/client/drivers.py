"""Two drivers of flows, blocking and async, and how they send one request with httpx."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from samplekit.client.connections import LoopBond
from samplekit.client.intake import headers_of, lateness
from samplekit.client.steps import Failure, Fetch, Flow, Held, Outcome, Pause, Reply, Request, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from samplekit.client.connections import Connections
    from samplekit.client.endpoint import Endpoint
    from samplekit.client.runtime import Runtime

T = TypeVar("T")
logger = logging.getLogger(__name__)
_PIECE_BYTES = 1_048_576  # of a file that is fetched

# Faults of httpx that come before the first byte of a request is written.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)


class BlockingDriver:
    """Run flows to their end on the calling thread."""

    def __init__(self, connections: Connections, endpoint: Endpoint, runtime: Runtime) -> None:
        self._connections, self._endpoint, self._runtime = connections, endpoint, runtime

    def run(self, flow: Flow[T]) -> T:
        """Do what the flow asks for until it returns; what goes wrong is raised inside it, so that it can clean up.

        A Ctrl-C that comes during a held step is raised at the next step that is not held, or at the end; a second one
        is raised at once.
        """
        outcome: Any = None
        error: BaseException | None = None
        interrupt: KeyboardInterrupt | None = None
        while True:
            try:
                step = flow.send(outcome) if error is None else flow.throw(error)
                outcome = error = None  # a large outcome lives no longer than the flow keeps it
            except StopIteration as stop:
                if interrupt is not None:
                    raise interrupt from None
                return stop.value  # type: ignore[no-any-return]
            except Exception as raised:
                if interrupt is None:
                    raise
                interrupt.add_note(str(raised))  # such as that something may run still
                raise interrupt from raised
            try:
                if isinstance(step, Held):
                    work = _Background(self._perform, step.step)
                    interrupt = work.wait() or interrupt
                    outcome = work.take()
                elif interrupt is not None:
                    error, interrupt = interrupt, None
                else:
                    outcome = self._perform(step)
            except BaseException as raised:  # noqa: BLE001 - the flow decides
                error = raised

    def _perform(self, step: Request | Pause | Work | Fetch) -> Any:  # noqa: ANN401 - a flow takes what it asked for
        if isinstance(step, Request):
            return self._endpoint.blotted(self._send(step))
        if isinstance(step, Fetch):
            return self._endpoint.blotted(self._fetch(step))
        return step.run() if isinstance(step, Work) else self._runtime.sleep(step.seconds)

    def _send(self, request: Request) -> Outcome:
        http = self._connections.http
        self._endpoint.require_open(closed=http.is_closed)
        late = lateness(request.timeout, self._runtime.clock)
        try:
            response = http.send(self._endpoint.build(request), stream=True)
            try:
                return self._take_in(response, late)
            finally:
                response.close()
        except httpx.RequestError as error:
            return _failure(error)

    def _take_in(self, response: httpx.Response, late: Callable[[], bool] = lambda: False) -> Outcome:
        intake = self._endpoint.intake(response, late)
        if intake.wants_more:
            for piece in response.iter_bytes():
                if not intake.add(piece):
                    break
        return intake.outcome()

    def _fetch(self, step: Fetch) -> Outcome:
        http = self._connections.http
        self._endpoint.require_open(closed=http.is_closed)
        try:
            response = http.send(self._endpoint.build(step.request), stream=True)
            try:
                if not response.is_success:
                    return self._take_in(response)
                take = step.begin(_head_of(response))
                if take is not None:
                    for piece in response.iter_raw(_PIECE_BYTES):
                        take(piece)
                        step.after()
                return _head_of(response)
            finally:
                response.close()
        except httpx.RequestError as error:
            return _failure(error)


class _Background:
    """A step on a thread of its own, so that Ctrl-C, which only the main thread hears, does not cut it short."""

    def __init__(self, run: Callable[[Any], Any], step: object) -> None:
        self._run, self._step = run, step
        self._claim, self._done = threading.Lock(), threading.Event()
        self._outcome: tuple[Any, BaseException | None] = (None, None)

    def _work(self) -> None:
        if not self._claim.acquire(blocking=False):
            return
        try:
            self._outcome = self._run(self._step), None
        except BaseException as raised:  # noqa: BLE001 - given to the flow
            self._outcome = None, raised
        finally:
            self._done.set()

    def wait(self) -> KeyboardInterrupt | None:
        """Do it to its end; give the Ctrl-C that came meanwhile, and raise the second one."""
        interrupt: KeyboardInterrupt | None = None
        while not self._done.is_set():
            try:
                if not self._claim.locked():  # Ctrl-C may come while the thread is started: only one does the work
                    threading.Thread(target=self._work, name="samplekit held step", daemon=True).start()
                self._done.wait()
            except KeyboardInterrupt as raised:
                if interrupt is not None:
                    raised.add_note("interrupted twice: what was being created or stopped may run still, and cost")
                    raise
                interrupt = raised
                logger.warning("interrupted: the answer of the service is waited for first; Ctrl-C again gives up")
        return interrupt

    def take(self) -> Any:  # noqa: ANN401 - a flow takes what it asked for
        """Give what the step gave, or raise what it raised; neither it nor the step is kept."""
        value, error = self._outcome
        self._outcome, self._step = (None, None), None
        if error is not None:
            raise error
        return value


class AsyncDriver:
    """Run flows to their end on the running event loop."""

    def __init__(self, http: httpx.AsyncClient, endpoint: Endpoint, runtime: Runtime) -> None:
        self._http, self._endpoint, self._runtime = http, endpoint, runtime
        self._bond = LoopBond(endpoint.base_url)

    async def run(self, flow: Flow[T]) -> T:
        """Do what the flow asks for until it returns; what goes wrong is raised inside it, so that it can clean up.

        A cancellation that comes during a held step is raised at the next step that is not held, or at the end.

        Raises:
            ServiceError: it was used on another event loop before.
        """
        self._bond.require()
        outcome: Any = None
        error: BaseException | None = None
        cancelled: asyncio.CancelledError | None = None
        while True:
            try:
                step = flow.send(outcome) if error is None else flow.throw(error)
                outcome = error = None  # a large outcome lives no longer than the flow keeps it
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
                    cancelled = await _finish(work, step.patience) or cancelled
                    outcome = work.result()
                    del work  # it keeps the outcome
                elif cancelled is not None:
                    error, cancelled = cancelled, None
                else:
                    outcome = await self._perform(step)
            except BaseException as raised:  # noqa: BLE001 - the flow decides
                error = raised

    async def _perform(self, step: Request | Pause | Work | Fetch) -> Any:  # noqa: ANN401
        if isinstance(step, Request):
            return self._endpoint.blotted(await self._send(step))
        if isinstance(step, Fetch):
            return self._endpoint.blotted(await self._fetch(step))
        if isinstance(step, Work):
            return await asyncio.to_thread(step.run) if step.large else step.run()
        return await self._runtime.async_sleep(step.seconds)

    async def _send(self, request: Request) -> Outcome:
        self._endpoint.require_open(closed=self._http.is_closed)
        late = lateness(request.timeout, self._runtime.clock)
        try:
            response = await self._http.send(self._endpoint.build(request), stream=True)
            try:
                return await self._take_in(response, late)
            finally:
                await response.aclose()
        except httpx.RequestError as error:
            return _failure(error)

    async def _take_in(self, response: httpx.Response, late: Callable[[], bool] = lambda: False) -> Outcome:
        intake = self._endpoint.intake(response, late)
        if intake.wants_more:
            async for piece in response.aiter_bytes():
                if not intake.add(piece):
                    break
        return intake.outcome()

    async def _fetch(self, step: Fetch) -> Outcome:
        self._endpoint.require_open(closed=self._http.is_closed)
        try:
            response = await self._http.send(self._endpoint.build(step.request), stream=True)
            try:
                if not response.is_success:
                    return await self._take_in(response)
                take = step.begin(_head_of(response))
                if take is not None:
                    async for piece in response.aiter_raw(_PIECE_BYTES):
                        await asyncio.to_thread(take, piece)
                        step.after()
                return _head_of(response)
            finally:
                await response.aclose()
        except httpx.RequestError as error:
            return _failure(error)


async def _finish(work: asyncio.Future[Any], patience: float | None) -> asyncio.CancelledError | None:
    """Wait until work is done, however often this task is cancelled meanwhile; give the last cancellation.

    From the first one on it is waited for no longer than ``patience`` (seconds); then the work is cancelled, too.
    """
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as raised:
            if cancelled is None and patience is not None:
                asyncio.get_running_loop().call_later(patience, work.cancel)
            cancelled = raised
    return cancelled


def _head_of(response: httpx.Response) -> Reply:
    """Give status and headers of an answer whose body goes elsewhere."""
    return Reply(response.status_code, headers_of(response), b"")


def _failure(error: httpx.RequestError) -> Failure:
    kind = type(error).__name__
    sent = not isinstance(error, _NOT_SENT)
    late = isinstance(error, httpx.TimeoutException)
    reason = f"the connection failed ({kind}: {error})"
    if late:
        reason = f"no answer came in time ({kind})" if sent else f"no connection could be had in time ({kind})"
    return Failure(reason, sent=sent, timed_out=late and sent)
