"""A run gone on with where the service takes other batches by now: none of its samples is skipped or trained twice."""

import json

import httpx
import pytest
import training_double
from training_double import URL

from samplekit.cli.submit_state import RunState


@pytest.fixture
def submit_plainly(run, samples, service, tmp_path):
    """Submit with the batch size left to the model, whose limit is given."""

    def call(limit, *more, monkeypatch):
        limits = {**training_double.LIMITS, "max_batch_size": limit}
        model = json.loads(json.dumps(training_double.MODEL))
        model["compute_configs"][0]["trainer_config"] = {"lora": limits, "full": limits}
        monkeypatch.setattr(training_double, "MODEL", model)
        return run("submit", samples, "-m", "samplekit/tiny", "--base-url", URL, "--run-dir", tmp_path / "run", *more)

    return call


def break_off(service, line, number):
    """Answer nothing from the n-th request of a kind on."""

    def trouble(_line, _when):
        if sum(seen[0].endswith(line) for seen in service.seen) >= number:
            raise httpx.ConnectError("away")

    service.trouble = trouble


@pytest.mark.parametrize("limit", [2, 8])
def test_a_run_whose_batches_would_be_others_is_not_gone_on_with(submit_plainly, service, tmp_path, monkeypatch, limit):
    break_off(service, "optim-step", 4)
    assert submit_plainly(4, monkeypatch=monkeypatch)[0] == 3
    service.trouble = lambda *_: None
    before = (tmp_path / "run" / "run.json").read_bytes()
    code, _, said = submit_plainly(limit, monkeypatch=monkeypatch)
    assert (code, "max_batch_size" in said, "--run-dir" in said) == (2, True, True), said
    assert (tmp_path / "run" / "run.json").read_bytes() == before
    assert submit_plainly(4, monkeypatch=monkeypatch)[0] == 0
    (session,) = service.sessions.values()
    trained = [
        item["model_input"]["chunks"][0]["encoded_text"]["tokens"]
        for step in session.steps for batch in step["gradients"] for item in batch
    ]  # fmt: skip
    expected = [sample.model_input.tokens.tolist() for sample in training_double.SAMPLES]
    assert sorted(trained) == sorted(expected)


def test_a_run_that_has_not_begun_takes_the_batches_of_now(submit_plainly, service, tmp_path, monkeypatch):
    break_off(service, "forward-backward", 1)
    assert submit_plainly(4, monkeypatch=monkeypatch)[0] == 3
    assert RunState.read(tmp_path / "run").step == 0
    service.trouble = lambda *_: None
    service.sessions["ts-0"].status = "EXPIRED"
    assert submit_plainly(8, monkeypatch=monkeypatch)[0] == 0
    assert [len(step["gradients"][0]) for step in service.sessions["ts-1"].steps] == [6, 7, 7]
