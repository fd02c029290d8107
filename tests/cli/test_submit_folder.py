"""The folder of a run: made before anything costs, held for one process, and never lost silently."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from training_double import SAMPLES

import samplekit as sk
from samplekit.cli.submit_folder import default_folder, held_folder
from samplekit.cli.submit_state import RunState
from samplekit.files import RunFolder


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_folder_that_cannot_be_made_is_named_before_anything_is_asked(submit, service, tmp_path):
    (tmp_path / "file").write_text("no folder")
    folder = tmp_path / "file" / "run"
    code, _, said = submit("--run-dir", folder)
    assert (code, f"{folder} cannot be written" in said, "nothing was created" in said) == (1, True, True)
    assert service.seen == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_is_read_only_is_named_before_anything_is_asked(submit, service, tmp_path):
    (tmp_path / "run").mkdir(mode=0o500)
    code, _, said = submit()
    assert (code, "cannot be written" in said) == (1, True)
    assert service.seen == []


def test_a_state_that_cannot_be_written_first_lets_nothing_be_created(submit, service, monkeypatch):
    monkeypatch.setattr("samplekit.cli.submit_state.write_whole", full)
    code, _, said = submit()
    assert (code, "run.json cannot be written (No space left on device)" in said, "make room" in said) == (
        1,
        True,
        True,
    )
    assert service.sessions == {}


@pytest.mark.parametrize("number", [2, 3, 9, 20])
def test_a_disk_that_fills_up_leaves_no_session_and_a_run_to_go_on_with(submit, service, tmp_path, monkeypatch, number):
    saved, count = RunState.save, 0

    def save(state, folder):
        nonlocal count
        count += 1
        if count >= number:
            monkeypatch.setattr("samplekit.cli.submit_state.write_whole", full)
        saved(state, folder)

    with monkeypatch.context() as patched:
        patched.setattr(RunState, "save", save)
        code, _, said = submit("--save-every", 2)
        monkeypatch.undo()
    assert (code, "run.json cannot be written (No space left" in said) == (1, True)
    assert [session.status for session in service.sessions.values()] == ["STOPPED"]
    assert service.stopped_resources == 1


@pytest.mark.parametrize("number", [4, 7, 10])
@pytest.mark.parametrize("log", [False, True])
def test_a_disk_that_fills_up_still_takes_a_checkpoint_to_go_on_from(
    submit, service, tmp_path, monkeypatch, number, log
):
    """The room kept in the run's folder is what the disk has left: it is given back for where the run stands."""
    place, name = (RunFolder, "log") if log else (RunState, "_write")
    plain, count = getattr(place, name), 0

    def write(*arguments, **row):
        nonlocal count
        count += 1
        if count >= number and (tmp_path / "run" / ".run.reserve").exists():
            full()
        plain(*arguments, **row)

    with monkeypatch.context() as patched:
        patched.setattr(place, name, write)
        code, _, said = submit()
    assert (code, "saved checkpoint" in said, "the same command goes on after step" in said) == (1, True, True), said
    assert (service.sessions["ts-0"].status, service.stopped_resources) == ("STOPPED", 1)
    state = RunState.read(tmp_path / "run")
    assert state.step == state.checkpoint_step > 0
    assert submit()[0] == 0
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == list(range(1, 11))


def test_metrics_that_cannot_be_written_are_named_and_end_the_session(submit, service, tmp_path, monkeypatch):
    monkeypatch.setattr(RunFolder, "log", full)
    code, _, said = submit()
    assert (code, f"{tmp_path / 'run' / 'metrics.jsonl'} cannot be written" in said) == (1, True)
    assert service.sessions["ts-0"].status == "STOPPED"
    assert RunState.read(tmp_path / "run").step == 0


def test_a_second_run_in_a_folder_is_refused_while_the_first_goes_on(submit, service, tmp_path):
    with held_folder(tmp_path / "run"):
        code, _, said = submit()
    assert (code, f"{tmp_path / 'run'} is in use by another samplekit submit" in said) == (1, True)
    assert service.seen == []
    assert submit()[0] == 0


def test_a_folder_is_free_again_when_its_process_was_killed(tmp_path):
    program = "import sys, pathlib\nfrom samplekit.cli.submit_folder import held_folder\n"
    program += "with held_folder(pathlib.Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(sk.SampleError, match="in use"), held_folder(tmp_path):
            pass
        process.kill()
        process.wait(20)
    with held_folder(tmp_path):
        assert (tmp_path / "run.lock").exists()


def test_a_finished_run_is_kept_unless_it_may_be_overwritten(submit, service, tmp_path):
    assert submit()[0] == 0
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    service.seen.clear()
    code, _, said = submit()
    assert (code, "holds a finished run" in said, "--overwrite" in said) == (2, True, True)
    assert (service.seen, (tmp_path / "run" / "metrics.jsonl").read_bytes()) == ([], before)
    assert submit("--overwrite", "--epochs", 1)[0] == 0
    assert len((tmp_path / "run" / "metrics.jsonl").read_bytes().splitlines()) == 5


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("a/data.jsonl", "data"),
        ("data.v1.jsonl", "data.v1"),
        ("data.v2.jsonl.gz", "data.v2"),
        ("data.zst", "data"),
        (".hid.jsonl", ".hid"),
        (".hid", ".hid"),
        ("data.2026", "data.2026"),
    ],
)
def test_a_run_is_named_by_the_whole_name_of_its_samples(name, folder):
    assert default_folder(Path(name)) == Path("runs") / folder


def test_metrics_of_a_run_that_cannot_be_gone_on_with_are_kept(submit, service, tmp_path):
    away = httpx.ConnectError("away")

    def out_of_reach(line, _):
        if sum(seen[0].endswith("optim-step") for seen in service.seen) > 3:
            raise away

    service.trouble = out_of_reach
    assert submit()[0] == 3
    rows = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    assert rows
    service.trouble = lambda *_: None
    service.sessions["ts-0"].status = "EXPIRED"
    code, _, said = submit()
    assert (code, "kept as metrics.jsonl.1" in said) == (0, True)
    assert (tmp_path / "run" / "metrics.jsonl.1").read_bytes() == rows


def test_metrics_of_another_program_are_kept(submit, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step":1}\n')
    (tmp_path / "run" / "metrics.jsonl.1").write_text("older")
    code, _, said = submit()
    assert (code, "kept as metrics.jsonl.2" in said) == (0, True)
    assert (tmp_path / "run" / "metrics.jsonl.2").read_text() == '{"step":1}\n'


def test_losses_whose_reduction_is_not_documented_are_reported_and_clipped_as_they_are(submit, service, tmp_path):
    rows = [
        sk.build_sample(
            sample.tokens, sample.loss_mask, advantages=1.0, logprobs=[-1.0] * len(sample.tokens)
        )
        for sample in SAMPLES
    ]  # fmt: skip
    path = tmp_path / "rl.jsonl"
    sk.write_samples(path, rows)
    code, _, _ = submit("--loss", "ppo", "--grad-clip", 0.5, "--accumulate", 2, path=path)
    assert code == 0
    steps = service.sessions["ts-0"].steps
    assert {step["grad_clip_norm"] for step in steps} == {0.5}
    losses = [json.loads(line)["loss"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    # the double's loss is the count of trained tokens
    trained = [
        sum(sum(item["loss_fn_inputs"]["weights"]["data"]) for batch in step["gradients"] for item in batch)
        for step in steps
    ]
    assert losses == trained


def test_one_of_a_kind_is_said_in_the_singular(submit, tmp_path):
    sk.write_samples(tmp_path / "one.jsonl", SAMPLES[:1])
    assert "1 sample, 1 step on" in submit("--epochs", 1, path=tmp_path / "one.jsonl")[2]
    (tmp_path / "bad.jsonl").write_bytes(SAMPLES[0].to_json() + b"\n{\n")
    assert "has 1 fault: nothing was created" in submit("--run-dir", tmp_path / "other", path=tmp_path / "bad.jsonl")[2]
