"""Ctrl-C and SIGTERM: what a run has begun is finished and saved, and the same command goes on with it."""

import json
from types import SimpleNamespace

import httpx
import pytest

from samplekit.cli.submit_state import RunState


def interrupt(service, line, *numbers, when="after"):
    """Raise KeyboardInterrupt at the n-th requests of a kind, once each."""
    count = 0

    def trouble(seen, moment):
        nonlocal count
        if moment == when and seen.endswith(line):
            count += 1
            if count in numbers:
                raise KeyboardInterrupt

    service.trouble = trouble


def losses(tmp_path):
    return [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("line", ["forward-backward", "optim-step"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 6, 10])
def test_a_run_without_save_every_goes_on_after_the_last_step_begun(submit, service, tmp_path, line, when, number):
    interrupt(service, line, number, when=when)
    code, _, said = submit()
    assert (code, f"saved checkpoint training-checkpoint-{number}" in said) == (130, True), said
    assert f"the same command goes on after step {number}" in said
    assert (service.sessions["ts-0"].status, len(service.sessions["ts-0"].steps)) == ("STOPPED", number)
    service.trouble = lambda *_: None
    assert submit()[0] == 0
    steps = service.sessions["ts-1"].steps
    firsts = [
        item["model_input"]["chunks"][0]["encoded_text"]["tokens"][0]
        for step in steps
        for batch in step["gradients"]
        for item in batch
    ]
    assert sorted(firsts[:20]) == sorted(firsts[20:]) == list(range(10, 30))  # every sample once an epoch
    assert [row["step"] for row in losses(tmp_path)] == list(range(1, 11))


def test_a_second_interrupt_ends_the_run_at_once_and_says_what_is_lost(submit, service):
    count = 0

    def trouble(line, when):
        nonlocal count
        if when == "before" and line.endswith(("training-checkpoint", "optim-step")):
            count += 1
            if count >= 4:
                raise KeyboardInterrupt

    service.trouble = trouble
    code, _, said = submit()
    assert code == 130
    assert "interrupted again: no checkpoint was saved" in said
    assert "no checkpoint was saved: the same command begins anew" in said
    assert service.sessions["ts-0"].status == "STOPPED"


def test_an_interrupt_before_the_first_step_saves_nothing(submit, service):
    interrupt(service, "forward-backward", 1)  # a score
    code, _, said = submit("--held-out", 4)
    assert (code, "begins anew" in said, service.checkpoints) == (130, True, {})


def test_a_wait_for_the_checkpoint_is_bounded(submit, service, tmp_path, monkeypatch):
    monkeypatch.setattr("samplekit.cli.submit_pause.SECONDS", 0.0)
    interrupt(service, "optim-step", 3)
    answer = service.submit

    def pending(session, kind, body, headers):
        if kind == "training-checkpoint":
            late = {"id": "op-late", "status": "TRAINING_OPERATION_STATUS_RUNNING"}
            session.operations["late"] = "", late
            return late
        return answer(session, kind, body, headers)

    service.submit = pending
    code, _, said = submit()
    assert (code, "warning: no checkpoint was saved: training-checkpoint operation op-late still runs" in said) == (
        130,
        True,
    )
    assert service.sessions["ts-0"].status == "STOPPED"
    assert RunState.read(tmp_path / "run").checkpoint_id is None


@pytest.mark.parametrize("place", ["--tensorboard", "--wandb"])
def test_code_of_others_stands_in_no_way_of_the_checkpoint(submit, service, tmp_path, monkeypatch, place):
    def log(*arguments, step=None, **_):
        if (arguments[-1] if step is None else step) == 3:  # whenever it is called for this step
            raise KeyboardInterrupt

    other = SimpleNamespace(log=log, add_scalar=log, close=lambda: None, finish=lambda: None)
    other.init = other.SummaryWriter = lambda *_, **__: other
    monkeypatch.setattr("samplekit.cli.submit_logs.import_module", lambda _: other)
    code, _, said = submit(place, *(["p"] if place == "--wandb" else []))
    assert (code, "saved checkpoint training-checkpoint-4" in said) == (130, True), said
    assert [row["step"] for row in losses(tmp_path)] == [1, 2, 3, 4]
    state = RunState.read(tmp_path / "run")
    assert (state.step, state.checkpoint_step, state.stopped) == (4, 4, True)


def test_steps_of_somebody_else_in_the_session_are_noticed_by_the_next_process_too(submit, service, tmp_path):
    def away(_line, _when):
        if sum(seen[0].endswith("optim-step") for seen in service.seen) > 4:
            raise httpx.ConnectError("away")

    service.trouble = away
    assert submit()[0] == 3
    service.trouble = lambda *_: None
    service.sessions["ts-0"].steps.append({"gradients": []})
    code, _, said = submit()
    assert (code, "somebody else trains this session, or a step was applied twice" in said) == (3, True)
