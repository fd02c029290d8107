"""Leaving a session: what was submitted is waited for, what is lost is named, and what was created is stopped."""

from __future__ import annotations

import warnings

import httpx
import pytest
from service_double import OPERATIONS, SESSION, STATUS, operation

import samplekit as sk

SUBMIT = f"POST {OPERATIONS}/.*"
POLL = f"GET {OPERATIONS}/optim-step/op-1"
PENDING = {"id": "op-1", "status": STATUS + "PENDING"}
STOPS = [f"/v1/rl/training-sessions/{SESSION}/stop", "/v1/rl/model-resources/res-1/stop?force=true"]


def stops(side):
    return [item.path for item in side.double.seen if "/stop" in item.path]


def leave_after_steps(client, num_steps=1, *, before_leaving=lambda: None):
    """Submit steps that nobody collects, and leave."""
    with client.session(base_model="m") as session:
        for _ in range(num_steps):
            session.optim_step(learning_rate=1.0)
        before_leaving()


def test_leaving_waits_for_what_was_submitted_and_then_stops(side):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, PENDING, PENDING, operation("COMPLETED", {"step": 1}))
    with warnings.catch_warnings(), side.client().session(base_model="m") as session:
        warnings.simplefilter("error")
        session.optim_step(learning_rate=1.0)
    asked = [item.path for item in side.double.seen]
    assert len(side.double.calls(POLL)) == 3
    assert asked.index(STOPS[0]) > max(n for n, path in enumerate(asked) if path.endswith("/op-1"))
    assert stops(side) == STOPS


def test_what_still_runs_after_300_seconds_is_named_and_the_session_stopped(side):
    side.double.answer(SUBMIT, PENDING, {**PENDING, "id": "op-2"})
    side.double.answer(f"GET {OPERATIONS}/.*", PENDING)
    began = side.time.now
    with pytest.warns(RuntimeWarning, match="optim-step operation op-1, optim-step operation op-2") as caught:
        leave_after_steps(side.client(), 2)
    assert side.time.now - began == pytest.approx(300.0)
    assert stops(side) == STOPS
    if side.kind == "blocking":
        assert caught[0].filename == __file__


def test_a_service_that_cannot_say_what_became_of_an_operation_is_stopped_and_the_operation_named(side):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, httpx.Response(403))
    with pytest.warns(RuntimeWarning, match="op-1"), side.client().session(base_model="m") as session:
        session.optim_step(learning_rate=1.0)
    assert stops(side) == STOPS


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_an_error_inside_the_block_stops_at_once_without_waiting_for_operations(side, error):
    side.double.answer(SUBMIT, PENDING)

    def fail():
        raise error

    with pytest.raises(error):
        leave_after_steps(side.client(), before_leaving=fail)
    assert not side.double.calls(POLL)
    assert stops(side) == STOPS


def test_an_interruption_while_leaving_still_stops(side):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, PENDING)
    client = side.client()

    def interrupt(seconds):
        raise MemoryError

    def prepare():
        side.time.sleep = interrupt
        client._driver._runtime = side.time.runtime()

    with pytest.raises(MemoryError):
        leave_after_steps(client, before_leaving=prepare)
    assert stops(side) == STOPS


def test_a_session_that_runs_on_is_left_without_waiting(side):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, PENDING)
    with warnings.catch_warnings(), side.client().session(base_model="m") as session:
        warnings.simplefilter("error")
        session.detach()
        session.optim_step(learning_rate=1.0)
    assert side.time.pauses == []
    assert len(side.double.calls(POLL)) == 1


@pytest.mark.parametrize("num_later", [1, 63, 64, 65, 500])
@pytest.mark.parametrize("later", ["COMPLETED", "PENDING"])
def test_a_failure_nobody_collected_is_warned_of_however_much_followed_it(side, num_later, later):
    failed = {"id": "op-0", "status": STATUS + "FAILED", "error": {"message": "boom"}}
    steps = ({"id": f"op-{n}", "status": STATUS + later} for n in range(1, num_later + 1))
    side.double.answer(SUBMIT, failed, *steps)
    side.double.answer(f"GET {OPERATIONS}/.*", lambda request: done(request.url.path.rpartition("/")[2]))
    with pytest.warns(RuntimeWarning, match="1 failed operations.*optim-step operation op-0.*boom") as caught:
        leave_after_steps(side.client(), num_later + 1)
    assert len(caught) == 1


@pytest.mark.parametrize("detached", [False, True])
@pytest.mark.parametrize("status", [400, 403, 404, 410])
def test_an_operation_the_service_will_not_tell_of_hides_no_failure_of_others(side, status, detached):
    side.double.answer(SUBMIT, PENDING, {**PENDING, "id": "op-2"})
    side.double.answer(POLL, httpx.Response(status))
    failed = {**operation("FAILED", error={"message": "boom"}), "id": "op-2"}
    side.double.answer(f"GET {OPERATIONS}/optim-step/op-2", failed)
    with warnings.catch_warnings(record=True) as caught, side.client().session(base_model="m") as session:
        warnings.simplefilter("always")
        steps = [session.optim_step(learning_rate=1.0) for _ in range(2)]
        side.time.now += 60
        if detached:
            session.detach()
    assert [step.id for step in steps] == ["op-1", "op-2"]
    said = [str(item.message) for item in caught]
    assert any("1 failed operations" in text and "boom" in text for text in said)
    running = [text for text in said if "before 1 operations" in text and "op-1" in text and "op-2" not in text]
    assert len(running) == (0 if detached else 1)


@pytest.mark.parametrize("fault", [httpx.ConnectError("away"), httpx.ReadTimeout("slow"), httpx.Response(503)])
def test_a_detached_session_asks_a_service_that_does_not_answer_no_further(side, fault):
    side.double.answer(SUBMIT, *({**PENDING, "id": f"op-{n}"} for n in range(9)))
    side.double.answer(f"GET {OPERATIONS}/.*", fault)
    with side.client().session(base_model="m") as session:
        for _ in range(9):
            session.optim_step(learning_rate=1.0)
        session.detach()
    assert len(side.double.calls(f"GET {OPERATIONS}/.*")) == 1
    assert side.time.pauses == []


@pytest.mark.parametrize("num_later", [0, 200])
@pytest.mark.parametrize("known", [False, True])
def test_stopping_warns_of_failures_nobody_collected(side, known, num_later):
    failed = {"id": "op-1", "status": STATUS + "FAILED", "error": {"message": "boom"}}
    later = ({"id": f"op-{n}", "status": STATUS + "COMPLETED"} for n in range(2, num_later + 3))
    side.double.answer(SUBMIT, failed if known else PENDING, *later)
    side.double.answer(POLL, failed)
    session = side.client().session(base_model="m")
    steps = [session.optim_step(learning_rate=1.0) for _ in range(num_later + 1)]
    with pytest.warns(RuntimeWarning, match="1 failed operations.*optim-step operation op-1.*boom") as caught:
        session.stop()
    assert len(caught) == 1
    assert stops(side) == STOPS
    assert len(steps) == num_later + 1


@pytest.mark.parametrize("fault", [None, httpx.ConnectError("away"), httpx.ReadTimeout("slow"), httpx.Response(403)])
def test_stopping_waits_for_nothing_that_runs_and_says_nothing_of_it(side, fault):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, fault or PENDING)
    session = side.client().session(base_model="m")
    step = session.optim_step(learning_rate=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.stop()
    assert step.id == "op-1"
    assert side.time.pauses == []
    assert len(side.double.calls(POLL)) == 1
    assert stops(side) == STOPS


def test_a_failure_that_was_collected_is_not_warned_of_when_stopping(side):
    side.double.answer(SUBMIT, {"id": "op-1", "status": STATUS + "FAILED", "error": {"message": "boom"}})
    session = side.client().session(base_model="m")
    with pytest.raises(sk.OperationFailedError):
        session.optim_step(learning_rate=1.0).result()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.stop()


def done(identity):
    return {**operation("COMPLETED", {"step": 1}), "id": identity}


def test_only_operations_nobody_collected_are_asked_about(side):
    names = [f"op-{n}" for n in range(60)]
    side.double.answer(SUBMIT, *({"id": name, "status": STATUS + "PENDING"} for name in names))
    side.double.answer(f"GET {OPERATIONS}/.*", lambda request: done(request.url.path.rpartition("/")[2]))
    with side.client().session(base_model="m") as session:
        steps = [session.optim_step(learning_rate=1.0) for _ in names]
        for step in steps[::2]:
            step.result()
        side.double.seen.clear()
    asked = [item.path.rpartition("/")[2] for item in side.double.calls(f"GET {OPERATIONS}/.*")]
    assert asked == names[1::2]


def test_a_warning_names_the_first_operations_and_counts_the_others(side):
    side.double.answer(SUBMIT, *({**PENDING, "id": f"op-{n}"} for n in range(30)))
    side.double.answer(f"GET {OPERATIONS}/.*", httpx.Response(403))
    with pytest.warns(RuntimeWarning, match="before 30 operations.*operation op-9, and 20 more;"):
        leave_after_steps(side.client(), 30)


@pytest.mark.parametrize("away", [False, True])
def test_a_long_run_whose_steps_nobody_collects_is_left_as_fast_as_a_short_one(side, away):
    names = [f"op-{n}" for n in range(400)]
    side.double.answer(SUBMIT, *({"id": name, "status": STATUS + "PENDING"} for name in names))
    side.double.answer(f"GET {OPERATIONS}/.*", lambda request: done(request.url.path.rpartition("/")[2]))
    failed = {**operation("FAILED", error={"message": "boom"}), "id": "op-7"}
    side.double.answer(f"GET {OPERATIONS}/.*/op-7", failed)
    if away:
        side.double.answer(f"GET {OPERATIONS}/.*/op-0", *[httpx.ConnectError("away")] * 3, done("op-0"))
    asked = []

    def count():
        asked.append(len(side.double.calls(f"GET {OPERATIONS}/.*")))
        side.double.seen.clear()

    with pytest.warns(RuntimeWarning, match="1 failed operations.*op-7"):
        leave_after_steps(side.client(), len(names), before_leaving=count)
    count()
    assert asked[0] <= len(names)
    assert asked[1] <= 70
    assert side.time.pauses == []
