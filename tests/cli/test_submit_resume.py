"""A run gone on with after anything: the same batches, every step once, and never under other settings."""

import json

import httpx
import orjson
import pytest
from training_double import SAMPLES, metrics, numbers

import samplekit as sk
from samplekit.cli.submit_state import RunState
from samplekit.files import RunFolder


@pytest.fixture
def undisturbed(submit, service, tmp_path):
    """The steps of a run that nothing disturbs; the service forgets it afterwards."""
    assert submit("--save-every", 3)[0] == 0
    steps = numbers(service.sessions["ts-0"].steps)
    RunState.path_in(tmp_path / "run").unlink()
    service.__init__()
    return steps


def interrupt_at(service, line, number, error, *, when="after", and_after=None):
    """Raise an error at the n-th request of a kind, and another at everything that follows."""
    count = 0

    def trouble(seen, moment):
        nonlocal count
        if and_after is not None and count > number:
            raise and_after
        if moment == when and seen.endswith(line):
            count += 1
            if count == number:
                count += and_after is not None
                raise error

    service.trouble = trouble


@pytest.mark.parametrize("number", [1, 4, 7, 9])
def test_an_interrupted_run_goes_on_from_its_checkpoint_with_the_same_batches(
    submit, service, undisturbed, tmp_path, number
):
    interrupt_at(service, "optim-step", number, KeyboardInterrupt())
    code, _, said = submit("--save-every", 3)
    assert code == 130
    assert service.sessions["ts-0"].status == "STOPPED"
    service.trouble = lambda *_: None
    code, _, _ = submit("--save-every", 3, "--resume")
    assert code == 0
    assert f"saved checkpoint training-checkpoint-{number}" in said
    assert f"goes on after step {number}" in said
    assert service.sessions["ts-1"].resumed == f"training-checkpoint-{number}"
    assert numbers(service.sessions["ts-1"].steps) == undisturbed
    assert [row["step"] for row in metrics(tmp_path)] == list(range(1, 11))


@pytest.mark.parametrize("line", ["forward-backward", "optim-step"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 5])
def test_a_run_whose_service_was_out_of_reach_goes_on_in_its_session_and_applies_every_step_once(
    submit, service, undisturbed, tmp_path, line, when, number
):
    away = httpx.ConnectError("away")
    interrupt_at(service, line, number, away, when=when, and_after=away)
    code, _, said = submit("--save-every", 3)
    assert code == 3
    assert service.sessions["ts-0"].status == "RUNNING"
    assert "the same command goes on after step" in said
    service.trouble = lambda *_: None
    code, _, said = submit("--save-every", 3, "--resume")
    assert (code, said.count("error")) == (0, 0), said
    (session,) = service.sessions.values()
    assert numbers(session.steps) == undisturbed
    assert (session.status, service.stopped_resources) == ("STOPPED", 1)
    assert [row["step"] for row in metrics(tmp_path)] == list(range(1, 11))


def test_a_run_whose_session_ended_meanwhile_goes_on_from_its_checkpoint(submit, service, undisturbed):
    away = httpx.ConnectError("away")
    interrupt_at(service, "optim-step", 8, away, and_after=away)
    assert submit("--save-every", 3)[0] == 3
    service.trouble = lambda *_: None
    service.sessions["ts-0"].status = "EXPIRED"
    code, _, said = submit("--save-every", 3, "--resume")
    assert code == 0
    assert "the run's session is gone" in said
    assert numbers(service.sessions["ts-1"].steps) == undisturbed


def test_a_run_is_gone_on_with_under_the_same_settings_and_samples_only(submit, service, samples, run):
    interrupt_at(service, "optim-step", 5, KeyboardInterrupt())
    submit("--save-every", 3)
    service.trouble = lambda *_: None
    for resume in ([], ["--resume"]):
        code, _, said = submit("--save-every", 3, "--seed", 1, *resume)
        assert (code, "seed was 0 and is 1" in said, "--run-dir" in said) == (2, True, True)
    sk.write_samples(samples, SAMPLES[1:])
    code, _, said = submit()
    assert (code, "samples was" in said) == (2, True)
    sk.write_samples(samples, SAMPLES)
    code, _, said = submit("--save-every", 3)
    assert (code, "is gone on with, after step 5" in said) == (0, True)


def test_there_must_be_a_run_to_go_on_with(submit):
    code, _, said = submit("--resume")
    assert (code, "holds no run" in said) == (2, True)
    assert submit()[0] == 0
    code, _, said = submit("--resume")
    assert (code, "a finished run" in said) == (2, True)


@pytest.mark.parametrize("rest", [b"", b'{"step":3,"lo', b'{"step":9,"loss":1.0}\n{"step":1,"loss":7.0}\n'])
def test_metrics_are_gone_on_with_up_to_a_step(tmp_path, rest):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step":1,"loss":1.0}\n{"step":2,"loss":0.5}\n' + rest)
    folder = RunFolder(tmp_path, resume_at=2)
    folder.log(step=3, loss=0.25)
    assert [row["step"] for row in folder.metrics] == [1, 2, 3]
    assert [json.loads(line) for line in path.read_text().splitlines()] == folder.metrics
    assert RunFolder(tmp_path).metrics == []


def test_a_state_that_cannot_be_read_is_named(submit, tmp_path):
    (tmp_path / "run").mkdir()
    whole = json.loads(orjson.dumps(RunState({"loss": "x"})))
    odd = {"plan": None, "step": "x", "begun": -3, "uploads": None, "held_out": {"a": 1}, "session_id": 5, "odd": 1, "format": 9,
           "submitted": {"0/0": 3}, "complete": "yes", "offset": 0.5}  # fmt: skip
    texts = [b"", b"{", b"[]", b"{}", b"\xff{", *(orjson.dumps({**whole, name: value}) for name, value in odd.items())]
    for text in texts:
        RunState.path_in(tmp_path / "run").write_bytes(text)
        code, _, said = submit()
        assert (code, "run.json" in said, "take another --run-dir" in said) == (1, True, True), text


@pytest.mark.parametrize(
    "rows", [None, b"", b'{"step":1}\n', b'{"step":"x"}\n', b'{"step":1,"loss":"x"}\n', b"other\n"]
)
def test_a_run_whose_metrics_were_lost_is_ended_all_the_same(submit, tmp_path, rows):
    assert submit("--held-out", 4)[0] == 0
    state = RunState.read(tmp_path / "run")
    state.stopped = False
    state.save(tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    path.unlink() if rows is None else path.write_bytes(rows)
    code, shown, _ = submit("--held-out", 4, "--json")
    assert (code, json.loads(shown)["first_loss"]) == (0, None)
    assert RunState.read(tmp_path / "run").finished
