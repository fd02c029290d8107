"""Options of the service beyond the page of signatures, under the service's own names, on both sides."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from service_double import OPERATIONS, READY, operation

import samplekit as sk
from samplekit.client import Client, DrawnGroup
from samplekit.server import LocalService

EXCHANGES = json.loads((Path(__file__).parents[1] / "data" / "wire" / "exchanges.json").read_text())
SUBMIT = f"POST {OPERATIONS}/.*"
CHECKPOINT = {"id": "c", "step": "3", "base_model": "m", "type": "CHECKPOINT_TYPE_TRAINING", "lora_rank": 8}
OPENING = {
    "lora_rank": 8, "lora_dropout": 0.25, "lora_train_unembed": False, "metadata": {"a": {"b": "c"}},
    "resume_from": "c", "load_optimizer": False,
}  # fmt: skip
OPENED = {
    "model_resources_id": "res-1", "lora_config": {"rank": 8, "dropout": 0.25, "train_unembed": False},
    "metadata": {"a": {"b": "c"}}, "resume_from_checkpoint_id": "c", "load_optimizer": False,
}  # fmt: skip


def opened(side, way):
    side.double.answer("GET .*/checkpoints/c", CHECKPOINT)
    if way == "client":
        return side.client().session(base_model="m", **OPENING)
    return side.client().attach_resources("res-1").session(**OPENING)


@pytest.mark.parametrize("way", ["client", "resources"])
def test_a_session_is_opened_with_every_setting_of_the_protocol(side, way):
    opened(side, way).detach()
    (seen,) = side.double.calls("POST .*/training-sessions")
    assert seen.body == OPENED


def test_settings_left_out_are_not_sent(side):
    side.client().session(base_model="m", lora_rank=8).detach()
    assert side.double.calls("POST .*/training-sessions")[0].body == {
        "model_resources_id": READY["id"],
        "lora_config": {"rank": 8},
    }


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lora_dropout": 1.0}, "lora_dropout is 1.0"), ({"lora_dropout": -0.1}, "lora_dropout"),
        ({"lora_dropout": "0"}, "lora_dropout"), ({"lora_train_unembed": 1}, "lora_train_unembed"),
        ({"lora_rank": None, "lora_dropout": 0.1}, "pass lora_rank"),
        ({"lora_rank": None, "lora_train_unembed": True}, "pass lora_rank"),
        ({"metadata": "a"}, "metadata is 'a', expected a mapping"), ({"metadata": {"a": float("nan")}}, "metadata.a"),
        ({"metadata": {1: "a"}}, "metadata"), ({"load_optimizer": True}, "pass resume_from"),
        ({"load_optimizer": 1, "resume_from": "c"}, "load_optimizer is 1"),
    ],
)  # fmt: skip
def test_a_setting_that_is_none_is_refused_before_anything_is_paid(side, settings, words):
    with pytest.raises(sk.SampleError, match=words):
        side.client().session(**{"base_model": "m", "lora_rank": 8, **settings})
    assert side.double.seen == []


def test_alternatives_of_a_prompt_and_experts_are_asked_for_and_read(side):
    side.double.answer(SUBMIT, {**EXCHANGES[42]["response_body"], "id": "op-1"})
    (group,) = side.session().generate([[100, 101, 102]], topk_prompt_logprobs=2, return_routed_experts=True).result()
    body = side.double.seen[0].body
    assert (body["topk_prompt_logprobs"], body["return_routed_experts"]) == (2, True)
    assert isinstance(group, DrawnGroup)
    assert [item.token_ids.tolist() for item in group.topk_prompt_logprobs] == [[], [1, 2], [1, 2]]
    assert group.topk_prompt_logprobs[1].logprobs == pytest.approx([-0.1, -2.0])
    scored = group.with_rewards([1.0, 0.0])
    assert [item.reward for item in scored.completions] == [1.0, 0.0]
    assert scored.topk_prompt_logprobs == group.topk_prompt_logprobs
    with pytest.raises(ValueError, match="read-only"):
        group.topk_prompt_logprobs[1].token_ids[0] = 3


@pytest.mark.parametrize(
    "found", [[{}], 3, [{}, {}, {"token_ids": [1], "logprobs": []}], [{}, {}, {"token_ids": ["x"], "logprobs": [0]}]]
)
def test_odd_alternatives_are_a_named_error(side, found):
    result = {"sequences": [{"tokens": [1], "logprobs": [-0.5]}], "topk_prompt_logprobs": found}
    side.double.answer(SUBMIT, operation("COMPLETED", {"results": [result]}))
    with pytest.raises(sk.OperationError, match="topk_prompt_logprobs"):
        side.session().generate([[1, 2, 3]], topk_prompt_logprobs=1).result()


@pytest.mark.parametrize(
    "settings",
    [{"topk_prompt_logprobs": 21}, {"topk_prompt_logprobs": -1}, {"topk_prompt_logprobs": True}, {"return_routed_experts": 1}],
)  # fmt: skip
def test_an_option_out_of_range_is_refused_by_name(side, settings):
    session = side.session()
    with pytest.raises(sk.SampleError, match=next(iter(settings))):
        session.generate([[1]], **settings)
    assert side.double.seen == []


def test_the_local_service_takes_every_option():
    with LocalService() as service, Client(base_url=service.url) as client:
        with client.session(lora_rank=4, lora_dropout=0.1, lora_train_unembed=False, metadata={"a": "b"}) as session:
            session.annotate({"c": "d"})
            assert client.sessions()[0].metadata == {"a": "b", "c": "d"}
            (group,) = session.generate(
                [[5, 6, 7]], max_tokens=2, prompt_logprobs=True, topk_prompt_logprobs=3
            ).result()
            shown = group.topk_prompt_logprobs
            assert [len(item.token_ids) for item in shown] == [0, 3, 3]
            assert all(np.diff(item.logprobs).max() <= 0 for item in shown[1:])
            saved = session.save_training_checkpoint().result()
            session.save_inference_checkpoint().result()
        with client.session(resume_from=saved.id, lora_train_unembed=False, load_optimizer=False) as again:
            assert again.generate([[5]], max_tokens=1).result()
