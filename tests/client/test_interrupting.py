"""Ctrl-C in a blocking program leaves nothing that costs, at whatever request it comes."""

from __future__ import annotations

import os
import re
import signal
import time

import httpx
import pytest
from service_double import KEY, OPERATIONS, URL, Double, FakeTime, operation

from samplekit.client import Client

pytestmark = pytest.mark.usefixtures("ctrl_c")

CREATED = re.compile(r"POST .*/(model-resources|training-sessions)")
STOPPED = re.compile(r"POST .*/(model-resources|training-sessions)/[^/]*/stop")
SETTLING = 0.02  # seconds in which the main thread hears of a signal


class Interrupted(httpx.BaseTransport):
    """Interrupts the process at one request, before or after the service acts on it; counts what costs."""

    def __init__(self, double, number, when, times=1):
        self.double, self.number, self.when, self.times = double, number, when, times
        self.running, self.asked = set[str](), 0

    def handle_request(self, request):
        request.read()
        call = f"{request.method} {request.url.path}"
        self.asked += 1
        here = self.asked == self.number
        if here and self.when == "before":
            self.interrupt()
        response = self.double(request)
        if created := CREATED.fullmatch(call):
            self.running |= {created[1]}
        if (stopped := STOPPED.fullmatch(call)) and response.status_code == 200:
            self.running -= {stopped[1], "training-sessions"}  # resources take their sessions with them
        if here and self.when == "after":
            self.interrupt()
        return response

    def interrupt(self):
        for _ in range(self.times):
            os.kill(os.getpid(), signal.SIGINT)  # as a terminal does: heard by the main thread
            time.sleep(SETTLING)


def trained(client):
    with client.session(base_model="m") as session:
        session.optim_step(learning_rate=1.0).result()


def resumed(client):
    with client.session(base_model="m", resume_from="ck-1"):
        pass


def resources(client):
    with client.create_resources(base_model="m"):
        pass


def shared_resources(client):
    with client.create_resources(base_model="m") as made, made.session() as session:
        session.optim_step(learning_rate=1.0).result()


def attached(client):
    with client.attach_resources("res-1").session():
        pass


def run(transport, use=trained):
    with Client.with_runtime(FakeTime().runtime(), base_url=URL, api_key=KEY, transport=transport) as client:
        use(client)


def prepared():
    double = Double()
    double.answer(
        "GET .*/checkpoints/ck-1", {"id": "ck-1", "base_model": "m", "checkpoint_type": "CHECKPOINT_TYPE_TRAINING"}
    )
    double.answer(f"POST {OPERATIONS}/.*", operation("PENDING"))
    double.answer(f"GET {OPERATIONS}/.*", operation("RUNNING"), operation("COMPLETED", {"step": 1}))
    return double


def num_requests(use):
    transport = Interrupted(prepared(), 0, "before")
    run(transport, use)
    return transport.asked


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("use", "least"), [(trained, 9), (resumed, 8), (resources, 3), (shared_resources, 9), (attached, 6)]
)
def test_an_interruption_at_any_request_leaves_nothing_running(when, use, least):
    total = num_requests(use)
    assert total >= least
    for number in range(1, total + 1):
        transport = Interrupted(prepared(), number, when)
        with pytest.raises(KeyboardInterrupt):
            run(transport, use)
        assert transport.asked >= number
        assert not transport.running, f"interrupted {when} request {number}, {transport.running} were left running"


def test_a_second_interruption_during_a_create_gives_up_and_says_what_it_means():
    transport = Interrupted(prepared(), 2, "after", times=2)
    with pytest.raises(KeyboardInterrupt) as caught:
        run(transport)
    assert "may run still" in str(caught.value.__notes__)


def test_an_interrupted_create_that_fails_says_how_to_look_for_it():
    double = prepared()
    double.answer("POST .*/model-resources", httpx.Response(500))
    with pytest.raises(KeyboardInterrupt) as caught:
        run(Interrupted(double, 2, "before"))
    assert "look for it with GET" in str(caught.value.__notes__)
    assert len(double.calls("POST .*/model-resources")) == 1
