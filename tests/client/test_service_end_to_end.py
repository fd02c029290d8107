"""The client against the real local service, with a proxy between them that loses answers."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest
from fault_proxy import FAULTS, FaultProxy
from service_double import FakeTime

import samplekit as sk
from samplekit.client import Client, Runtime
from samplekit.server import LocalService

SAMPLES = [sk.build_sample(range(10 + index, 40 + index), [0] * 10 + [1] * 20) for index in range(4)]


class HurriedTime(FakeTime):
    """The real clock, with short pauses."""

    def runtime(self) -> Runtime:
        return Runtime(
            sleep=lambda seconds: time.sleep(seconds / 50), async_sleep=lambda seconds: asyncio.sleep(seconds / 50)
        )


@pytest.fixture(scope="module")
def service():
    with LocalService() as running:
        yield running


@pytest.fixture
def proxy(service):
    with FaultProxy(service.url) as between:
        yield between


@pytest.fixture
def client(side, proxy):
    side.time = HurriedTime()
    client = side.client(base_url=proxy.url, api_key=None, transport=None)
    yield client
    client.close()


def count(service, session, kind):
    """How many operations of a kind the service accepted for a session."""
    return sum(item.kind == kind for item in service.service.sessions[session.id].operations.values())


def train(client, proxy=None, faults=(), kind=""):
    """Two steps on the same data; give the session, its losses and its final logprobs."""
    with client.session() as session:
        losses = []
        for _ in range(2):
            if proxy is not None:
                proxy.fail_next("POST", f"operations/{kind}", *faults)
            step = session.forward_backward(SAMPLES, sk.CrossEntropy())
            applied = session.optim_step(learning_rate=1e-3)
            losses.append(step.result().mean_loss)
            applied.result()
        scored = session.forward(SAMPLES, sk.CrossEntropy()).result()
        return session, losses, np.concatenate(scored.logprobs)


@pytest.fixture(scope="module")
def undisturbed(service):
    with Client(base_url=service.url) as client:
        return train(client)[1:]


@pytest.mark.parametrize(
    ("kind", "fault"), [("forward-backward", "drop_after"), *(("optim-step", fault) for fault in FAULTS)]
)
def test_a_retry_after_a_lost_answer_applies_once(client, proxy, service, undisturbed, kind, fault):
    session, losses, logprobs = train(client, proxy, [fault, fault], kind)
    assert service.service.sessions[session.id].step == 2
    assert count(service, session, "optim-step") == 2
    assert count(service, session, "forward-backward") == 3
    seen = [path for method, path in proxy.forwarded if method == "POST" and path.endswith(kind)]
    lost = 0 if fault == "drop_before" else 4  # what the service saw and the client did not hear of
    assert len(seen) == lost + (2 if kind == "optim-step" else 3)
    assert losses == pytest.approx(undisturbed[0], rel=1e-6)
    np.testing.assert_allclose(logprobs, undisturbed[1], rtol=1e-6, atol=1e-7)


def test_the_loss_is_the_weighted_sum_of_the_logprobs(client):
    with client.session() as session:
        result = session.forward(SAMPLES, sk.CrossEntropy()).result()
    summed = -sum(float((item.weights * found).sum()) for item, found in zip(SAMPLES, result.logprobs, strict=True))
    assert summed == pytest.approx(result.loss, rel=1e-4)


def test_a_session_whose_creation_was_not_answered_is_not_created_twice_and_its_resources_stop(client, proxy, service):
    before = set(service.service.sessions)
    proxy.fail_next("POST", "/training-sessions", "drop_after")
    with pytest.raises(sk.ConnectionFailedError, match="outcome unknown"):
        client.session()
    (made,) = set(service.service.sessions) - before
    assert not service.service.sessions[made].is_active


def test_a_batch_too_large_to_be_inline_trains_through_faults(client, proxy, service):
    length = 400  # numbers of many digits make a large body of few positions
    weights = np.linspace(0.1234567, 0.9876543, length + 1, dtype=np.float32)
    long = [sk.build_sample([(7 * at + row) % 1000 for at in range(length + 1)], weights) for row in range(44)]
    gradients = [-item.weights / 3 for item in long]
    with client.session() as session:
        before = session.forward(long[:1], sk.CrossEntropy()).result().loss
        proxy.fail_next("POST", "upload-url", "drop_after")
        proxy.fail_next("PUT", "", "drop_after", "drop_before")
        session.custom_forward_backward(long, gradients).result()
        session.optim_step(learning_rate=1e-3).result()
        after = session.forward(long[:1], sk.CrossEntropy()).result().loss
    assert sum(method == "PUT" for method, _ in proxy.forwarded) == 2
    assert count(service, session, "custom-forward-backward") == 1
    assert after < before


def test_generated_groups_are_scored_and_sampled_again_alike(client):
    with client.session() as session:
        first, again = (
            session.generate([[1, 2, 3], [4, 5]], num_samples=3, max_tokens=6, seed=1, prompt_logprobs=True).result()
            for _ in range(2)
        )
    assert [group.completions for group in first] == [group.completions for group in again]
    assert [len(group) for group in first] == [3, 3]
    assert first[0].prompt_logprobs[0] == 0
    assert first[0].with_rewards(len_of).completions[0].reward == first[0].completions[0].length


def len_of(completion):
    return completion.length


def test_a_loop_trains(client):
    with client.session(lora_rank=4) as session:
        losses = []
        for batch in session.batches(SAMPLES, batch_size=2, epochs=3):
            step = session.forward_backward(batch, sk.CrossEntropy())
            session.optim_step(learning_rate=1e-2)
            losses.append(step.result().mean_loss)
    assert losses[5] < losses[0]


def test_the_last_step_of_a_loop_is_not_dropped_by_leaving(client, service):
    with client.session() as session:
        for _ in range(3):
            session.forward_backward(SAMPLES, sk.CrossEntropy())
            session.optim_step(learning_rate=1e-3)
    assert service.service.sessions[session.id].step == 3


def test_completions_become_samples_that_train(client):
    with client.session() as session:
        (group,) = session.generate([[1, 2, 3]], num_samples=2, max_tokens=4, seed=3).result()
        samples = [
            sk.build_sample([*group.prompt, *item.tokens], [0] * 3 + [1] * item.length) for item in group.completions
        ]
        scored = session.forward(samples, sk.CrossEntropy()).result()
        for item, found in zip(group.completions, scored.logprobs, strict=True):
            np.testing.assert_allclose(found[found != 0], item.logprobs, rtol=1e-3, atol=1e-4)
        session.custom_forward_backward(samples, [-item.weights for item in samples])
        assert session.optim_step(learning_rate=1e-5).result() == 1
