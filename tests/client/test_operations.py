"""Operations: polled, collected once, failed by name, picked up by another process."""

from __future__ import annotations

import json
import pickle

import httpx
import numpy as np
import pytest
from service_double import OPERATIONS, SESSION, STATUS, operation

import samplekit as sk
from samplekit.client import as_completed

SUBMIT = f"POST {OPERATIONS}/.*"
POLL = f"GET {OPERATIONS}/.*"
PENDING = operation("PENDING")
DONE = operation("COMPLETED", {"step": "7"})


def lost(request):
    raise httpx.ReadTimeout("slow", request=request)


def test_an_answer_that_is_complete_at_once_is_not_polled(side):
    side.double.answer(SUBMIT, DONE)
    step = side.session().optim_step(learning_rate=1.0)
    assert step.result() == step.result() == 7
    assert not side.double.calls(POLL)


def test_an_operation_is_polled_until_it_is_finished_and_unknown_statuses_go_on(side):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, PENDING, operation("RUNNING"), operation("REFRIGERATED"), {"id": "op-1"}, DONE)
    step = side.session().optim_step(learning_rate=1.0)
    assert step.result() == 7
    assert (step.id, step.kind) == ("op-1", "optim-step")
    assert side.time.pauses == [0.5] * 4
    assert step.result() == 7
    assert len(side.double.calls(POLL)) == 5


def test_polls_grow_apart_on_long_operations(side):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, *[PENDING] * 60, DONE)
    side.session().optim_step(learning_rate=1.0).result()
    pauses = side.time.pauses
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.5, 5.0)


@pytest.mark.parametrize("timeout", ["5", float("nan"), float("inf"), True, -1, -0.5])
def test_a_timeout_that_is_none_is_refused_by_value(side, timeout):
    side.double.answer(SUBMIT, PENDING)
    step = side.session().optim_step(learning_rate=1.0)
    with pytest.raises(sk.SampleError, match=r"timeout is .*, expected seconds of 0 or more, or None"):
        step.result(timeout=timeout)
    assert not side.double.calls(POLL)


def test_a_timeout_keeps_the_operation_and_asking_again_works(side):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, *[PENDING] * 8, DONE)
    step = side.session().optim_step(learning_rate=1.0)
    with pytest.raises(sk.OperationTimeoutError, match="ask again") as caught:
        step.result(timeout=2.2)
    assert (caught.value.operation_id, caught.value.kind) == ("op-1", "optim-step")
    assert isinstance(caught.value, TimeoutError)
    assert sum(side.time.pauses) == pytest.approx(2.2)
    assert pickle.loads(pickle.dumps(caught.value)).operation_id == "op-1"
    assert step.result(timeout=None) == 7
    assert len(side.double.calls(SUBMIT)) == 1


@pytest.mark.parametrize("fault", [lost, httpx.Response(503), httpx.Response(429, headers={"retry-after": "50"})])
def test_a_deadline_is_obeyed_through_faults(side, fault):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, fault)
    step = side.session().optim_step(learning_rate=1.0)
    began = side.time.now
    with pytest.raises(sk.OperationTimeoutError):
        step.result(timeout=5.0)
    assert side.time.now - began == pytest.approx(5.0)


def test_an_answer_that_is_there_when_the_deadline_comes_is_taken(side):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, PENDING, PENDING, DONE)
    assert side.session().optim_step(learning_rate=1.0).result(timeout=0.9) == 7
    assert side.time.pauses == [0.5, pytest.approx(0.4)]


@pytest.mark.parametrize("fault", [httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout])
@pytest.mark.parametrize("timeout", [300.0, None])
def test_a_service_that_stays_away_ends_the_wait_and_the_operation_stays_usable(side, fault, timeout):
    def away(request):
        raise fault("away", request=request)

    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, *[away] * 8, DONE)
    step = side.session().optim_step(learning_rate=1.0)
    with pytest.raises(sk.ConnectionFailedError, match="get optim-step operation op-1 after 8 tries"):
        step.result(timeout)
    assert step.result() == 7


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("NON_FINITE_LOSS", "learning rate"),
        ("RESOURCE_EXHAUSTED", "fewer or shorter"),
        ("TIMEOUT", "try again"),
        ("INTERNAL_ERROR", "report"),
        ("SESSION_NOT_ACTIVE", "open a new one"),
        ("INVALID_INPUT", "samplekit.check"),
        ("BRAND_NEW", "see the service's message"),
    ],
)
def test_a_failed_operation_says_its_code_and_what_to_do(side, sample, code, advice):
    full = f"TRAINING_OPERATION_ERROR_CODE_{code}"
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, operation("FAILED", error={"code": full, "message": "samples[3] is odd"}))
    train = side.session().forward_backward([sample], sk.CrossEntropy())
    for _ in range(2):
        with pytest.raises(sk.OperationFailedError, match=advice) as caught:
            train.result()
    assert (caught.value.code, caught.value.kind) == (full, "forward-backward")
    assert "samples[3] is odd" in str(caught.value)
    assert len(side.double.calls(POLL)) == 1


@pytest.mark.parametrize("error", [None, [], "text", {}, {"code": None, "message": None}, {"message": {"a": 1}}])
def test_a_failure_with_an_odd_error_is_still_a_failure(side, error):
    side.double.answer(SUBMIT, operation("FAILED", error=error))
    with pytest.raises(sk.OperationFailedError):
        side.session().optim_step(learning_rate=1.0).result()


def test_training_gives_loss_metrics_logprobs_and_the_mean(side, sample):
    output = {
        "loss": "3.0",
        "metrics": {"a": 1, "odd": None, "b": 0.5},
        "loss_fn_outputs": [{"tensors": {"logprobs": {"data": [0, 0, -0.5, -1.5, -1], "dtype": "float32"}}}],
        "new_member": 1,
    }
    side.double.answer(SUBMIT, operation("COMPLETED", output))
    result = side.session().forward_backward([sample], sk.CrossEntropy(), return_logprobs=True).result()
    assert (result.loss, result.num_trained, result.mean_loss) == (3.0, 3, 1.0)
    assert result.metrics == {"a": 1.0, "b": 0.5}
    assert result.logprobs[0].tolist() == [0, 0, -0.5, -1.5, -1]
    assert result.logprobs[0].dtype == np.float32


def test_only_a_sum_has_a_mean(side, sample):
    rl = sk.build_sample(sample.tokens, sample.loss_mask, advantages=1.0, logprobs=[-0.5] * 6)
    side.double.answer(SUBMIT, operation("COMPLETED", {"loss": 3.0}))
    result = side.session().forward_backward([rl], sk.GRPO()).result()
    assert result.logprobs is None
    with pytest.raises(sk.SampleError, match="GRPO"):
        _ = result.mean_loss


def test_a_payload_completes_a_result_and_wins_over_what_is_inline(side, sample):
    side.double.answer(SUBMIT, operation("COMPLETED", {"loss": 1.0, "metrics": {"a": 1.0}, "payload_id": "out"}))
    side.double.answer("POST .*/payloads/out/download-url", {"download_url": "https://store.example/out?sig=1"})
    tensors = {"tensors": {"logprobs": {"data": [-1, -1, -1, -1, -1], "dtype": "float32"}}}
    side.double.answer("GET /out", {"loss": 2.0, "loss_fn_outputs": [tensors]})
    result = side.session().forward([sample], sk.CrossEntropy()).result()
    assert (result.loss, result.metrics) == (2.0, {"a": 1.0})
    assert result.logprobs[0].tolist() == [-1] * 5
    (got,) = side.double.calls("GET /out.*")
    assert "authorization" not in got.headers


@pytest.mark.parametrize("body", [b"[1]", b"{", b""])
def test_a_payload_that_is_no_object_is_a_named_error(side, sample, body):
    side.double.answer(SUBMIT, operation("COMPLETED", {"loss": 1.0, "payload_id": "out"}))
    side.double.answer("POST .*/payloads/out/download-url", {"download_url": "https://store.example/out?sig=1"})
    side.double.answer("GET /out", httpx.Response(200, content=body))
    with pytest.raises(sk.ServiceError, match="download payload out") as caught:
        side.session().forward([sample], sk.CrossEntropy()).result()
    assert "sig" not in str(caught.value)


@pytest.mark.parametrize(
    "output",
    [
        None, {}, [], {"loss": None}, {"loss": "x"}, {"loss": 1, "loss_fn_outputs": 3}, {"loss": 1, "loss_fn_outputs": [{}]},
        {"loss": 1, "loss_fn_outputs": [{"tensors": {"logprobs": {"data": ["a"]}}}]},
        {"loss": 1, "loss_fn_outputs": [{"tensors": {"logprobs": {"data": [0.0]}}}]},
    ],
)  # fmt: skip
def test_an_odd_output_is_a_named_error(side, sample, output):
    side.double.answer(SUBMIT, {**operation("COMPLETED"), "output": output})
    with pytest.raises(sk.OperationError, match="op-1"):
        side.session().forward_backward([sample], sk.CrossEntropy()).result()


def test_generated_groups_convert_decimal_strings_and_keep_what_came(side):
    sequence = {"tokens": ["9707", "151645"], "logprobs": [-0.5, -0.01], "stop_reason": "STOP_REASON_STOP"}
    result = {
        "sequences": [sequence, {**sequence, "tokens": [1, 2], "routed_experts_key": "rk"}],
        "prompt_logprobs": [0, -1, -2],
    }
    side.double.answer(SUBMIT, operation("COMPLETED", {"results": [result, {"sequences": [sequence]}]}))
    first, second = side.session().generate([[1, 2, 3], [4]], num_samples=2).result()
    assert first.prompt.tolist() == [1, 2, 3]
    assert [item.tokens.tolist() for item in first.completions] == [[9707, 151645], [1, 2]]
    assert first.completions[0].stop_reason == "stop"
    assert first.completions[1].routed_experts_key == "rk"
    assert first.prompt_logprobs.tolist() == [0, -1, -2]
    assert second.prompt_logprobs is None
    assert first.id != second.id


def test_the_first_logprob_of_a_prompt_may_be_null_and_no_other_one(side):
    sequence = {"tokens": [1], "logprobs": [-0.5]}

    def result(logprobs):
        found = {"sequences": [sequence], "prompt_logprobs": logprobs}
        side.double.answer(SUBMIT, operation("COMPLETED", {"results": [found]}))
        return side.session().generate([[1, 2, 3]]).result()

    assert result([None, -1, -2])[0].prompt_logprobs.tolist() == [0, -1, -2]
    assert result(None)[0].prompt_logprobs is result([])[0].prompt_logprobs is None
    for bad in ([0, None, -2], [[0, -1, -2]], [None, [-1], -2], 3):
        with pytest.raises(sk.OperationError, match=r"results\[0\]\.prompt_logprobs"):
            result(bad)


@pytest.mark.parametrize("logprobs", [None, [-0.5], [-0.5, float("nan")], [-0.5, 0.2], [-0.5, None]])
def test_a_completion_that_cannot_be_trained_is_named(side, logprobs):
    good = {"tokens": [1, 2], "logprobs": [-0.5, -0.01]}
    bad = {"tokens": [1, 2], "logprobs": logprobs}
    answer = operation("COMPLETED", {"results": [{"sequences": [good]}, {"sequences": [good, bad]}]})
    side.double.answer(SUBMIT, httpx.Response(200, content=json.dumps(answer).encode()))
    with pytest.raises(sk.SampleError, match=r"results\[1\].sequences\[1\]"):
        side.session().generate([[1], [2]]).result()


def test_as_completed_gives_operations_as_they_finish(side):
    for name in ("a", "b", "c"):
        pending = {"id": name, "status": STATUS + "PENDING"}
        polls = {"a": 6, "b": 1, "c": 2}[name]
        side.double.answer(f"GET {OPERATIONS}/optim-step/{name}", *[pending] * polls, {**DONE, "id": name})
    side.double.answer(SUBMIT, *({"id": name, "status": STATUS + "PENDING"} for name in ("a", "b", "c")))
    session = side.session()
    steps = [session.optim_step(learning_rate=1.0) for _ in range(3)]
    if side.kind == "blocking":
        finished = [item.id for item in as_completed(steps)]
    else:
        inner = [item._inner for item in steps]

        async def collect():
            return [item.id async for item in as_completed(inner)]

        finished = side.loop.run_until_complete(collect())
    assert finished == ["b", "c", "a"]
    assert list(as_completed([])) == []


def test_an_operation_is_picked_up_by_id_and_kind(side):
    side.double.answer(POLL, DONE)
    session = side.session()
    assert session.operation("op-1", "optim-step").result() == 7
    assert side.double.seen[0].path == f"/v1/rl/training-sessions/{SESSION}/operations/optim-step/op-1"
    side.double.answer(POLL, operation("COMPLETED", {"loss": 2.0}))
    result = session.operation("op-1", "forward-backward").result()
    assert (result.loss, result.num_trained) == (2.0, None)
    with pytest.raises(sk.SampleError, match="prompts"):
        session.operation("op-1", "sample")
    with pytest.raises(sk.SampleError, match="kind"):
        session.operation("op-1", "sampling")


def test_an_operations_repr_says_what_it_is(side):
    side.double.answer(SUBMIT, PENDING)
    assert "optim-step op-1: PENDING" in repr(side.session().optim_step(learning_rate=1.0))
