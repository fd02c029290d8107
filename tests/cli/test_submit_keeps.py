"""What was there before a run, or is left by one, is not lost: files of others, saved weights, what an earlier run wrote."""

import errno
import json
import os

import httpx
import pytest
from training_double import FILE

from samplekit.cli.submit_run import Run
from samplekit.cli.submit_state import RunState


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def submit_here(run, samples, tmp_path, monkeypatch):
    """Run on a local service of its own."""
    monkeypatch.delenv("TOGETHER_BASE_URL", raising=False)
    return lambda *more: run(
        "submit", samples, "-m", "samplekit/tiny", "--run-dir", tmp_path / "run", "--batch-size", 10, *more
    )


def test_files_of_others_in_a_run_s_folder_outlive_runs_in_it(submit_here, tmp_path):
    (tmp_path / "run" / "service").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run" / "service" / "precious.py").write_text("theirs")
    (tmp_path / "run" / "run.trial").write_text("theirs")
    before = contents(tmp_path / "run")
    (tmp_path / "run" / "loss.svg").write_text("drawn by hand")
    assert submit_here("--save-every", 1)[0] == 0
    (first,) = (tmp_path / "run").glob("service-*")
    kept = contents(first)
    code, _, said = submit_here("--save-every", 1, "--overwrite")
    assert (code, f"{first} has checkpoints of an earlier run" in said) == (0, True)
    after = contents(tmp_path / "run")
    assert {name: after[name] for name in before} == before
    assert (tmp_path / "run" / "loss.svg.1").read_text() == "drawn by hand"
    assert "<svg" in (tmp_path / "run" / "loss.svg.2").read_text()
    assert contents(first) == kept


@pytest.mark.parametrize("make", [lambda path: path.write_text("a file"), lambda path: path.symlink_to("/tmp")])
def test_a_file_or_a_link_named_service_is_in_no_run_s_way(submit_here, tmp_path, make):
    (tmp_path / "run").mkdir()
    make(tmp_path / "run" / "service")
    assert submit_here("--save-every", 1)[0] == 0
    assert (tmp_path / "run" / "service").exists()


@pytest.mark.parametrize("option", ["--run-dir", "--download"])
@pytest.mark.parametrize("name", ["", " ", "a\0b"])
def test_an_empty_name_is_not_the_current_folder(submit, service, option, name):
    code, _, said = submit(option, name)
    assert (code, "names no folder" in said, option in said) == (2, True, True)
    assert service.seen == []


@pytest.mark.parametrize("name", ["metrics.jsonl", "held_out.jsonl", "run.json"])
def test_a_folder_in_place_of_a_file_of_the_run_is_named_before_anything_is_asked(submit, service, tmp_path, name):
    (tmp_path / "run" / name).mkdir(parents=True)
    code, _, said = submit()
    assert (code, f"{name} is no file" in said, "take another --run-dir" in said) == (1, True, True)
    assert service.seen == []


def test_a_folder_that_weights_cannot_be_fetched_into_is_named_before_anything_is_asked(submit, service, tmp_path):
    (tmp_path / "file").write_text("no folder")
    code, _, said = submit("--download", tmp_path / "file" / "x")
    assert (code, "take another --download" in said, "nothing was created" in said) == (1, True, True)
    assert service.seen == []


def trouble_at_file(service, error):
    def trouble(line, _when):
        if line.endswith("file"):
            raise error

    service.trouble = trouble


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("away"), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()]
)
def test_saved_weights_that_were_not_fetched_are_named_and_fetched_by_the_same_command(
    submit, service, tmp_path, error
):
    trouble_at_file(service, error)
    code, _, said = submit("--download", tmp_path / "trained")
    assert code != 0
    assert "checkpoint inference-checkpoint-10 is saved and not fetched: the same command fetches it" in said
    assert (service.sessions["ts-0"].status, service.stopped_resources) == ("STOPPED", 1)
    service.trouble = lambda *_: None
    code, shown, said = submit("--download", tmp_path / "trained", "--json")
    assert (code, json.loads(shown)["checkpoint"]) == (0, "inference-checkpoint-10")
    assert "is gone on with: its weights are fetched" in said
    assert (tmp_path / "trained" / "model.safetensors").read_bytes() == FILE
    assert len(service.sessions) == 1
    assert submit("--download", tmp_path / "trained")[0] == 2  # a finished run


def test_weights_of_a_finished_run_may_be_fetched_later(submit, service, tmp_path):
    assert submit("--save")[0] == 0
    assert submit("--download", tmp_path / "trained")[0] == 0
    assert (tmp_path / "trained" / "model.safetensors").read_bytes() == FILE
    assert len(service.sessions) == 1
    assert RunState.read(tmp_path / "run").finished


def test_weights_are_saved_for_somebody_or_not_at_all(submit, submit_here, service, tmp_path):
    code, _, said = submit("--no-save", "--download", tmp_path / "trained")
    assert (code, "leave one of them out" in said) == (2, True)
    code, _, said = submit_here("--save")
    assert (code, "--download FOLDER" in said) == (2, True)
    assert service.seen == []
    assert not (tmp_path / "run").exists()


def test_a_run_whose_own_service_kept_checkpoints_goes_on_from_them_whatever_is_asked_of_it_now(
    submit_here, tmp_path, monkeypatch
):
    collect, calls = Run._collect, []

    def interrupted(self, submitted):
        calls.append(submitted)
        if len(calls) in {3, 7}:
            raise KeyboardInterrupt
        collect(self, submitted)

    monkeypatch.setattr(Run, "_collect", interrupted)
    code, _, said = submit_here("--epochs", 5, "--save-every", 100)
    assert (code, "the same command goes on after step 4" in said) == (130, True), said
    code, _, said = submit_here("--epochs", 5)
    assert (code, "is gone on with, after step 4" in said, "goes on after step 6" in said) == (130, True, True), said
    code, shown, said = submit_here("--epochs", 5, "--save", "--save-every", 100, "--json")
    assert (code, json.loads(shown)["steps"], "is gone on with, after step 6" in said) == (0, 10, True), said
    assert submit_here("--epochs", 5, "--download", tmp_path / "trained")[0] == 0
    assert (tmp_path / "trained" / "model.safetensors").exists()


def test_weights_are_fetched_from_the_service_that_saved_them(submit, service, tmp_path):
    assert submit("--save")[0] == 0
    service.seen.clear()
    code, _, said = submit("--download", tmp_path / "trained", "--base-url", "https://other.example")
    assert (code, "its service was https://service.example" in said) == (2, True), said
    assert service.seen == []
