"""A connection that answers one request twice shifts every later answer by one: none is taken for another call's."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest
from fault_proxy import FaultProxy
from service_double import OPERATIONS, READY, RUNNING, SESSION, STATUS, operation

import samplekit as sk
from samplekit.client import AsyncClient, Client, Runtime
from samplekit.server import LocalService

SUBMIT = f"POST {OPERATIONS}/.*"
CREATE = "POST .*/training-sessions"
ONE, TWO = ({"id": f"op-{n}", "status": STATUS + "COMPLETED", "output": {"step": n}} for n in (1, 2))
LONG = sk.build_sample(range(60_001), [1] * 60_001)
EARLIER = "of an earlier call"


@pytest.mark.parametrize("shifted", [[ONE], [ONE] * 3, [RUNNING], [READY], [RUNNING, READY, ONE]])
def test_a_submission_is_not_given_what_was_answered_before(side, shifted):
    side.double.answer(SUBMIT, ONE, *shifted, TWO)
    session = side.session()
    first, second = session.optim_step(learning_rate=1.0), session.optim_step(learning_rate=1.0)
    assert (first.id, first.result(), second.id, second.result()) == ("op-1", 1, "op-2", 2)
    assert len({item.headers["idempotency-key"] for item in side.double.calls(SUBMIT)}) == 2


def test_a_submission_that_is_answered_by_another_calls_operation_alone_is_a_named_error(side):
    side.double.answer(SUBMIT, ONE)
    session = side.session()
    first = session.optim_step(learning_rate=1.0)
    with pytest.raises(sk.ConnectionFailedError, match=f"operation {EARLIER}.*idempotency key was") as caught:
        session.optim_step(learning_rate=1.0)
    assert caught.value.idempotency_key != first.idempotency_key
    assert session.optim_step(learning_rate=1.0, idempotency_key=first.idempotency_key).id == "op-1"


def test_sessions_of_one_client_may_number_their_operations_alike(side):
    side.double.answer("GET .*/training-sessions/sess-2", {**RUNNING, "id": "sess-2"})
    side.double.answer("POST .*/optim-step", ONE)
    client = side.client()
    steps = [client.attach(name).optim_step(learning_rate=1.0) for name in (SESSION, "sess-2")]
    assert [step.id for step in steps] == ["op-1", "op-1"]


@pytest.mark.parametrize("shifted", [RUNNING, READY, {**operation("RUNNING"), "id": "sess-9"}])
def test_a_new_session_is_not_one_that_was_there_before(side, shifted):
    side.double.answer(CREATE, RUNNING, shifted)
    resources = side.client().attach_resources("res-1")
    resources.session().detach()
    with pytest.raises(sk.ConnectionFailedError, match="outcome unknown"):
        resources.session()
    assert not side.double.calls(".*/stop")


@pytest.mark.parametrize("shifted", [READY, RUNNING])
def test_new_resources_are_not_those_that_were_there_before(side, shifted):
    """What is taken for one's own is stopped in the end."""
    side.double.answer("POST .*/model-resources", shifted)
    client = side.client()
    client.attach_resources("res-1")
    with pytest.raises(sk.ConnectionFailedError, match="outcome unknown"), client.session(base_model="m"):
        pass
    assert not side.double.calls(".*/stop")


def test_what_a_service_did_not_know_may_be_the_name_of_what_it_creates(side):
    """As where one that numbers them has begun anew."""
    side.double.answer(f"GET .*/training-sessions/{SESSION}", httpx.Response(404), RUNNING)
    client = side.client()
    with pytest.raises(sk.StatusError, match="404"):
        client.attach(SESSION)
    with client.session(base_model="m") as session:
        assert session.id == SESSION


def test_a_body_is_not_put_where_another_one_is(side):
    places = [{"payload_id": f"p{n}", "upload_url": f"https://store.example/p{n}"} for n in (1, 2)]
    side.double.answer("POST .*/upload-url", places[0], *places)
    side.double.answer("PUT /p.*", {})
    side.double.answer(SUBMIT, ONE, TWO)
    session = side.session()
    for _ in range(2):
        session.forward_backward([LONG], sk.CrossEntropy())
    assert [item.body["payload_id"] for item in side.double.calls(SUBMIT)] == ["p1", "p2"]
    assert [item.path for item in side.double.calls("PUT .*")] == ["/p1", "/p2"]


def test_a_result_is_not_fetched_from_where_another_one_is(side):
    one, two = ({**item, "output": {"payload_id": f"p{n}"}} for n, item in enumerate((ONE, TWO), 1))
    side.double.answer(SUBMIT, one, two)
    places = [{"download_url": f"https://store.example/p{n}?sig=secret"} for n in (1, 2)]
    side.double.answer("POST .*/p1/download-url", places[0])
    side.double.answer("POST .*/p2/download-url", places[0], places[1])
    for n in (1, 2):
        side.double.answer(f"GET /p{n}", {"step": n})
    session = side.session()
    assert [session.optim_step(learning_rate=1.0).result() for _ in range(2)] == [1, 2]
    assert len(side.double.calls("GET /p.*")) == 2


def test_a_place_of_another_result_is_a_named_error_without_the_url(side):
    one, two = ({**item, "output": {"payload_id": f"p{n}"}} for n, item in enumerate((ONE, TWO), 1))
    side.double.answer(SUBMIT, one, two)
    side.double.answer("POST .*/download-url", {"download_url": "https://store.example/p1?sig=secret"})
    side.double.answer("GET /p1", {"step": 1})
    session = side.session()
    assert session.optim_step(learning_rate=1.0).result() == 1
    with pytest.raises(sk.ConnectionFailedError, match=f"payload {EARLIER}") as caught:
        session.optim_step(learning_rate=1.0).result()
    assert "secret" not in str(caught.value)


class Doubling:
    """Answers what begins and holds like this twice."""

    def __init__(self, start, word):
        self.start, self.word = start, word

    def fault(self, line):
        return "doubled" if line.startswith(self.start) and self.word in line else None


HASTY = Runtime(sleep=lambda _: time.sleep(0.02), async_sleep=lambda _: asyncio.sleep(0.02))
SAMPLES = [sk.build_sample(range(100 + n, 141 + n), [1] * 41) for n in range(6)]


@pytest.mark.parametrize("side_kind", ["blocking", "async"])
@pytest.mark.parametrize("line", [("POST", "/operations/"), ("GET", "/operations/"), ("", "/operations/")])
def test_results_are_given_to_their_own_calls_over_connections_that_answer_twice(side_kind, line):
    """The second answer is on the connection by the time of the next request, as one segment carries both."""

    async def scored_async(url, session_id):
        async with AsyncClient.with_runtime(HASTY, base_url=url) as client:
            session = await client.attach(session_id)
            steps = [await session.forward([item], sk.CrossEntropy()) for item in SAMPLES]
            return [(step.id, (await step).loss) for step in steps]

    def scored(url, session_id):
        with Client.with_runtime(HASTY, base_url=url) as client:
            session = client.attach(session_id)
            steps = [session.forward([item], sk.CrossEntropy()) for item in SAMPLES]
            return [(step.id, step.result().loss) for step in steps]

    with (
        LocalService() as service,
        Client(base_url=service.url) as client,
        FaultProxy(service.url) as proxy,
        client.session(lora_rank=2) as session,
    ):
        plain = [loss for _, loss in scored(service.url, session.id)]
        proxy.weather = Doubling(*line)
        if side_kind == "blocking":
            twice = scored(proxy.url, session.id)
        else:
            twice = asyncio.run(scored_async(proxy.url, session.id))
        assert proxy.met["doubled"]
    assert [loss for _, loss in twice] == plain
    assert len({name for name, _ in twice}) == len(SAMPLES)
