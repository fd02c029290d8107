"""A cancelled task leaves nothing that costs, at whatever step and however often it is cancelled."""

from __future__ import annotations

import asyncio
import re

import httpx
import pytest
from service_double import KEY, OPERATIONS, SESSION, STATUS, URL, Double, FakeTime, operation

from samplekit.client import AsyncClient

CREATED = re.compile(r"POST .*/(model-resources|training-sessions)")
STOPPED = re.compile(r"POST .*/(model-resources|training-sessions)/[^/]*/stop")
TURNS = 4  # of the event loop that each request takes before and again after the service acts on it


class SlowTransport(httpx.AsyncBaseTransport):
    """Acts on a request after some turns of the loop, and answers after some more; counts what costs."""

    def __init__(self, double):
        self.double, self.running = double, set[str]()

    async def handle_async_request(self, request):
        await request.aread()
        await turns(TURNS)
        call = f"{request.method} {request.url.path}"
        response = self.double(request)
        if created := CREATED.fullmatch(call):
            self.running |= {created[1]}
        if (stopped := STOPPED.fullmatch(call)) and response.status_code == 200:
            self.running -= {stopped[1], "training-sessions"}  # resources take their sessions with them
        await turns(TURNS)
        return response


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


async def slow_pause(seconds):
    await turns(3)


async def session(client):
    async with client.session(base_model="m"):
        pass


async def trained(client):
    async with client.session(base_model="m") as session:
        await (await session.optim_step(learning_rate=1.0)).result()


async def resumed(client):
    async with client.session(base_model="m", resume_from="ck-1"):
        pass


async def resources(client):
    async with await client.create_resources(base_model="m"):
        pass


async def shared_resources(client):
    async with await client.create_resources(base_model="m") as made, await made.session() as session:
        await (await session.optim_step(learning_rate=1.0)).result()


async def attached(client):
    async with await (await client.attach_resources("res-1")).session():
        pass


async def cancel_after(double, number, use, *, again):
    """Cancel a task that creates, uses and leaves something, after so many turns; give what still runs."""
    transport, time = SlowTransport(double), FakeTime()
    time.async_sleep = slow_pause
    client = AsyncClient.with_runtime(time.runtime(), base_url=URL, api_key=KEY, transport=transport)

    task = asyncio.create_task(use(client))
    await turns(number)
    ended = task.done()
    task.cancel()
    for _ in range(again):
        await turns(1)
        task.cancel()
    outcome = (await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), 10))[0]
    assert ended or isinstance(outcome, asyncio.CancelledError)
    await client.close()
    return transport.running, ended


def prepared():
    double = Double()
    pending = {"id": "op-1", "status": STATUS + "PENDING"}
    waiting = {"id": "res-1", "status": "MODEL_RESOURCES_STATUS_CREATING", "base_model": "m"}
    ready = {**waiting, "status": "MODEL_RESOURCES_STATUS_READY"}
    stopping, stopped = ({**waiting, "status": f"MODEL_RESOURCES_STATUS_{name}"} for name in ("STOPPING", "STOPPED"))
    is_stopped = []

    def state(request):
        return [stopping, stopped][min(len(is_stopped), 2) - 1] if is_stopped else ready

    def stop(request):
        is_stopped.append(1)
        return stopping

    def look(request):
        if is_stopped:
            is_stopped.append(1)
        return state(request)

    double.answer("POST .*/model-resources", waiting)
    double.answer("GET .*/model-resources/res-1", look)
    double.answer("POST .*/model-resources/res-1/stop", httpx.Response(503), stop)
    double.answer(
        "GET .*/checkpoints/ck-1", {"id": "ck-1", "base_model": "m", "checkpoint_type": "CHECKPOINT_TYPE_TRAINING"}
    )
    double.answer(f"POST {OPERATIONS}/.*", pending)
    double.answer(f"GET {OPERATIONS}/optim-step/op-1", pending, operation("COMPLETED", {"step": 1}))
    return double


@pytest.mark.parametrize("again", [0, 1, 60])
@pytest.mark.parametrize("use", [session, trained, resumed, resources, shared_resources, attached])
def test_a_task_cancelled_at_any_step_leaves_nothing_running(again, use):
    async def main():
        for number in range(1000):
            running, ended = await cancel_after(prepared(), number, use, again=again)
            assert not running, f"cancelled after {number} turns, {running} were left running"
            if ended:
                return number
        raise AssertionError("the task never ends")

    assert asyncio.run(main()) > 30  # every step was met


@pytest.mark.parametrize("status", [429, 500])
def test_a_create_that_is_refused_while_cancelled_is_not_tried_again(status):
    double = Double()
    double.answer("POST .*/model-resources", httpx.Response(status))

    async def main():
        transport = SlowTransport(double)
        async with AsyncClient(base_url=URL, api_key=KEY, transport=transport) as client:
            task = asyncio.create_task(client.session(base_model="m")._open())
            while not double.calls("POST .*/model-resources"):
                await turns(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            if status == 500:  # it may have been created all the same
                assert "look for it with GET" in str(caught.value.__notes__)

    asyncio.run(main())
    assert len(double.calls("POST .*/model-resources")) == 1
    assert not double.calls(f"POST .*/{SESSION}/stop")
