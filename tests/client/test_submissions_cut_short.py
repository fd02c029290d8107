"""A call that Ctrl-C or a cancellation cuts short: what the service accepted of it is named, tracked and picked up."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
import warnings

import httpx
import pytest
from service_double import KEY, OPERATIONS, SESSION, STATUS, URL, Double, FakeTime, operation

import samplekit as sk
from samplekit.client import AsyncClient, Client
from samplekit.client.flows import request_for
from samplekit.wire import names

TURNS = 3  # of the event loop that each request takes before and again after the service acts on it
SETTLING = 0.02  # seconds in which the main thread hears of a signal
LIMIT = 1000  # bytes of a body, where bodies are refused for their size
SAMPLES = [sk.build_sample(range(100 + n, 141 + n), [1] * 41) for n in range(4)]
PICK_UP = re.compile(r"session\.operation\('([^']+)', '([^']+)'\), key (\S+?)(?:;|$)")


class Service:
    """Accepts one operation a key, each under an id of its own; stores what is uploaded."""

    def __init__(self, *, limit=10**9, first=()):
        self.limit, self.first = limit, list(first)
        self.keys = dict[str, str]()
        self.double = Double()
        self.double.answer(f"POST {OPERATIONS}/.*", self.submit)
        self.double.answer(f"GET {OPERATIONS}/.*", self.look)
        self.double.answer("POST .*/upload-url", {"payload_id": "p1", "upload_url": "https://store.example/up"})
        self.double.answer("PUT /up", {})

    def submit(self, request):
        if len(request.content) > self.limit:
            return httpx.Response(413, text="too large")
        key = request.headers["idempotency-key"]
        identity = self.keys.setdefault(key, f"op-{len(self.keys)}")
        if self.first:
            return self.first.pop(0)
        return httpx.Response(200, json={"id": identity, "status": STATUS + "PENDING"})

    def look(self, request):
        return {**operation("COMPLETED", {"loss": 1.0}), "id": request.url.path.rpartition("/")[2]}


def submit(session):
    return session.forward_backward(SAMPLES, sk.CrossEntropy())


def told(error):
    """What the notes of an error, and of what it was raised from, say was accepted: {key: (id, kind)}."""
    found = dict[str, tuple[str, str]]()
    while error is not None:
        for note in getattr(error, "__notes__", ()):
            found |= {key: (identity, kind) for identity, kind, key in PICK_UP.findall(note)}
        error = error.__cause__
    return found


def tracked(session):
    return [item.key for item in session._uncollected._accepted]


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


class Interrupted(httpx.BaseTransport):
    """Interrupts the process at one request, before or after the service acts on it."""

    def __init__(self, double, number, when, times=1):
        self.double, self.number, self.when, self.times, self.asked = double, number, when, times, 0

    def handle_request(self, request):
        request.read()
        self.asked += 1
        here = self.asked == self.number
        if here and self.when == "before":
            self.interrupt()
        response = self.double(request)
        if here and self.when == "after":
            self.interrupt()
        return response

    def interrupt(self):
        for _ in range(self.times):
            os.kill(os.getpid(), signal.SIGINT)  # as a terminal does: heard by the main thread
            time.sleep(SETTLING)


@pytest.fixture
def ctrl_c():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt(service, number, when, times=1):
    """Interrupt a submission at one of its requests; give the session, and what came of it."""
    transport = Interrupted(service.double, 0, when, times)
    client = Client.with_runtime(FakeTime().runtime(), base_url=URL, api_key=KEY, transport=transport)
    session = client.attach(SESSION)
    transport.number = transport.asked + number
    try:
        return session, submit(session), None
    except KeyboardInterrupt as error:
        return session, None, error


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("how", "total"), [("inline", 1), ("uploaded", 3), ("in parts", 7)])
def test_a_submission_interrupted_at_any_request_tells_of_all_that_was_accepted(monkeypatch, how, total, when):
    monkeypatch.setattr("samplekit.wire.requests.INLINE_LIMIT_BYTES", 10 if how == "uploaded" else 10**6)
    for number in range(1, total + 1):
        service = Service(limit=LIMIT if how == "in parts" else 10**9)
        session, step, error = interrupt(service, number, when)
        assert step is None
        assert set(told(error)) == set(service.keys) == set(tracked(session)), f"interrupted {when} {number}"
        for identity, kind in told(error).values():
            assert session.operation(identity, kind).result().loss == 1.0
    service = Service(limit=LIMIT if how == "in parts" else 10**9)
    assert interrupt(service, total + 1, when)[2] is None  # every request was met


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_second_interruption_gives_up_and_says_that_the_outcome_is_unknown_under_its_key(when):
    service = Service()
    _, _, error = interrupt(service, 1, when, times=2)
    time.sleep(SETTLING)  # the thread that was given up ends by itself
    (key,) = service.keys
    assert f"may have accepted it under idempotency key {key}" in str(error.__notes__)
    assert told(error) == {}


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("answer", [httpx.Response(503), httpx.Response(200, text="{")])
def test_an_interruption_whose_answer_was_lost_does_not_try_again_and_names_the_key(answer):
    service = Service(first=[answer])
    _, _, error = interrupt(service, 1, "before")
    (key,) = service.keys
    assert f"outcome unknown: no answer had come to: submit forward-backward to session {SESSION}" in str(
        error.__notes__
    )
    assert key in str(error.__notes__)


def test_a_call_that_is_not_cut_short_says_nothing():
    with (
        warnings.catch_warnings(),
        Client(base_url=URL, api_key=KEY, transport=httpx.MockTransport(Service().double)) as c,
    ):
        warnings.simplefilter("error")
        assert submit(c.attach(SESSION)).result().loss == 1.0


def test_a_request_has_a_key_where_its_row_says_so_and_nowhere_else():
    with pytest.raises(ValueError, match="takes an idempotency key"):
        request_for(names.SUBMIT_OPERATION, "submit", session_id="s", kind="optim-step")
    with pytest.raises(ValueError, match="takes no idempotency key"):
        request_for(names.CREATE_SESSION, "create a session", key="k")
