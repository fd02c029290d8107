"""A call that Ctrl-C cuts short: what the service accepted of it is named, tracked and can be picked up."""

from __future__ import annotations

import os
import signal
import time
import warnings

import httpx
import pytest
from accepting_service import LIMIT, Service, submit, told, tracked
from service_double import KEY, SESSION, URL, FakeTime

from samplekit.client import Client
from samplekit.client.flows import request_for
from samplekit.wire import names

SETTLING = 0.02  # seconds in which the main thread hears of a signal


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
