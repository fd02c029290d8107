"""Refusals of the service are said as it says them, and what to do about them in Python's words."""

from __future__ import annotations

import httpx
import pytest

import samplekit as sk
from samplekit.client import Client
from samplekit.server import LocalService


@pytest.mark.parametrize(("variant", "other"), [("adapter", "merged"), ("merged", "adapter")])
@pytest.mark.parametrize("answer", [{"data": []}, httpx.Response(400, json={"error": {"message": "no such files"}})])
def test_a_variant_that_cannot_be_had_names_the_other_as_python_does(side, tmp_path, variant, other, answer):
    side.double.answer("GET .*/checkpoints/ck-1/download", answer)
    with pytest.raises(sk.ServiceError, match=f"variant='{other}'"):
        side.client().download("ck-1", tmp_path, variant=variant)


@pytest.mark.parametrize("said", ["ck-1 was trained by Muon, the resources train by the other", "this is full"])
def test_a_checkpoint_of_another_optimizer_says_how_to_go_on_from_it(side, said):
    side.double.answer("GET .*/checkpoints/ck-1", {"id": "ck-1", "base_model": "m"})
    side.double.answer("POST .*/training-sessions", httpx.Response(400, json={"error": {"message": said}}))
    with pytest.raises(sk.StatusError, match=said) as caught:
        side.client().session(resume_from="ck-1")
    assert ("client.create_resources(optimizer='muon')" in str(caught.value)) == ("Muon" in said)
    assert caught.value.status == 400
    assert side.double.calls("POST .*/model-resources/res-1/stop.*")


def test_a_local_service_says_so_too_and_the_advice_holds():
    sample = sk.build_sample([100, 101, 102], [0, 1, 1])
    with LocalService() as service, Client(base_url=service.url) as client:
        with client.create_resources(lora=True, optimizer="muon") as made, made.session(lora_rank=2) as session:
            session.forward_backward([sample], sk.CrossEntropy())
            session.optim_step(muon={"learning_rate": 0.01, "adam": {"learning_rate": 0.01}})
            saved = session.save_training_checkpoint().result()
        with pytest.raises(sk.StatusError, match=r"create_resources\(optimizer='muon'\)"):
            client.session(resume_from=saved.id)
        with client.create_resources(lora=True, optimizer="muon") as made, made.session(resume_from=saved.id) as again:
            assert again.save_training_checkpoint().result().step == saved.step == 1
