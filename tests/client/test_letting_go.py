"""What is sent is let go: by operations once they are submitted, by a call in parts before the next part is made."""

from __future__ import annotations

import gc
import time
import weakref

import httpx
import pytest
from service_double import OPERATIONS, STATUS, operation

import samplekit as sk

SUBMIT = f"POST {OPERATIONS}/.*"
TOO_LARGE = httpx.Response(413, text="the limit is 1000 bytes")


def num_alive(references):
    """How many there still are, once threads that made something have let it go, too."""
    for _ in range(200):
        gc.collect()
        found = sum(item() is not None for item in references)
        if not found:
            break
        time.sleep(0.005)
    return found


@pytest.fixture
def bodies(monkeypatch):
    """Bodies made so far, and how many of them were alive whenever another one was made."""
    made, alive = [], []

    def watched(build):
        def wrapped(*args, **kwargs):
            alive.append(num_alive(made))
            body = build(*args, **kwargs)
            made.append(weakref.ref(body))
            return body

        return wrapped

    for name in ("forward_backward_body", "custom_body", "sample_body"):
        place = f"samplekit.client.calls.{name}"
        monkeypatch.setattr(place, watched(getattr(sk.client.calls, name)))
    return made, alive


def batch(num_samples=4):
    return [sk.build_sample(range(100 + n, 141 + n), [1] * 41) for n in range(num_samples)]


CALLS = {
    "training": lambda session, samples: session.forward_backward(samples, sk.CrossEntropy()),
    "scoring": lambda session, samples: session.forward(samples, sk.CrossEntropy()),
    "custom": lambda session, samples: session.custom_forward_backward(samples, [[0.1] * 40 for _ in samples]),
}
OUTPUT = {"loss": 1.0, "metrics": {}}


def submit(session, call, side):
    """Submit a new batch; give the operation, and references to what was sent."""
    samples = batch()
    references = [weakref.ref(item) for item in samples]
    step = CALLS[call](session, samples)
    side.double.seen.clear()
    return step, references


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("answers", [["PENDING"], ["COMPLETED"]])
def test_an_operation_nobody_collected_keeps_neither_samples_nor_body(side, bodies, call, answers):
    side.double.answer(SUBMIT, *(operation(status, OUTPUT) for status in answers))
    session = side.session()
    step, samples = submit(session, call, side)
    assert (num_alive(samples), num_alive(bodies[0])) == (0, 0)
    assert step.id == "op-1"


@pytest.mark.parametrize("call", CALLS)
def test_a_large_body_is_let_go_once_it_was_uploaded(side, bodies, call, monkeypatch):
    monkeypatch.setattr("samplekit.wire.requests.INLINE_LIMIT_BYTES", 100)
    side.double.answer("POST .*/upload-url", {"payload_id": "p", "upload_url": "https://store.example/up"})
    side.double.answer("PUT /up", {})
    side.double.answer(SUBMIT, operation("PENDING"))
    session = side.session()
    _step, samples = submit(session, call, side)
    assert (num_alive(samples), num_alive(bodies[0])) == (0, 0)


def refused_whole(side, monkeypatch):
    side.double.answer(SUBMIT, TOO_LARGE, *({**operation("PENDING"), "id": f"op-{n}"} for n in range(9)))


def over_the_limit(side, monkeypatch):
    monkeypatch.setattr("samplekit.wire.names.PAYLOAD_LIMIT_BYTES", 1000)
    side.double.answer(SUBMIT, *({**operation("PENDING"), "id": f"op-{n}"} for n in range(9)))


def refused_twice(side, monkeypatch):
    side.double.answer(SUBMIT, *[TOO_LARGE] * 3, *({**operation("PENDING"), "id": f"op-{n}"} for n in range(9)))


@pytest.mark.parametrize("way", [refused_whole, over_the_limit, refused_twice])
@pytest.mark.parametrize("call", CALLS)
def test_a_body_that_is_too_large_is_gone_before_its_parts_are_made(side, bodies, call, way, monkeypatch):
    way(side, monkeypatch)
    session = side.session()
    step, samples = submit(session, call, side)
    made, before = bodies
    assert len(made) > 2
    assert before == [0] * len(made)
    assert (num_alive(samples), num_alive(made)) == (0, 0)
    assert "," in step.id


def test_a_session_keeps_no_result_that_was_collected_and_dropped(side):
    numbers = iter(range(1000))
    side.double.answer(
        SUBMIT, lambda _: {"id": f"op-{next(numbers)}", "status": STATUS + "COMPLETED", "output": OUTPUT}
    )
    side.double.answer(f"POST {OPERATIONS}/optim-step", lambda _: {**operation("PENDING"), "id": f"op-{next(numbers)}"})
    session = side.session()
    results = []
    for _ in range(20):
        results.append(weakref.ref(session.forward_backward(batch(), sk.CrossEntropy()).result()))
        session.optim_step(learning_rate=1.0)  # as most loops do: nobody asks for its result
    assert num_alive(results) == 0
    session.detach()


def test_groups_keep_their_prompts_and_nothing_else_of_the_call(side, bodies):
    sequence = {"tokens": [1, 2], "logprobs": [-0.5, -0.25]}
    side.double.answer(SUBMIT, operation("COMPLETED", {"results": [{"sequences": [sequence]}]}))
    session = side.session()
    drawn = session.generate([[7, 8, 9]])
    side.double.seen.clear()
    assert num_alive(bodies[0]) == 0
    assert drawn.result()[0].prompt.tolist() == [7, 8, 9]
