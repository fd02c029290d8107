"""An answer about another operation, session or resources than was asked for is a lost one: asked again, then named."""

from __future__ import annotations

import pytest
from service_double import OPERATIONS, READY, RUNNING, SESSION, operation

import samplekit as sk

SUBMIT = f"POST {OPERATIONS}/.*"
POLL = f"GET {OPERATIONS}/.*"
PENDING = operation("PENDING")
OTHER = {**operation("COMPLETED", {"step": 7}), "id": "op-other"}
DONE = operation("COMPLETED", {"step": 3})


@pytest.mark.parametrize("num_others", [1, 3])
def test_an_answer_about_another_operation_is_not_taken(side, num_others):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, *[OTHER] * num_others, DONE)
    step = side.session().optim_step(learning_rate=1.0)
    assert (step.result(), step.id) == (3, "op-1")


def test_answers_about_another_operation_alone_are_a_named_error(side):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, OTHER)
    step = side.session().optim_step(learning_rate=1.0)
    with pytest.raises(sk.ConnectionFailedError, match="about 'op-other', expected optim-step operation op-1"):
        step.result()
    assert not any(step.done() for _ in range(7))
    with pytest.raises(sk.ConnectionFailedError, match=r"about 'op-other'.*optim-step operation op-1"):
        step.done()
    side.double.answer(POLL, DONE)
    assert step.result() == 3


def test_looking_once_does_not_take_another_operations_answer(side):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, OTHER, PENDING, OTHER, DONE)
    step = side.session().optim_step(learning_rate=1.0)
    assert [step.done() for _ in range(4)] == [False, False, False, True]
    assert step.result() == 3


def test_an_operation_that_is_picked_up_is_the_one_that_was_named(side):
    side.double.answer(POLL, OTHER, DONE)
    assert side.session().operation("op-1", "optim-step").result() == 3


def test_another_session_is_not_attached_to(side):
    side.double.answer(f"GET .*/training-sessions/{SESSION}", {**RUNNING, "id": "sess-other"}, RUNNING)
    assert side.client().attach(SESSION).id == SESSION
    side.double.answer(f"GET .*/training-sessions/{SESSION}", {**RUNNING, "id": "sess-other"})
    client = side.client()
    with pytest.raises(sk.ConnectionFailedError, match=f"about 'sess-other', expected training session {SESSION}"):
        client.attach(SESSION)


def test_other_resources_are_not_taken_for_ready(side):
    creating = {**READY, "status": "MODEL_RESOURCES_STATUS_CREATING"}
    side.double.answer("POST .*/model-resources", creating)
    side.double.answer("GET .*/model-resources/res-1", {**READY, "id": "res-other"}, creating, READY)
    side.client().session(base_model="m").detach()
    assert len(side.double.calls("GET .*/model-resources/res-1")) == 3


@pytest.mark.parametrize("what", ["session", "resources"])
def test_another_one_that_stopped_does_not_end_a_stop(side, what):
    """What is believed to be stopped costs on."""
    path = {"session": f"training-sessions/{SESSION}", "resources": "model-resources/res-1"}[what]
    stopped = {
        "session": {**RUNNING, "status": "TRAINING_SESSION_STATUS_STOPPED"},
        "resources": {**READY, "status": "MODEL_RESOURCES_STATUS_STOPPED"},
    }[what]
    session = side.client().session(base_model="m")
    side.double.answer(f"POST .*/{path}/stop", {**stopped, "id": "other"})
    side.double.answer(f"GET .*/{path}", {**stopped, "id": "other"}, stopped)
    session.stop()
    assert len(side.double.calls(f"GET .*/{path}")) >= 2


def test_another_checkpoint_is_not_gone_on_from(side):
    found = {"id": "ck-1", "step": 1, "base_model": "m", "lora_rank": 4}
    side.double.answer("GET .*/checkpoints/ck-1", {**found, "id": "ck-other", "base_model": "other"}, found)
    with side.client().session(resume_from="ck-1") as session:
        assert session.base_model == "m"


def test_other_resources_are_not_taken_for_extended(side):
    side.double.answer("POST .*/extend-expiry", {**READY, "id": "res-other"})
    resources = side.client().attach_resources("res-1")
    with pytest.raises(sk.ConnectionFailedError, match="about 'res-other', expected model resources res-1"):
        resources.extend(600)
