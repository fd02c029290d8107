"""64 clients at once: no operation is lost or done twice, and memory does not grow with time."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from plain_caller import opened_session

from samplekit.server import LocalService
from samplekit.wire import names as wire

CLIENTS = 64
ADAM = {"adam_params": {"learning_rate": 1e-3}}


def one_client(url, body, number, wanted, together):
    """Train one session while ``wanted(steps)`` holds; give the steps it counted and the steps it was told."""
    limits = httpx.Limits(max_connections=1)
    with (
        httpx.Client(base_url=url, timeout=120, limits=limits) as http,
        opened_session(http, lora={"rank": 2, "seed": number}) as session,
    ):
        together.wait(120)  # all sessions are open
        told = []
        while wanted(len(told)):
            accepted = [session.submit("forward-backward", body), session.submit("optim-step", ADAM)]
            passed, stepped = (answer.json()["id"] for answer in accepted)
            told.append(session.wait("optim-step", stepped)["output"]["step"])
            assert session.wait("forward-backward", passed)["status"] == wire.OperationStatus.COMPLETED
        shown = http.get(wire.GET_SESSION.path(session_id=session.session_id)).json()
        return told, shown["step"], session.session_id


def run_all(service, body, wanted, begin=None):
    together = threading.Barrier(CLIENTS, begin)
    with ThreadPoolExecutor(CLIENTS) as pool:
        futures = [pool.submit(one_client, service.url, body, number, wanted, together) for number in range(CLIENTS)]
        for told, step, session_id in [future.result() for future in futures]:
            assert told == [str(number + 1) for number in range(len(told))]
            assert step == str(len(told))
            assert len(service.service.sessions[session_id].operations) == 2 * len(told)


def test_64_clients_lose_nothing(loaded, forward_body, make_samples):
    with LocalService(model=loaded) as service:
        run_all(service, forward_body(make_samples([8])), lambda steps: steps < 1)


def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads resident memory from /proc")
def test_64_clients_for_a_minute_take_no_more_memory_than_after_half_of_it(loaded, forward_body, make_samples):
    with LocalService(model=loaded) as service:
        begun, measured = [], {}

        def wanted(_steps):
            spent = time.monotonic() - begun[0]
            for mark in (30, 60):
                if spent >= mark:
                    measured.setdefault(mark, resident())
            return spent < 60

        run_all(service, forward_body(make_samples([8])), wanted, lambda: begun.append(time.monotonic()))
    assert measured[60] <= 1.05 * measured[30]
