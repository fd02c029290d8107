"""Every row of the table "Who refuses what", column local service."""

import copy
import json

import pytest

from samplekit import build_sample

GOOD = build_sample([5, 6, 7, 8], [0, 1, 1, 1]).to_wire()


def sample(**inputs):
    """A good sample with some inputs replaced, or removed where None."""
    changed = copy.deepcopy(GOOD)
    for name, tensor in inputs.items():
        if tensor is None:
            del changed["loss_fn_inputs"][name]
        else:
            changed["loss_fn_inputs"][name] = tensor
    return changed


def with_tokens(tokens):
    changed = copy.deepcopy(GOOD)
    changed["model_input"]["chunks"][0]["encoded_text"]["tokens"] = tokens
    return changed


def int64(*data):
    return {"data": list(data), "dtype": "int64"}


def float32(*data):
    return {"data": list(data), "dtype": "float32"}


REFUSED = {
    "bool as id": (with_tokens([5, True, 7]), "True"),
    "text as id": (with_tokens([5, "7", 7]), "'7'"),
    "float as id": (with_tokens([5, 1.5, 7]), "1.5"),
    "None as id": (with_tokens([5, None, 7]), "None"),
    "negative id": (with_tokens([5, -1, 7]), "-1"),
    "bool as target": (sample(target_tokens=int64(6, True, 8)), "target_tokens"),
    "text as target": (sample(target_tokens=int64(6, "7", 8)), "target_tokens"),
    "float as target": (sample(target_tokens=int64(6, 7.5, 8)), "target_tokens"),
    "ignore label as target": (sample(target_tokens=int64(6, -100, 8)), "weights 0"),
    "None in weights": (sample(weights=float32(1, None, 1)), "weights"),
    "text in weights": (sample(weights=float32(1, "1", 1)), "weights"),
    "too large for float32": (sample(weights=float32(1, 1e39, 1)), "weights"),
    "weights too short": (sample(weights=float32(1, 1)), "2 values"),
    "targets too long": (sample(target_tokens=int64(6, 7, 8, 9)), "4 values"),
    "empty weights": (sample(weights=float32()), "weights"),
    "empty tokens": (with_tokens([]), "tokens"),
    "no chunks": ({**GOOD, "model_input": {"chunks": []}}, "chunks"),
    "two dimensions": (with_tokens([[5, 6, 7]]), "tokens"),
    "weights in two dimensions": (sample(weights=float32([1, 1, 1])), "weights"),
    "float targets": (sample(target_tokens=float32(6, 7, 8)), "target_tokens"),
    "unknown dtype": (sample(weights={"data": [1, 1, 1], "dtype": "float64"}), "float64"),
    "no dtype": (sample(weights={"data": [1, 1, 1]}), "weights"),
    "weights and mask": (sample(mask=float32(1, 1, 1)), "mask"),
    "nothing trained": (sample(weights=float32(0, 0, 0)), "0 everywhere"),
    "no weights": (sample(weights=None), "weights"),
    "no targets": (sample(target_tokens=None), "target_tokens"),
    "id outside the vocabulary": (with_tokens([5, 2560, 7]), "2560"),
    "target outside the vocabulary": (sample(target_tokens=int64(6, 7, 99999)), "99999"),
    "no tokens at all": ({"loss_fn_inputs": GOOD["loss_fn_inputs"]}, "model_input"),
    "no sample": ("sample", "expected a Sample"),
    "unknown member": ({**GOOD, "labels": [1]}, "labels"),
}


def batch(*samples, **members):
    return {"loss": {"type": "LOSS_TYPE_CROSS_ENTROPY"}, "samples": list(samples), **members}


def refused(session, kind, body):
    answer = session.submit(kind, body)
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]["message"]


@pytest.mark.parametrize("fault", REFUSED)
def test_a_faulty_sample_is_refused_by_name(session, fault):
    faulty, mentioned = REFUSED[fault]
    message = refused(session, "forward-backward", batch(GOOD, faulty))
    assert "samples[1]" in message
    assert mentioned in message


def test_several_faults_are_told_at_once(session):
    message = refused(session, "forward-backward", batch(with_tokens([5, -1, 7]), GOOD, sample(weights=float32(1, 1))))
    assert "samples[0]" in message
    assert "samples[2]" in message


def test_nan_and_infinity_are_no_json(session, http):
    for word in ("NaN", "Infinity", "-Infinity"):
        body = json.dumps(batch(GOOD)).replace("1.0", word, 1).encode()
        path = f"/v1/rl/training-sessions/{session.session_id}/operations/forward-backward"
        answer = http.post(path, content=body, headers={"Idempotency-Key": word})
        assert answer.status_code == 400
        assert "NaN" in answer.json()["error"]["message"]


ACCEPTED = {
    "as it should be": GOOD,
    "an unknown input": sample(notes=float32(1, 2, 3)),
    "int64 weights": sample(weights=int64(0, 1, 1)),
    "a negative weight": sample(weights=float32(-1, 1, 1)),
    "an advantage outside the mask": sample(weights=float32(0, 1, 1), advantages=float32(2, 1, 1)),
    "other targets than the next token": sample(target_tokens=int64(6, 9, 8)),
    "a positive logprob": sample(logprobs=float32(0.5, -1, -1)),
    "several chunks": {**GOOD, "model_input": {"chunks": [{"encoded_text": {"tokens": [item]}} for item in (5, 6, 7)]}},
}


@pytest.mark.parametrize("kind", ACCEPTED)
def test_what_may_be_meant_is_accepted(session, kind):
    assert session.output("forward-backward", batch(ACCEPTED[kind]))["loss"] != 0


def test_what_is_accepted_with_a_doubt_is_logged(session, caplog):
    session.output("forward-backward", batch(GOOD, ACCEPTED["other targets than the next token"]))
    assert any("samples[1]" in record.message and "target_tokens" in record.message for record in caplog.records)


def test_nothing_trained_is_fine_where_nothing_has_to_train(session):
    silent = sample(weights=float32(0, 0, 0))
    scored = session.output("forward-backward", batch(silent, forward_only=True, return_loss_fn_outputs=True))
    assert scored["loss"] == 0
    body = {"samples": [silent], "gradients": [{"data": [0.1, 0.2, 0.3]}]}
    assert session.output("custom-forward-backward", body) == {}


def test_lengths_up_to_the_context_are_taken_and_no_longer_ones(session):
    longest = build_sample([5] * 4097, [1] * 4097)
    assert longest.length == 4096
    session.output("forward-backward", batch(longest.to_wire(), forward_only=True))
    message = refused(session, "forward-backward", batch(GOOD, build_sample([5] * 4098, [1] * 4098).to_wire()))
    assert "samples[1]" in message
    assert "4098" in message


def test_a_batch_of_64_is_taken_and_one_beyond_the_limit_is_not(session):
    session.output("forward-backward", batch(*[GOOD] * 64))
    assert "513" in refused(session, "forward-backward", batch(*[GOOD] * 513))
    assert "samples" in refused(session, "forward-backward", batch())


@pytest.mark.parametrize(
    ("body", "mentioned"),
    [
        ({"samples": [GOOD]}, "loss.type"),
        ({"samples": [GOOD], "loss": {"type": "LOSS_TYPE_HINGE"}}, "LOSS_TYPE_HINGE"),
        (batch(GOOD, forward_only="yes"), "forward_only"),
        (batch(GOOD, epochs=3), "epochs"),
        ({"loss": {"type": "LOSS_TYPE_GRPO", "grpo_params": {"clip_low_threshold": 0.2, "clip_high_threshold": 0.28}},
          "samples": [GOOD]}, "0.28"),
        (batch(GOOD, payload_id="pl-unknown"), "pl-unknown"),
    ],
)  # fmt: skip
def test_a_faulty_forward_backward_is_refused(session, body, mentioned):
    assert mentioned in refused(session, "forward-backward", body)


@pytest.mark.parametrize(
    ("gradients", "mentioned"),
    [
        ([], "0 arrays"),
        ([{"data": [0.1, 0.2]}], "gradients[0]"),
        ([{"data": [0.1, None, 0.2]}], "gradients[0]"),
        ([{"data": [0.1, 0.1, 0.2], "dtype": "float16"}], "gradients[0]"),
        ([[0.1, 0.1, 0.2]], "gradients[0]"),
        (None, "gradients"),
    ],
)
def test_gradients_that_do_not_match_are_refused(session, gradients, mentioned):
    assert mentioned in refused(session, "custom-forward-backward", {"samples": [GOOD], "gradients": gradients})


@pytest.mark.parametrize(
    ("body", "mentioned"),
    [
        ({}, "learning_rate"),
        ({"adam_params": {"beta1": 0.9}}, "learning_rate"),
        ({"adam_params": {"learning_rate": -1.0}}, "adam_params.learning_rate"),
        ({"adam_params": {"learning_rate": 1e-3, "beta1": 1.0}}, "adam_params.beta1"),
        ({"adam_params": {"learning_rate": 1e-3, "momentum": 0.9}}, "adam_params.momentum"),
        ({"adam_params": {"learning_rate": True}}, "adam_params.learning_rate"),
        ({"adam_params": {"learning_rate": "1e-3"}}, "adam_params.learning_rate"),
    ],
)
def test_a_faulty_step_is_refused(session, body, mentioned):
    assert mentioned in refused(session, "optim-step", body)


PROMPT = {"chunks": [{"encoded_text": {"tokens": [5, 6, 7]}}]}


@pytest.mark.parametrize(
    ("changes", "mentioned"),
    [
        ({"model_inputs": []}, "model_inputs"),
        ({"model_inputs": [PROMPT, {"chunks": []}]}, "model_inputs[1]"),
        ({"model_inputs": [PROMPT, {"chunks": [{"encoded_text": {"tokens": [5, -1]}}]}]}, "model_inputs[1]"),
        ({"model_inputs": [PROMPT, {"chunks": [{"encoded_text": {"tokens": [5, 4000]}}]}]}, "4000"),
        ({"num_samples": 0}, "num_samples"),
        ({"num_samples": True}, "num_samples"),
        ({"topk_prompt_logprobs": 21}, "topk_prompt_logprobs"),
        ({"sampling_params": {"stop": [151645]}}, "sampling_params.stop[0]"),
        ({"sampling_params": {"stop": [""]}}, "sampling_params.stop[0]"),
        ({"sampling_params": {"stop": "x"}}, "sampling_params.stop"),
        ({"sampling_params": {"temperature": -0.1}}, "sampling_params.temperature"),
        ({"sampling_params": {"top_p": 0}}, "sampling_params.top_p"),
        ({"sampling_params": {"top_p": 1.1}}, "sampling_params.top_p"),
        ({"sampling_params": {"top_k": -2}}, "sampling_params.top_k"),
        ({"sampling_params": {"max_tokens": 0}}, "sampling_params.max_tokens"),
        ({"sampling_params": {"max_tokens": 4094}}, "4096"),
        ({"model_inputs": [PROMPT, {"chunks": [{"encoded_text": {"tokens": [5] * 4096}}]}]}, "model_inputs[1]"),
    ],
)
def test_a_faulty_sample_request_is_refused(session, changes, mentioned):
    assert mentioned in refused(session, "sample", {"model_inputs": [PROMPT], **changes})


def test_a_refused_operation_leaves_nothing_behind(session, running):
    before = len(running.service.operations)
    refused(session, "forward-backward", batch(with_tokens([5, -1, 7])))
    assert len(running.service.operations) == before
    key = "refused-then-mended"
    assert session.submit("forward-backward", batch(with_tokens([5, -1, 7])), key).status_code == 400
    assert session.submit("forward-backward", batch(GOOD), key).status_code == 200
