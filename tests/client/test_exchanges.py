"""Request bodies equal those recorded from the vendor's SDK, for every call this client makes."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import pytest
from body_comparison import differences
from service_double import OPERATIONS, operation

import samplekit as sk

EXCHANGES = json.loads((Path(__file__).parents[1] / "data" / "wire" / "exchanges.json").read_text())
LOSSES = {
    9: sk.CrossEntropy(),
    11: sk.CrossEntropy(),
    13: sk.CrossEntropy(),
    15: sk.GRPO(aggregation="token_mean"),
    17: sk.GRPO(beta=0.05),
    19: sk.PPO(),
    21: sk.CISPO(),
    23: sk.DRO(beta=0.05),
    25: sk.DPPO(),
    27: sk.ImportanceSampling(),
}
ADAM = {
    "learning_rate": 0.0001, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "grad_clip_norm": 1.0,
}  # fmt: skip
METADATA = {"wandb": {"entity": "me", "project": "p"}}
MUON = {"learning_rate": 0.001, "momentum": 0.95, "newton_schulz_steps": 5, "adam": {"learning_rate": 0.0001}}


def samples_of(index):
    return [sk.Sample.from_wire(item) for item in EXCHANGES[index]["request_body"]["samples"]]


def train(index):
    body = EXCHANGES[index]["request_body"]

    def call(session):
        if body.get("forward_only"):
            return session.forward(samples_of(index), LOSSES[index])
        outputs = body.get("return_loss_fn_outputs", False)
        return session.forward_backward(samples_of(index), LOSSES[index], return_logprobs=outputs)

    return call


def custom(index):
    gradients = [item["data"] for item in EXCHANGES[index]["request_body"]["gradients"]]
    return lambda session: session.custom_forward_backward(samples_of(index), gradients)


def generate(index, **options):
    prompts = [
        [token for chunk in item["chunks"] for token in chunk["encoded_text"]["tokens"]]
        for item in EXCHANGES[index]["request_body"]["model_inputs"]
    ]
    return lambda session: session.generate(prompts, **options)


CALLS = {
    **{index: train(index) for index in LOSSES},
    29: custom(29),
    31: custom(31),
    33: lambda session: session.optim_step(**ADAM),
    35: lambda session: session.optim_step(),
    37: lambda session: session.optim_step(muon=MUON),
    39: lambda session: session.weights_sync(),
    41: generate(
        41, num_samples=2, prompt_logprobs=True, topk_prompt_logprobs=2, max_tokens=64, stop=["<|im_end|>"], seed=42
    ),
    43: generate(43),
    45: generate(45, prompt_logprobs=True, max_tokens=1),
}


@pytest.mark.parametrize("index", CALLS)
def test_a_call_sends_what_the_sdk_sends(side, index):
    recorded = EXCHANGES[index]
    side.double.answer(f"POST {OPERATIONS}/.*", operation("PENDING"))
    session = side.session()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CALLS[index](session)
    (seen,) = side.double.seen
    assert (seen.method, seen.path) == (recorded["method"], recorded["path"].replace("{session_id}", "sess-1"))
    assert list(differences(seen.body, recorded["request_body"])) == []
    assert b" " not in seen.content.replace(b"<|im_end|>", b"")


LONG = 60_000


def test_a_large_batch_sends_the_sdks_stand_in(side):
    long = sk.build_sample(range(LONG + 1), [1] * (LONG + 1))
    uploads = check_large(side, 58, lambda s: s.forward_backward([long, *samples_of(11)], sk.CrossEntropy()))
    payload = uploads[0].body
    assert [sk.Sample.from_wire(item) for item in payload["samples"]] == [long, *samples_of(11)]
    assert "payload_id" not in payload


def test_chunks_of_a_large_sample_share_the_stand_ins_budget(side):
    chunks = [sk.EncodedText([1, 2, 3, 4, 5]), sk.EncodedText(range(LONG)), sk.EncodedText([7])]
    inputs = {
        "target_tokens": sk.TensorData(range(LONG + 6), "int64"),
        "weights": sk.TensorData([1] * (LONG + 6), "int64"),
    }

    def call(session):
        session.allow = {"target_not_next"}  # the recorded sample's targets are not its next tokens
        return session.forward_backward([sk.Sample(sk.ModelInput(chunks), inputs)], sk.CrossEntropy())

    check_large(side, 61, call)


def test_a_large_gradient_and_large_prompts_are_uploaded(side):
    long = sk.build_sample(range(LONG + 1), [1] * (LONG + 1))
    bare = sk.Sample(long.model_input, {"target_tokens": long.loss_fn_inputs["target_tokens"]})
    check_large(side, 64, lambda s: s.custom_forward_backward([bare], [[0.1] * LONG]))
    check_large(side, 67, lambda s: s.generate([range(2 * LONG)]))


def check_large(side, index, call):
    recorded = EXCHANGES[index]
    side.double.seen.clear()
    side.double.answer("POST .*/payloads/upload-url", EXCHANGES[57]["response_body"])
    side.double.answer("PUT /r2/pl-in-1", {})
    side.double.answer(f"POST {OPERATIONS}/.*", operation("PENDING"))
    session = side.session()
    call(session)
    assert [item.method for item in side.double.seen] == ["POST", "PUT", "POST"]
    ask, put, post = side.double.seen
    assert ask.content == b""
    assert "authorization" not in put.headers
    assert "idempotency-key" not in put.headers
    assert put.url == EXCHANGES[57]["response_body"]["upload_url"]
    assert int(put.headers["content-length"]) == len(put.content) > 524_288
    assert post.path.replace("sess-1", "{session_id}") == recorded["path"]
    assert list(differences(post.body, recorded["request_body"])) == []
    return [put]


def test_flags_never_go_into_an_upload(side):
    side.double.answer("POST .*/payloads/upload-url", EXCHANGES[57]["response_body"])
    side.double.answer("PUT /r2/pl-in-1", {})
    side.double.answer(f"POST {OPERATIONS}/.*", operation("PENDING"))
    long = sk.build_sample(range(LONG + 1), [1] * (LONG + 1))
    side.session().forward([long], sk.CrossEntropy())
    _, put, post = side.double.seen
    assert set(put.body) == {"loss", "samples"}
    assert post.body["forward_only"] is post.body["return_loss_fn_outputs"] is True


def test_opening_and_stopping_a_session_sends_what_the_sdk_sends(side):
    client = side.client()
    side.double.answer("POST .*/estimate-cost", EXCHANGES[1]["response_body"])
    cost = client.estimate_cost(base_model="Qwen/Qwen3.8-27B", lora_rank=32)
    assert (cost.currency, cost.price_per_hour) == ("USD", 12.5)
    with client.session(base_model="Qwen/Qwen3.8-27B", lora_rank=32, lora_seed=7, name="run-1", metadata=METADATA):
        pass
    recorded = {1: "estimate-cost", 7: "training-sessions"}
    for index, name in recorded.items():
        (seen,) = side.double.calls(f"POST .*/{name}")
        expected = json.loads(json.dumps(EXCHANGES[index]["request_body"]).replace("{resources_id}", "res-1"))
        assert list(differences(seen.body, expected)) == []
    side.double.seen.clear()
    client.create_resources(base_model="Qwen/Qwen3.8-27B", lora=True, optimizer="adam", inactive_timeout=3600).stop()
    assert list(differences(side.double.calls("POST .*/model-resources")[0].body, EXCHANGES[3]["request_body"])) == []
    last = side.double.seen[len(side.double.seen) - 1]
    assert (last.method, last.path) == ("POST", "/v1/rl/model-resources/res-1/stop?force=true")
    assert last.content == b""


def test_every_recorded_kind_of_call_is_compared_here_or_in_the_tests_of_resources():
    elsewhere = re.compile(r".*(extend_expiry|update).*")
    built = {*CALLS, 1, 3, 7, 58, 61, 64, 67}
    missing = [
        item["call"]
        for index, item in enumerate(EXCHANGES)
        if item["request_body"] is not None and index not in built and not elsewhere.match(item["call"])
    ]
    assert missing == ["result payload download", "operation FAILED"]  # bodies equal to exchange 9 and 11


@pytest.mark.parametrize(
    ("ours", "recorded"),
    [
        ({"a": 1.0}, {"a": 1.0 + 1e-6}),
        ({"a": 1}, {"a": 2}),
        ({"a": True}, {"a": 1}),
        ({"a": "1"}, {"a": 1}),
        ({"a": None}, {}),
        ({}, {"a": None}),
        ({"a": [1, 2]}, {"a": [1]}),
        ({"b": {"weights": {"data": [1.0], "dtype": "float32"}}}, {"b": {"weights": {"data": [0], "dtype": "int64"}}}),
        ({"x": {"dtype": "float32"}}, {"x": {"dtype": "int64"}}),
        ({"sampling_params": {"top_p": 0.5}}, {"sampling_params": {"top_p": 1.0}}),
    ],
)
def test_the_comparison_can_fail(ours, recorded):
    assert list(differences(ours, recorded))


def test_the_comparison_accepts_float32_and_what_we_always_send():
    assert not list(differences({"a": 0.1}, {"a": 0.10000000149011612}))
    assert not list(differences({"sampling_params": {"top_p": 1.0}}, {}))
