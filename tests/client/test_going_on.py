"""A call that got no answer is gone on with under its key: the error carries it, and one operation comes of it."""

from __future__ import annotations

import pickle
import warnings

import httpx
import pytest
from accepting_service import SAMPLES, Service
from service_double import OPERATIONS

import samplekit as sk

LONG = sk.build_sample(range(60_001), [1] * 60_001)
CALLS = {
    "forward": lambda session, **key: session.forward(SAMPLES, sk.CrossEntropy(), **key),
    "forward-backward": lambda session, **key: session.forward_backward(SAMPLES, sk.CrossEntropy(), **key),
    "forward-backward uploaded": lambda session, **key: session.forward_backward([LONG], sk.CrossEntropy(), **key),
    "custom-forward-backward": lambda session, **key: session.custom_forward_backward(
        SAMPLES[:1], [[0.5] * SAMPLES[0].length], **key
    ),
    "optim-step": lambda session, **key: session.optim_step(learning_rate=1.0, **key),
    "sample": lambda session, **key: session.generate([[1, 2, 3]], **key),
    "weights-sync": lambda session, **key: session.weights_sync(**key),
    "inference-checkpoint": lambda session, **key: session.save_inference_checkpoint(**key),
    "training-checkpoint": lambda session, **key: session.save_training_checkpoint(**key),
}
FAULTS = {
    "reset": (httpx.ReadError("reset"), sk.ConnectionFailedError),
    "slow": (httpx.ReadTimeout("slow"), sk.ConnectionFailedError),
    "busy": (httpx.Response(503), sk.StatusError),
    "cut": (httpx.Response(200, content=b'{"id"'), sk.ConnectionFailedError),
}


def failing(service, fault):
    """The service accepts and answers with a fault, eight times."""
    service.first = [lambda request: service.double.respond(fault, request)] * 8
    plain = service.submit

    def submit(request):
        answer = plain(request)
        return answer(request) if callable(answer) else answer

    service.double.answer(f"POST {OPERATIONS}/.*", submit)


def uploads(service):
    """Give every upload an id of its own, as a real service does."""
    names = iter(range(1, 100))

    def place(_):
        name = f"p{next(names)}"
        return {"payload_id": name, "upload_url": "https://store.example/up"}

    service.double.answer("POST .*/upload-url", place)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_call_without_an_answer_is_gone_on_with_under_its_key(side, name, fault):
    service = Service()
    side.double = service.double
    uploads(service)
    failing(service, FAULTS[fault][0])
    session = side.session()
    with pytest.raises(FAULTS[fault][1]) as caught:
        CALLS[name](session)
    error = pickle.loads(pickle.dumps(caught.value))
    (key,) = service.keys
    assert error.idempotency_key == key
    operation = CALLS[name](session, idempotency_key=error.idempotency_key)
    assert service.keys == {key: operation.id}
    assert operation.idempotency_key == key
    bodies = {item.content for item in side.double.calls(f"POST {OPERATIONS}/.*")}
    assert len(bodies) == 1
    assert not session._terms.uploads


def test_a_batch_in_parts_is_gone_on_with_under_the_key_of_the_whole(side):
    service = Service(limit=1000)
    side.double = service.double
    plain, asked = service.submit, []

    def submit(request):
        answer = plain(request)
        asked.append(request.headers["idempotency-key"])
        if len(service.keys) == 2 and len(asked) < 13:
            raise httpx.ReadError("reset", request=request)
        return answer

    service.double.answer(f"POST {OPERATIONS}/.*", submit)
    session = side.session()
    with pytest.raises(sk.ConnectionFailedError, match="operations op-0 were accepted before") as caught:
        CALLS["forward-backward"](session)
    whole = asked[0]
    assert caught.value.idempotency_key == whole
    before = dict(service.keys)
    assert len(before) == 2
    batch = CALLS["forward-backward"](session, idempotency_key=whole)
    assert before.items() <= service.keys.items()
    assert sorted(batch.id.split(",")) == sorted(service.keys.values())
    assert all(key.startswith(whole) for key in service.keys)


def test_what_was_gone_on_with_and_collected_is_not_warned_of(side):
    service = Service()
    side.double = service.double
    with warnings.catch_warnings(), side.client().session(base_model="m") as session:
        warnings.simplefilter("error")
        first = CALLS["optim-step"](session)
        again = CALLS["optim-step"](session, idempotency_key=first.idempotency_key)
        assert again.id == first.id
        assert len(session._uncollected._accepted) == 1


@pytest.mark.parametrize("key", ["", 7, b"k", "a b", "a\nb", "k" * 201, "\u00e9", True])
def test_a_key_that_no_header_carries_is_refused(side, key):
    session = side.session()
    with pytest.raises(sk.SampleError, match="idempotency_key is"):
        session.optim_step(learning_rate=1.0, idempotency_key=key)
    assert not side.double.seen


def test_a_call_that_submits_nothing_has_no_key(side):
    side.double.answer("GET .*/supported-models", httpx.Response(403))
    with pytest.raises(sk.StatusError) as caught:
        side.client().supported_models()
    assert caught.value.idempotency_key is None
