"""Threads that share a session, as a pool that draws rollouts does: every call gives the handle of its own operation."""

from __future__ import annotations

import itertools
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from accepting_service import Service
from service_double import OPERATIONS, READY, RUNNING, SESSION, Side, operation

from samplekit.client.accepted import Accepted
from samplekit.client.steps import Reply
from samplekit.wire.names import ResourcesStatus, SessionStatus

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
    numbers = itertools.count()

    def named(answer, status):
        def give(request):
            _, _, _, _, *name = request.url.path.split("/")
            return {**answer, "id": name[0] if name else f"new-{next(numbers)}", "status": status}

        return give

    for path, answer, kind in (
        ("model-resources", READY, ResourcesStatus),
        ("training-sessions", RUNNING, SessionStatus),
    ):
        side.double.answer(f"(POST|GET) .*/{path}(/[^/]*)?", named(answer, answer["status"]))
        side.double.answer(f"POST .*/{path}/.*/stop", named(answer, kind.STOPPED))
    client, kept = side.client(), []

    def run(_):
        for _ in range(40):
            session = client.session(base_model="m")
            kept.append(session)
            session.stop()

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        list(pool.map(run, range(NUM_THREADS)))


def test_a_thread_that_finds_the_output_read_and_let_go_gives_what_was_read(monkeypatch):
    side = Side("blocking", None)
    side.double.answer(f"POST {OPERATIONS}/.*", operation("COMPLETED", {"step": 7}))
    step = side.session().optim_step(learning_rate=1.0)
    plain = Accepted.finish

    def finish(accepted, deadline):
        monkeypatch.setattr(Accepted, "finish", plain)
        assert step.result() == 7  # as another thread, between two lines of this one
        return (yield from plain(accepted, deadline))

    monkeypatch.setattr(Accepted, "finish", finish)
    assert step.result() == 7


def test_a_late_answer_that_it_runs_still_does_not_undo_that_it_is_finished(side):
    """Two tasks ask at once, and the answers overtake each other."""
    done = operation("COMPLETED", {"step": 7})
    side.double.answer(f"POST {OPERATIONS}/.*", operation("PENDING"))
    side.double.answer(f"GET {OPERATIONS}/.*", done)
    step = side.session().optim_step(learning_rate=1.0)
    slow = step._handle.accepted[0].look()
    request = slow.send(None)
    assert step.result() == 7
    work = slow.send(Reply(200, {}, json.dumps(operation("RUNNING")).encode()))
    with pytest.raises(StopIteration) as ended:
        slow.send(work.run())
    assert (ended.value.value, request.method, step.done()) == (True, "GET", True)
