"""http-08: a batch too large for one body is sent in parts only where its loss is a sum; else an error says why not."""

from __future__ import annotations

import json

import httpx
import numpy as np
import pytest
from service_double import OPERATIONS, STATUS, of_its_own, operation

import samplekit as sk
from samplekit.client import Client
from samplekit.server import LocalService

SUBMIT = f"POST {OPERATIONS}/.*"
TOO_LARGE = httpx.Response(413, text="the limit is 1000 bytes")
WHOLE = {
    "GRPO token_mean": (sk.GRPO(aggregation="token_mean"), "the mean over the tokens of the batch"),
    "GRPO sequence_mean": (sk.GRPO(aggregation="sequence_mean"), "the mean over the sequences of the batch"),
    "GRPO fixed_horizon": (sk.GRPO(), "divides by the number of samples"),
    "PPO": (sk.PPO(), "does not document how PPO is reduced"),
    "CISPO": (sk.CISPO(), "does not document how CISPO is reduced"),
    "DPPO": (sk.DPPO(), "does not document how DPPO is reduced"),
    "DRO": (sk.DRO(beta=0.1), "does not document how DRO is reduced"),
    "ImportanceSampling": (sk.ImportanceSampling(), "does not document how ImportanceSampling is reduced"),
}


def supervised(lengths):
    return [sk.build_sample(range(100 + n, 101 + n + length), [1] * (length + 1)) for n, length in enumerate(lengths)]


def scored(lengths):
    return [
        sk.build_sample(range(100, 101 + n), [1] * (n + 1), advantages=1.0, logprobs=[-1.0] * (n + 1)) for n in lengths
    ]


def size_of(samples, loss=None):
    return sum(len(sample.to_json()) + 1 for sample in samples)


class Service:
    """Refuses bodies over a size; completes all others with a loss of one a sample and logprobs that name it."""

    def __init__(self, limit, status=413):
        self.limit, self.status, self.accepted, self.refused = limit, status, [], []

    def __call__(self, request):
        if len(request.content) > self.limit:
            self.refused.append(request)
            return httpx.Response(self.status, text=f"the limit is {self.limit} bytes")
        self.accepted.append(request)
        body = json.loads(request.content)
        firsts = [item["model_input"]["chunks"][0]["encoded_text"]["tokens"] for item in body["samples"]]
        outputs = [{"tensors": {"logprobs": {"data": [-float(t[0])] * len(t), "dtype": "float32"}}} for t in firsts]
        output = {"loss": float(len(firsts)), "loss_fn_outputs": outputs, "metrics": {"a/mean": firsts[0][0], "b": 1}}
        return {"id": f"op-{len(self.accepted)}", "status": STATUS + "COMPLETED", "output": output}

    @property
    def keys(self):
        return [request.headers["idempotency-key"] for request in self.accepted]


def sent(request):
    return json.loads(request.content)["samples"]


@pytest.mark.parametrize("lengths", [[40, 40, 40], [40] * 7, [10, 90, 20], [5, 5, 5, 100], [60, 1, 60]])
def test_a_refused_sum_is_sent_in_parts_each_under_its_own_key(side, lengths):
    samples = supervised(lengths)
    limit = max(size_of([item]) for item in samples) + size_of(samples[:1]) + 60
    service = Service(limit)
    side.double.answer(SUBMIT, service)
    step = side.session().forward_backward(samples, sk.CrossEntropy(), return_logprobs=True)
    assert len(service.accepted) > 1
    assert len({*service.keys, *(item.headers["idempotency-key"] for item in service.refused)}) == len(
        service.accepted
    ) + len(service.refused)
    everything = [item for request in service.accepted for item in sent(request)]
    assert sorted(map(sk.Sample.from_wire, everything), key=lambda item: item.tokens[0]) == samples
    sizes = [len(request.content) for request in service.accepted]
    assert sizes == sorted(sizes, reverse=True)  # what is refused for its size is refused before anything is accepted
    result = step.result()
    assert result.loss == len(samples)
    assert result.num_trained == sum(lengths)
    assert [array.tolist() for array in result.logprobs] == [[-100.0 - n] * length for n, length in enumerate(lengths)]
    assert step.result() is result
    assert step.done()
    assert step.status.endswith("COMPLETED")
    assert sorted(step.idempotency_key.split(",")) == sorted(service.keys)


def test_three_samples_of_400_bytes_under_a_limit_of_1000_are_two_requests(side):
    samples = supervised([45, 45, 45])
    service = Service(size_of(samples) - 1)
    side.double.answer(SUBMIT, service)
    step = side.session().forward_backward(samples, sk.CrossEntropy())
    assert [len(sent(request)) for request in service.accepted] == [2, 1]
    assert len(service.refused) == 1
    assert step.id == "op-1,op-2"


def test_metrics_that_are_means_are_weighed_and_those_of_unknown_meaning_left_out(side):
    samples = supervised([30, 10])
    side.double.answer(SUBMIT, Service(size_of(samples)))
    metrics = side.session().forward_backward(samples, sk.CrossEntropy()).result().metrics
    assert metrics == {"a/mean": pytest.approx((30 * 100 + 10 * 101) / 40)}


@pytest.mark.parametrize("lengths", [[40, 150], [150, 40], [40, 40, 150, 40], [150]])
def test_a_sample_that_is_too_large_alone_is_named_before_anything_is_accepted(side, lengths):
    samples = supervised(lengths)
    service = Service(size_of(supervised([100])))
    side.double.answer(SUBMIT, service)
    index = lengths.index(150)
    with pytest.raises(
        sk.SampleError, match=rf"samples\[{index}\] takes ([\d,]+) bytes.*the limit is {service.limit}"
    ) as caught:
        side.session().forward_backward(samples, sk.CrossEntropy())
    assert f"{len(samples[index].to_json()):,}"[:3] in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert "max_length" in str(caught.value)
    assert service.accepted == []


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("forward", [False, True])
def test_a_refused_batch_of_another_loss_stays_whole_and_the_error_says_why(side, name, forward):
    loss, reason = WHOLE[name]
    side.double.answer(SUBMIT, TOO_LARGE)
    session = side.session()
    with pytest.raises(
        sk.StatusError, match=f"answered 413.*1000 bytes.*not split.*{reason}.*session.batches"
    ) as caught:
        (session.forward if forward else session.forward_backward)(scored([40, 40, 40]), loss)
    assert caught.value.status == 413
    assert len(side.double.calls(SUBMIT)) == 1


@pytest.mark.parametrize("name", WHOLE)
def test_a_batch_of_another_loss_over_the_protocols_limit_is_refused_before_it_is_sent(side, name, monkeypatch):
    limit(monkeypatch, 1000)
    loss, reason = WHOLE[name]
    with pytest.raises(sk.SampleError, match=f"at most 1,000; it is not split.*{reason}"):
        side.session().forward_backward(scored([40, 40, 40]), loss)
    assert side.double.seen == []


def limit(monkeypatch, value):
    monkeypatch.setattr("samplekit.wire.names.PAYLOAD_LIMIT_BYTES", value)
    monkeypatch.setattr("samplekit.wire.requests.PAYLOAD_LIMIT_BYTES", value)


def test_a_sum_over_the_protocols_limit_is_sent_in_parts_that_keep_it(side, monkeypatch):
    samples = supervised([40] * 9)
    limit(monkeypatch, 1000)
    service = Service(1000)
    side.double.answer(SUBMIT, service)
    assert side.session().forward_backward(samples, sk.CrossEntropy()).result().loss == 9
    assert not service.refused
    assert sum(len(sent(request)) for request in service.accepted) == 9


def test_one_sample_over_the_protocols_limit_is_named_before_anything_is_sent(side, monkeypatch):
    limit(monkeypatch, 1000)
    with pytest.raises(
        sk.SampleError, match=r"samples\[1\] takes 1,\d{3} bytes as JSON, and the service takes at most 1,000"
    ):
        side.session().forward_backward(supervised([30, 150]), sk.CrossEntropy())
    assert side.double.seen == []


def test_scoring_with_cross_entropy_and_custom_gradients_are_split_too(side):
    samples = supervised([40, 30, 20])
    service = Service(size_of(samples) - 1)
    side.double.answer(SUBMIT, service)
    found = side.session().forward(samples, sk.CrossEntropy()).result()
    assert [array[0] for array in found.logprobs] == [-100, -101, -102]
    service = Service(1500)
    side.double.answer(SUBMIT, service)
    gradients = [np.full(item.length, 0.125 * n) for n, item in enumerate(samples, 1)]
    step = side.session().custom_forward_backward(samples, gradients)
    assert step.result() is None
    assert len(service.accepted) > 1
    bodies = [json.loads(request.content) for request in service.accepted]
    pairs = [pair for body in bodies for pair in zip(body["samples"], body["gradients"], strict=True)]
    assert {len(item["loss_fn_inputs"]["target_tokens"]["data"]): grad["data"][0] for item, grad in pairs} == {
        40: 0.125, 30: 0.25, 20: 0.375,
    }  # fmt: skip
    assert all(grad["data"] == [grad["data"][0]] * len(grad["data"]) for _, grad in pairs)


@pytest.mark.parametrize("fault", [httpx.Response(400, text="no"), httpx.ConnectError("gone")])
def test_an_error_between_parts_names_those_that_were_accepted(side, fault):
    samples = supervised([40, 40, 40])
    side.double.answer(SUBMIT, TOO_LARGE, operation("PENDING"), fault)
    with pytest.raises(sk.ServiceError, match=r"operations op-1 were accepted before.*do not step"):
        side.session(max_retries=0).forward_backward(samples, sk.CrossEntropy())


def test_a_part_that_fails_is_told_with_its_place(side):
    done = {"id": "op-2", "status": STATUS + "COMPLETED", "output": {"loss": 1.0}}
    failed = operation("FAILED", error={"code": "TRAINING_OPERATION_ERROR_CODE_INTERNAL_ERROR", "message": "boom"})
    side.double.answer(SUBMIT, TOO_LARGE, operation("PENDING"), done)
    side.double.answer(f"GET {OPERATIONS}/.*", operation("RUNNING"), failed)
    step = side.session().forward_backward(supervised([40, 40, 40]), sk.CrossEntropy())
    assert step.status.endswith("PENDING")
    assert not step.done()
    with pytest.raises(sk.OperationFailedError, match=r"boom.*part 1 of 2") as caught:
        step.result()
    assert caught.value.operation_id == "op-1"
    assert step.done()


def test_waiting_for_parts_keeps_one_deadline(side):
    side.double.answer(SUBMIT, TOO_LARGE, of_its_own(operation("PENDING")))
    side.double.answer(f"GET {OPERATIONS}/.*", of_its_own(operation("RUNNING")))
    step = side.session().forward_backward(supervised([40, 40]), sk.CrossEntropy())
    began = side.time.now
    with pytest.raises(sk.OperationTimeoutError, match="part 1 of 2"):
        step.result(timeout=7)
    assert 7 <= side.time.now - began <= 8


def test_a_call_in_parts_is_picked_up_by_its_id(side):
    samples = supervised([40, 30])
    service = Service(size_of(samples))
    side.double.answer(SUBMIT, service)
    session = side.session()
    step = session.forward_backward(samples, sk.CrossEntropy(), return_logprobs=True)
    for number, request in enumerate(service.accepted, 1):
        side.double.answer(
            f"GET {OPERATIONS}/forward-backward/op-{number}", Service(10**9)(request) | {"id": f"op-{number}"}
        )
    again = session.operation(step.id, step.kind).result()
    assert again.loss == 2
    assert [array[0] for array in again.logprobs] == [-100, -101]
    with pytest.raises(sk.SampleError, match="several operations"):
        session.operation("a,b", "optim-step")


def test_leaving_a_session_knows_a_call_in_parts_as_one(side):
    side.double.answer(SUBMIT, TOO_LARGE, of_its_own(operation("PENDING")))
    done, failed = operation("COMPLETED", {"loss": 1}), operation("FAILED", error={"message": "boom"})
    side.double.answer(f"GET {OPERATIONS}/.*", of_its_own(done), of_its_own(failed))
    session = side.client().session(base_model="m")
    with pytest.warns(RuntimeWarning, match="1 failed operations.*boom"), session:
        session.forward_backward(supervised([40, 40]), sk.CrossEntropy())


def test_parts_give_the_gradient_of_the_whole(monkeypatch):
    samples = supervised([40, 25, 33, 18])
    losses = {}
    for name, value in (("whole", None), ("parts", 900)):
        with monkeypatch.context() as patch, LocalService() as service, Client(base_url=service.url) as client:
            if value is not None:
                limit(patch, value)
            with client.session(lora_rank=4, lora_seed=1) as session:
                step = session.forward_backward(samples, sk.CrossEntropy())
                session.optim_step(learning_rate=1e-2, eps=1.0)
                losses[name] = step.result().loss, session.forward(samples[:1], sk.CrossEntropy()).result().loss
                assert ("," in step.id) == (name == "parts")
    assert losses["parts"] == pytest.approx(losses["whole"], rel=1e-5)
