"""All seven kinds of operation through every fault, on real sockets, before the real service: each is done once.

tests/client/test_fault_storm.py does the same thousands of times on a handed-in clock.
"""

from __future__ import annotations

import asyncio
import random
import time

import pytest
from fault_proxy import ALL, SEEN, FaultProxy, Weather
from service_double import FakeTime

import samplekit as sk
from samplekit.client import Client, Runtime
from samplekit.server import LocalService

SAMPLES = [sk.build_sample(range(10 + index, 18 + index), [0] * 3 + [1] * 5) for index in range(2)]
GRADIENTS = [-0.1 * item.weights for item in SAMPLES]
PATIENCE = 0.5  # seconds until a request counts as lost
TOGETHER = [ALL[first::7] for first in range(7)]  # three or four faults in a row: the client tries seven times more


class HurriedTime(FakeTime):
    """The real clock, with short pauses."""

    def runtime(self) -> Runtime:
        return Runtime(
            sleep=lambda seconds: time.sleep(seconds / 200), async_sleep=lambda seconds: asyncio.sleep(seconds / 200)
        )


def has_loss(result, _):
    return result.loss > 0 and [len(item) for item in result.logprobs] == [7, 7]


# Each kind of operation: how it is submitted, and what its result must be, given the session's step before.
KINDS = {
    "forward-backward": (
        lambda session: session.forward_backward(SAMPLES, sk.CrossEntropy(), return_logprobs=True),
        has_loss,
    ),
    "custom-forward-backward": (
        lambda session: session.custom_forward_backward(SAMPLES, GRADIENTS),
        lambda result, _: result is None,
    ),
    "optim-step": (lambda session: session.optim_step(learning_rate=1e-5), lambda result, step: result == step + 1),
    "weights-sync": (lambda session: session.weights_sync(), lambda result, _: result >= 0),
    "sample": (
        lambda session: session.generate([[1, 2, 3]], num_samples=2, max_tokens=2, seed=1),
        lambda result, _: [item.length for item in result[0].completions] == [2, 2],
    ),
    "inference-checkpoint": (
        lambda session: session.save_inference_checkpoint(),
        lambda result, step: (result.step, bool(result.id)) == (step + 1, True),
    ),
    "training-checkpoint": (
        lambda session: session.save_training_checkpoint(),
        lambda result, step: (result.step, bool(result.id)) == (step + 1, True),
    ),
}


@pytest.fixture(scope="module")
def service():
    with LocalService() as running:
        yield running


@pytest.fixture(scope="module")
def opened(service):
    """A session that is opened without faults: making one has no key."""
    with Client(base_url=service.url) as client, client.session(lora_rank=2) as session:
        yield session


@pytest.fixture
def kept(service, opened):
    """What the service holds of the session."""
    return service.service.sessions[opened.id]


@pytest.fixture
def proxy(service):
    with FaultProxy(service.url) as between:
        yield between


@pytest.fixture
def attached(side, proxy, opened):
    """Attach to the session through the proxy; every test closes what it opened."""
    clients = []

    def attach(**options):
        side.time = HurriedTime()
        client = side.client(base_url=proxy.url, api_key=None, transport=None, timeout=PATIENCE, **options)
        clients.append(client)
        return client.attach(opened.id)

    yield attach
    for client in clients:
        client.close()


def done_since(kept, count):
    """What the service accepted since there were so many, which must all have ended well."""
    new = list(kept.operations.values())[count:]
    assert all(item.status == "TRAINING_OPERATION_STATUS_COMPLETED" for item in new)
    return [item.kind for item in new]


@pytest.mark.parametrize("faults", TOGETHER)
def test_every_kind_is_accepted_once_when_its_submission_meets_faults(attached, proxy, kept, faults):
    session, count, step = attached(), len(kept.operations), kept.step
    for kind, (submit, expect) in KINDS.items():
        proxy.fail_next("POST", f"operations/{kind}", *faults)
        assert expect(submit(session).result(), step), kind
    assert done_since(kept, count) == list(KINDS)
    assert kept.step == step + 1
    assert proxy.num_planned == 0
    posts = [path for method, path in proxy.forwarded if method == "POST"]
    unheard = sum(fault in SEEN for fault in faults)  # what the service answered and the client did not hear of
    assert len(posts) == (unheard + 1) * len(KINDS)


@pytest.mark.parametrize("faults", [*TOGETHER, ("unknown", "unknown")])
def test_every_kind_gives_its_result_when_looking_at_it_meets_faults(attached, proxy, kept, faults):
    session, count, step = attached(), len(kept.operations), kept.step
    for kind, (submit, expect) in KINDS.items():
        operation = submit(session)
        proxy.fail_next("GET", f"operations/{kind}/{operation.id}", *faults)
        assert expect(operation.result(), step), kind
        assert operation.done()
    assert done_since(kept, count) == list(KINDS)
    assert all(proxy.met[fault] == faults.count(fault) * len(KINDS) for fault in faults)


@pytest.mark.parametrize("fault", [fault for fault in ALL if fault != "twice"])
def test_a_fault_that_does_not_end_is_an_error_with_a_name(attached, proxy, kept, fault):
    session, count = attached(max_retries=1), len(kept.operations)
    proxy.fail_next("POST", "operations/weights-sync", fault, fault)
    with pytest.raises(sk.ServiceError) as found:
        session.weights_sync()
    assert type(found.value) is not sk.ServiceError
    assert len(kept.operations) - count == (fault in SEEN)
    assert proxy.num_planned == 0


@pytest.mark.parametrize("faults", TOGETHER)
def test_a_result_in_a_payload_arrives_through_faults(attached, proxy, kept, monkeypatch, faults):
    monkeypatch.setattr("samplekit.server.engine.INLINE_LIMIT_BYTES", 100)
    session, count, step = attached(), len(kept.operations), kept.step
    submit, expect = KINDS["forward-backward"]
    operation = submit(session)
    proxy.fail_next("POST", "/download-url", *faults)
    proxy.fail_next("GET /payloads/", "", *faults)
    assert expect(operation.result(), step)
    assert proxy.num_planned == 0
    assert done_since(kept, count) == ["forward-backward"]


@pytest.mark.parametrize("kind", ["forward-backward", "sample"])
def test_a_result_whose_payload_is_missing_is_a_named_error_and_can_be_asked_for_again(
    attached, proxy, kept, monkeypatch, kind
):
    monkeypatch.setattr("samplekit.server.engine.INLINE_LIMIT_BYTES", 100)
    session, count, step = attached(), len(kept.operations), kept.step
    submit, expect = KINDS[kind]
    operation = submit(session)
    proxy.fail_next("GET /payloads/", "", *["unknown"] * 9)
    with pytest.raises(sk.StatusError, match="payload"):
        operation.result()
    proxy.forget_plans()
    assert expect(operation.result(), step)
    assert done_since(kept, count) == [kind]


def run(attached, proxy, kept, num_operations, seed):
    """Submit operations of all kinds in a random order, three ahead of what is collected, in bad weather."""
    session, count = attached(), len(kept.operations)
    proxy.weather = Weather(seed, 0.3, (*ALL, *["twice"] * 3))
    order = random.Random(seed).choices(list(KINDS), k=num_operations)
    waiting = []
    for kind in order:
        waiting.append((kind, KINDS[kind][0](session)))
        if len(waiting) > 3:
            collect(*waiting.pop(0))
    for item in waiting:
        collect(*item)
    proxy.weather = None
    new = list(kept.operations.values())[count:]
    assert [item.kind for item in new] == order
    assert len({item.id for item in new}) == num_operations


def collect(kind, operation):
    """Ask until the result is there; a step with nothing to apply fails, by name."""
    for _ in range(20):
        try:
            return operation.result()
        except sk.OperationFailedError as error:
            if (kind, error.operation_id) != ("optim-step", operation.id):
                raise
            return None
        except (sk.ConnectionFailedError, sk.StatusError, sk.OperationTimeoutError):
            continue
    raise AssertionError(f"{operation} was asked for 20 times")


def test_operations_of_all_kinds_in_any_order_are_accepted_once_in_bad_weather(attached, proxy, kept):
    run(attached, proxy, kept, 40, seed=1)


@pytest.mark.slow
def test_a_thousand_operations_of_all_kinds_are_accepted_once_in_bad_weather(attached, proxy, kept):
    run(attached, proxy, kept, 1000, seed=2)
    assert set(proxy.met) >= set(ALL)
