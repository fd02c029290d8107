"""Threads that share a session, as a pool that draws rollouts does: every call gives the handle of its own operation."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from accepting_service import Service
from service_double import SESSION, Side

NUM_THREADS, NUM_CALLS = 8, 480


@pytest.fixture
def shaken():
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("shaken")
@pytest.mark.parametrize("settled", [True, False])
def test_threads_that_share_a_session_lose_no_operation(settled):
    side, service = Side("blocking", None), Service()
    side.double = service.double
    session = side.client().attach(SESSION)

    def step(_):
        operation = session.optim_step(learning_rate=1.0)
        if settled:
            assert operation.done()
        return operation

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        steps = list(pool.map(step, range(NUM_CALLS)))
    assert {item.idempotency_key: item.id for item in steps} == service.keys
    assert len({*service.keys.values()}) == NUM_CALLS


@pytest.mark.usefixtures("shaken")
def test_threads_that_share_a_client_open_and_stop_sessions_of_their_own():
    side = Side("blocking", None)
    client = side.client()

    def run(_):
        for _ in range(40):
            client.session(base_model="m").stop()

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        list(pool.map(run, range(NUM_THREADS)))
