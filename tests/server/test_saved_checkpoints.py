"""Checkpoints of the local service: what other tools load from them, and what training goes on from."""

import httpx
import numpy as np
import pytest
import torch
from peft import PeftModel
from plain_caller import Caller, open_plain
from transformers import AutoModelForCausalLM, AutoTokenizer

from samplekit.server.optimizers import HAS_MUON
from samplekit.wire import names as wire

TOKENS = list(range(40, 60))
ADAM = {"adam_params": {"learning_rate": 3e-3}}
MUON = {"muon_params": {"learning_rate": 3e-3, "adam": {"learning_rate": 3e-3}}}


def trained(open_session, forward_body, make_samples, *, step=ADAM, **options):
    session = open_session(**options)
    for seed in range(2):
        session.output("forward-backward", forward_body(make_samples([15, 22], seed)))
        session.output("optim-step", step)
    return session


def files_of(session, identifier, variant):
    path = wire.DOWNLOAD_CHECKPOINT.path(checkpoint_id=identifier)
    return session.http.get(path, params={"variant": f"CHECKPOINT_VARIANT_{variant}"})


def fetched(session, identifier, variant, folder):
    folder.mkdir()
    for item in files_of(session, identifier, variant).json()["data"]:
        content = httpx.get(item["url"]).raise_for_status().content  # signed: no Authorization
        assert len(content) == int(item["size"])
        (folder / item["filename"]).write_bytes(content)
    return folder


def scores(module):
    with torch.no_grad():
        logits = module(torch.tensor([TOKENS])).logits[0]
    return logits.log_softmax(-1)[range(len(TOKENS) - 1), TOKENS[1:]].numpy()


def served_scores(session):
    session.output("weights-sync", {"weight_sync_type": "WEIGHT_SYNC_TYPE_SYNCHRONOUS"})
    body = {"model_inputs": [{"chunks": [{"encoded_text": {"tokens": TOKENS}}]}], "prompt_logprobs": True,
            "sampling_params": {"max_tokens": 1}}  # fmt: skip
    return np.array(session.output("sample", body)["results"][0]["prompt_logprobs"][1:])


@pytest.mark.parametrize("train_unembed", [True, False])
def test_peft_and_transformers_load_an_adapter_and_its_merged_model(
    open_session, forward_body, make_samples, loaded, tmp_path, train_unembed
):
    lora = {"rank": 4, "train_unembed": train_unembed}
    session = trained(open_session, forward_body, make_samples, lora=lora)
    saved = session.output("inference-checkpoint", {})["checkpoint"]
    assert saved["step"] == "2"
    adapter = fetched(session, saved["id"], "ADAPTER", tmp_path / "adapter")
    merged = fetched(session, saved["id"], "MERGED", tmp_path / "merged")
    expected = served_scores(session)
    whole = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32)
    np.testing.assert_allclose(scores(whole), expected, atol=2e-4)
    assert AutoTokenizer.from_pretrained(merged)("hello").input_ids == loaded.tokenizer("hello").input_ids
    with pytest.warns() if train_unembed else pytest.MonkeyPatch().context():  # peft warns of the tied head
        adapted = PeftModel.from_pretrained(loaded_copy(loaded), adapter)
    np.testing.assert_allclose(scores(adapted), expected, atol=2e-4)
    assert np.abs(scores(loaded.module) - expected).max() > 1e-2  # training did change something


def loaded_copy(loaded):
    module = AutoModelForCausalLM.from_config(loaded.module.config)
    module.load_state_dict(loaded.module.state_dict())
    return module.eval()


def test_transformers_loads_full_weights_which_have_no_adapter(open_session, forward_body, make_samples, tmp_path):
    session = trained(open_session, forward_body, make_samples)
    saved = session.output("inference-checkpoint", {})["checkpoint"]
    whole = AutoModelForCausalLM.from_pretrained(fetched(session, saved["id"], "MERGED", tmp_path / "whole"))
    np.testing.assert_allclose(scores(whole), served_scores(session), atol=2e-4)
    refused = files_of(session, saved["id"], "ADAPTER")
    assert refused.status_code == 400
    assert "MERGED" in refused.json()["error"]["message"]


def test_byte_ranges_are_honoured_and_signatures_required(open_session, forward_body, make_samples):
    session = trained(open_session, forward_body, make_samples, lora={"rank": 2})
    saved = session.output("inference-checkpoint", {})["checkpoint"]
    listed = files_of(session, saved["id"], "ADAPTER").json()["data"]
    item = next(found for found in listed if found["filename"] == "adapter_model.safetensors")
    whole = httpx.get(item["url"]).content
    part = httpx.get(item["url"], headers={"Range": "bytes=100-"})
    assert part.status_code == 206
    assert part.headers["content-range"] == f"bytes 100-{len(whole) - 1}/{len(whole)}"
    assert part.content == whole[100:]
    assert httpx.get(item["url"], headers={"Range": f"bytes={len(whole)}-"}).status_code == 416
    url = httpx.URL(item["url"])
    for forged in (url.copy_set_param("signature", "0" * 64), url.copy_remove_param("signature"),
                   url.copy_with(path=url.path.replace("adapter_model.safetensors", "..%2Frecord.json"))):  # fmt: skip
        assert httpx.get(forged).status_code in {403, 404}


def test_checkpoints_are_listed_shown_and_chosen(open_session, forward_body, make_samples):
    session = trained(open_session, forward_body, make_samples, lora={"rank": 3})
    kinds = ["inference-checkpoint", "training-checkpoint", "inference-checkpoint"]
    made = [session.output(kind, {})["checkpoint"]["id"] for kind in kinds]

    def listed(**query):
        query = {"session_id": session.session_id, **query}
        return session.http.get(wire.LIST_CHECKPOINTS.path(), params=query).json()

    assert [item["id"] for item in listed()["data"]] == made
    first = listed(limit=2)
    assert first["meta"] == {"limit": 2, "has_more": True, "next_cursor": made[1]}
    assert [item["id"] for item in listed(after=made[1])["data"]] == made[2:]
    assert [item["id"] for item in listed(type="CHECKPOINT_TYPE_TRAINING")["data"]] == [made[1]]
    assert listed(base_model="other")["data"] == []
    shown = session.http.get(wire.GET_CHECKPOINT.path(checkpoint_id=made[1])).json()
    assert shown.pop("created_at").endswith("Z")
    assert shown == {"id": made[1], "base_model": "samplekit/tiny", "session_id": session.session_id, "step": "2",
                     "type": "CHECKPOINT_TYPE_TRAINING", "lora_rank": 3}  # fmt: skip
    own = session.http.get(wire.GET_SESSION.path(session_id=session.session_id)).json()
    assert [item["id"] for item in own["inference_checkpoints"]] == made[::2]
    assert [item["id"] for item in own["training_checkpoints"]] == made[1:2]
    assert files_of(session, made[1], "ADAPTER").status_code == 400
    assert files_of(session, made[0], "WHOLE").status_code == 400
    assert files_of(session, "ckpt-none", "ADAPTER").status_code == 404
    assert session.http.get(wire.LIST_CHECKPOINTS.path(), params={"type": "x"}).status_code == 400


def resumed(http, checkpoint, **body):
    options = {name: body.pop(name) for name in ("lora_enabled", "optimizer_config") if name in body}
    resources = http.post(wire.CREATE_RESOURCES.path(), json={"base_model": "samplekit/tiny", **options}).json()["id"]
    request = {"model_resources_id": resources, "resume_from_checkpoint_id": checkpoint, **body}
    answer = http.post(wire.CREATE_SESSION.path(), json=request)
    return answer, (Caller(http, answer.json()["id"], resources) if answer.status_code == 200 else None)


def weights(running, session):
    policy = running.service.sessions[session.session_id].policy
    return {name: weight.detach().clone() for name, weight in policy.trained.named_parameters()}


@pytest.mark.parametrize(
    ("lora", "step", "config"),
    [
        (None, ADAM, {"adam": {}}),
        ({"rank": 4, "dropout": 0.3, "seed": 5}, ADAM, {"adam": {}}),
        pytest.param({"rank": 4}, MUON, {"muon": {}}, marks=pytest.mark.skipif(not HAS_MUON, reason="no Muon")),
    ],
)
def test_a_resumed_run_equals_an_undisturbed_one_bit_for_bit(
    open_session, http, running, forward_body, make_samples, lora, step, config
):
    options = {"lora": lora, "optimizer_config": config}
    undisturbed = trained(open_session, forward_body, make_samples, step=step, **options)
    saved = undisturbed.output("training-checkpoint", {})["checkpoint"]["id"]
    answer, again = resumed(http, saved, lora_enabled=lora is not None, optimizer_config=config)
    assert answer.json()["step"] == "2"
    assert answer.json()["resume_from_checkpoint_id"] == saved
    for session in (undisturbed, again):
        for seed in range(2, 4):
            session.output("forward-backward", forward_body(make_samples([15, 22], seed)))
            last = session.output("optim-step", step)
        assert last == {"step": "4"}
    found = weights(running, again)
    assert all(torch.equal(found[name], weight) for name, weight in weights(running, undisturbed).items())


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_weights_alone_begin_again_at_step_0(open_session, http, running, forward_body, make_samples, lora):
    session = trained(open_session, forward_body, make_samples, lora=lora)
    expected = weights(running, session)
    for kind, members in (("training-checkpoint", {"load_optimizer": False}), ("inference-checkpoint", {})):
        saved = session.output(kind, {})["checkpoint"]["id"]
        answer, again = resumed(http, saved, lora_enabled=lora is not None, **members)
        assert answer.json()["step"] == "0"
        found = weights(running, again)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], weight) for name, weight in expected.items())


def test_a_checkpoint_that_does_not_fit_is_refused(open_session, http, forward_body, make_samples):
    session = trained(open_session, forward_body, make_samples, lora={"rank": 4})
    training = session.output("training-checkpoint", {})["checkpoint"]["id"]
    inference = session.output("inference-checkpoint", {})["checkpoint"]["id"]
    for checkpoint, members, status, mentioned in (
        (training, {"lora_enabled": False}, 400, "lora_enabled=True"),
        (training, {"lora_config": {"rank": 8}}, 400, "lora_config.rank is 8"),
        (training, {"lora_config": {"alpha": 1}}, 400, "lora_config.alpha is 1"),
        (training, {"lora_config": {"train_unembed": False}}, 400, "leave it out to take the checkpoint's"),
        (training, {"optimizer_config": {"muon": {}}}, 400, "load_optimizer=false"),
        (inference, {"load_optimizer": True}, 400, "no optimizer"),
        ("ckpt-none", {}, 404, "ckpt-none"),
    ):
        answer, _ = resumed(http, checkpoint, **members)
        assert answer.status_code == status
        assert mentioned in answer.json()["error"]["message"]
    alone = http.post(
        wire.CREATE_SESSION.path(),
        json={"model_resources_id": open_plain(http, lora={}).resources_id, "load_optimizer": True},
    )
    assert alone.status_code == 400
    assert session.submit("inference-checkpoint", {"step": 1}).status_code == 400


def test_what_a_request_leaves_out_of_an_adapter_is_the_checkpoints(http, running):
    lora = {"rank": 4, "alpha": 3, "dropout": 0.25, "train_unembed": False}
    session = open_plain(http, lora=lora)
    training = session.output("training-checkpoint", {})["checkpoint"]["id"]
    for asked in ({}, {"rank": 4}, {"train_unembed": False, "dropout": 0.0}):
        answer, again = resumed(http, training, lora_config=asked)
        assert answer.status_code == 200, answer.text
        found = running.service.sessions[again.session_id].lora
        assert (found.rank, found.alpha, found.train_unembed) == (4, 3, False)
        assert found.dropout == asked.get("dropout", 0.25)
