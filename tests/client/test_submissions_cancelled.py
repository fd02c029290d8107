"""A call that a cancellation cuts short: what the service accepted of it is named, tracked and can be picked up."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from accepting_service import LIMIT, Service, submit, told, tracked
from service_double import KEY, OPERATIONS, SESSION, URL, FakeTime, operation

from samplekit.client import AsyncClient

TURNS = 3  # of the event loop that each request takes before and again after the service acts on it


class SlowTransport(httpx.AsyncBaseTransport):
    def __init__(self, double):
        self.double = double

    async def handle_async_request(self, request):
        await request.aread()
        await turns(TURNS)
        response = self.double(request)
        await turns(TURNS)
        return response


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


async def cancel_after(service, number, *, again):
    """Cancel a submission after so many turns; give whether it was over by then, and the keys it told of."""
    transport, clock = SlowTransport(service.double), FakeTime()
    async with AsyncClient.with_runtime(clock.runtime(), base_url=URL, api_key=KEY, transport=transport) as client:
        session = await client.attach(SESSION)
        task = asyncio.create_task(submit(session))
        await turns(number)
        ended = task.done()
        for _ in range(again + 1):
            task.cancel()
            await turns(1)
        if ended:
            found, named = {}, (await task).idempotency_key.split(",")
        else:
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            found = named = told(caught.value)
        assert set(tracked(session)) == set(service.keys)
        for identity, kind in found.values():
            assert (await session.operation(identity, kind).result()).loss == 1.0
        return ended, set(named)


@pytest.mark.parametrize("again", [0, 9])
@pytest.mark.parametrize("how", ["inline", "uploaded", "in parts"])
def test_a_submission_cancelled_at_any_step_tells_of_all_that_was_accepted(monkeypatch, how, again):
    monkeypatch.setattr("samplekit.wire.requests.INLINE_LIMIT_BYTES", 10 if how == "uploaded" else 10**6)
    monkeypatch.setattr("samplekit.client.drivers.asyncio.to_thread", at_once)

    async def main():
        accepted = set[int]()
        for number in range(1000):
            service = Service(limit=LIMIT if how == "in parts" else 10**9)
            ended, named = await cancel_after(service, number, again=again)
            assert named == set(service.keys), f"cancelled after {number} turns"
            accepted.add(len(named))
            if ended:
                return accepted
        raise AssertionError("the submission never ends")

    assert asyncio.run(main()) == ({0, 1, 2, 3, 4} if how == "in parts" else {0, 1})


async def at_once(run, *args):
    await turns(1)
    return run(*args)


async def within(seconds, call):
    async with asyncio.timeout(seconds):
        return await call


@pytest.mark.parametrize("limited", [within, lambda seconds, call: asyncio.wait_for(call, seconds)])
def test_a_timeout_around_a_submission_tells_of_it_and_one_gradient_is_accepted(limited, caplog):
    service = Service()

    class Slow(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request):
            await request.aread()
            response = service.double(request)
            await asyncio.sleep(0.15 if "/operations/" in request.url.path and request.method == "POST" else 0)
            return response

    async def main():
        async with AsyncClient(base_url=URL, api_key=KEY, transport=Slow()) as client:
            session = await client.attach(SESSION)
            with pytest.raises(TimeoutError) as caught:
                await limited(0.05, submit(session))
            ((key, (identity, kind)),) = told(caught.value).items()
            assert {key: identity} == service.keys
            assert f"pick up session.operation('{identity}', '{kind}'), key {key}" in caplog.text
            return await session.operation(identity, kind).result()

    assert asyncio.run(main()).loss == 1.0
    assert len(service.keys) == 1


@pytest.mark.parametrize("again", [0, 9])
def test_a_cancelled_submission_that_is_never_answered_ends_all_the_same_and_names_its_key(monkeypatch, caplog, again):
    monkeypatch.setattr("samplekit.client.flows._PATIENCE", 0.02)
    service, ended = Service(), []

    class Silent(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request):
            await request.aread()
            response = service.double(request)
            if service.keys:
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append(request.method)
            return response

    async def main():
        async with AsyncClient(base_url=URL, api_key=KEY, transport=Silent()) as client:
            task = asyncio.create_task(submit(await client.attach(SESSION)))
            while not service.keys:
                await turns(1)
            for _ in range(again + 1):
                task.cancel()
                await turns(1)
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert task.cancelled()
            return str(caught.value.__notes__)

    notes = asyncio.run(main())
    (key,) = service.keys
    assert ended == ["POST"]
    assert f"may have accepted it under idempotency key {key}" in notes
    assert key in caplog.text


def test_leaving_a_session_waits_for_what_a_cancelled_submission_left_and_tells_that_it_failed():
    service = Service()
    service.double.answer(f"GET {OPERATIONS}/.*", {**operation("FAILED", error={"message": "boom"}), "id": "op-0"})

    async def main():
        transport = SlowTransport(service.double)
        async with (
            AsyncClient.with_runtime(FakeTime().runtime(), base_url=URL, api_key=KEY, transport=transport) as client,
            client.session(base_model="m") as session,
        ):
            task = asyncio.create_task(session.optim_step(learning_rate=1.0))
            while not service.keys:
                await turns(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with pytest.warns(RuntimeWarning, match="op-0 failed.*boom"):
        asyncio.run(main())
