"""as_completed over operations of several clients: each is asked for at its own service, with its own key."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from service_double import FakeTime, Side, operation

import samplekit as sk
from samplekit.client import AsyncClient, Client, as_completed

SESSION = "TRAINING_SESSION_STATUS_RUNNING"


class Place:
    """A service of its own, with one session and one operation that is finished after so many polls."""

    def __init__(self, side, name, num_polls, time):
        self.name, self.seen = name, []
        double = type(side.double)()
        session = {"id": f"s-{name}", "status": SESSION, "base_model": "m", "model_resources_id": "res-1"}
        double.answer("GET .*/training-sessions/[^/]+", session)
        double.answer("POST .*/operations/.*", {**operation("PENDING"), "id": f"op-{name}"})
        polls = [{**operation("RUNNING"), "id": f"op-{name}"}] * num_polls
        done = {**operation("COMPLETED", {"step": num_polls}), "id": f"op-{name}"}
        double.answer(f"GET .*/s-{name}/operations/optim-step/op-{name}", *polls, done)

        def answer(request):
            self.seen.append((request.url.host, request.headers["authorization"]))
            return double(request)

        cls = Client if side.kind == "blocking" else AsyncClient
        made = cls.with_runtime(
            time.runtime(), base_url=f"https://{name}.example", api_key=f"key-of-{name}",
            transport=httpx.MockTransport(answer),
        )  # fmt: skip
        self.step = side.wrap(made).attach(f"s-{name}").optim_step(learning_rate=1.0)


def finished(side, steps):
    if side.kind == "blocking":
        return [(item.id, item.result()) for item in as_completed(steps)]

    async def collect():
        return [(item.id, await item.result()) async for item in as_completed([item._inner for item in steps])]

    return side.loop.run_until_complete(collect())


def test_operations_of_several_clients_are_asked_for_each_at_its_own(side):
    time = FakeTime()
    places = [Place(side, "a", 6, time), Place(side, "b", 0, time), Place(side, "c", 2, time)]
    assert finished(side, [place.step for place in places]) == [("op-b", 0), ("op-c", 2), ("op-a", 6)]
    for place in places:
        assert set(place.seen) == {(f"{place.name}.example", f"Bearer key-of-{place.name}")}
    assert time.pauses


def step_of(side):
    side.double.answer("POST .*/operations/.*", operation("PENDING"))
    step = side.session().optim_step(learning_rate=1.0)
    return step if side.kind == "blocking" else step._inner


def test_blocking_and_async_operations_are_not_mixed():
    loop = asyncio.new_event_loop()
    blocking, awaited = step_of(Side("blocking", None)), step_of(Side("async", loop))
    loop.close()
    for steps, name in (([blocking, awaited], "an Operation"), ([awaited, blocking], "an AsyncOperation")):
        with pytest.raises(sk.SampleError, match=rf"operations\[1\] is .*, expected {name}: .*apart"):
            as_completed(steps)


@pytest.mark.parametrize("odd", [None, 3, "op-1", lambda: None])
def test_what_is_no_operation_is_refused_at_once(odd):
    with pytest.raises(sk.SampleError, match=r"operations\[0\] is .*, expected an Operation: await"):
        as_completed([odd])
