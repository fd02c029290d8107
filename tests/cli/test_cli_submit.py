"""`samplekit submit`: everything checked before anything is created, every step once, and gone on with after anything."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import httpx
import pytest
from training_double import FILE, SAMPLES

import samplekit as sk
from samplekit.chat import ChatTemplate
from samplekit.cli.submit_plan import Settings, make_plan, split_held_out
from samplekit.cli.submit_state import RunState
from samplekit.files import RunFolder, make_lock

SETTINGS = Settings(
    model="samplekit/tiny", lora_rank=None, loss="cross_entropy", beta=None, epochs=1, batch_size=4, max_tokens=None,
    accumulate=1, learning_rate=1.0, schedule="linear", warmup=0.0, weight_decay=0.0, grad_clip=1.0, held_out=None, seed=0,
)  # fmt: skip
STEPS = 10  # of REMOTE: 20 samples in fours, two epochs


def metrics(tmp_path):
    return [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]


def numbers(steps):
    """What each step applied: first tokens of its samples, in order, and its settings."""
    return [
        (
            [[item["model_input"]["chunks"][0]["encoded_text"]["tokens"][0] for item in batch] for batch in step["gradients"]],
            step["learning_rate"],
            step["grad_clip_norm"],
        )
        for step in steps
    ]  # fmt: skip


@pytest.fixture
def undisturbed(submit, service, tmp_path):
    """The steps of a run that nothing disturbs; the service forgets it afterwards."""
    assert submit("--save-every", 3)[0] == 0
    steps = numbers(service.sessions["ts-0"].steps)
    RunState.path_in(tmp_path / "run").unlink()
    service.__init__()
    return steps


def test_a_run_trains_every_sample_once_an_epoch_and_stops_what_it_made(submit, service, tmp_path):
    code, shown, said = submit()
    assert code == 0
    (session,) = service.sessions.values()
    applied = numbers(session.steps)
    firsts = [first for step in applied for batch in step[0] for first in batch]
    assert len(applied) == STEPS
    for epoch in (firsts[:20], firsts[20:]):
        assert sorted(epoch) == list(range(10, 30))
    assert firsts[:20] != firsts[20:]
    assert [step[1] for step in applied] == pytest.approx([0.5 * (1 - n / 10) for n in range(10)])
    assert (session.status, service.stopped_resources) == ("STOPPED", 1)
    assert "12.5 USD an hour" in said
    assert "steps" in shown
    rows = metrics(tmp_path)
    assert [row["step"] for row in rows] == list(range(1, 11))
    assert {row["loss"] for row in rows} == {1.0}  # the double's loss is the count of trained tokens
    assert [step[2] for step in applied] == [row["num_trained"] for row in rows]


def test_accumulated_batches_make_one_step_normalised_by_all_their_tokens(submit, service, tmp_path):
    assert submit("--accumulate", 2, "--grad-clip", 0.5)[0] == 0
    applied = numbers(service.sessions["ts-0"].steps)
    assert [len(step[0]) for step in applied] == [2, 2, 1, 2, 2, 1]  # a step never crosses an epoch
    rows = metrics(tmp_path)
    assert [step[2] for step in applied] == [0.5 * row["num_trained"] for row in rows]
    assert sum(row["num_trained"] for row in rows) == 2 * sum(sample.num_trained for sample in SAMPLES)
    assert {row["loss"] for row in rows} == {1.0}


def test_held_out_samples_never_train_and_are_scored_before_each_epoch_s_end_and_at_last(submit, service, tmp_path):
    code, shown, _ = submit("--held-out", "0.2", "--json")
    assert code == 0
    assert json.loads(shown)["held_out_loss"] == {"0": 1.0, "4": 1.0, "8": 1.0}
    trained = {first for step in numbers(service.sessions["ts-0"].steps) for batch in step[0] for first in batch}
    scored = {
        item["model_input"]["chunks"][0]["encoded_text"]["tokens"][0]
        for line, _, body, _ in service.seen
        if line.endswith("forward-backward") and body.get("forward_only")
        for item in body["samples"]
    }
    assert (len(trained), len(scored)) == (16, 4)
    assert not trained & scored


def test_held_out_samples_may_stand_in_a_file_of_their_own(submit, tmp_path):
    sk.write_samples(tmp_path / "held.jsonl", SAMPLES[:3])
    code, shown, _ = submit("--held-out", tmp_path / "held.jsonl", "--evaluate-every", 4, "--json")
    assert code == 0
    assert list(json.loads(shown)["held_out_loss"]) == ["0", "4", "8", "10"]


def test_the_trained_weights_are_saved_and_fetched(submit, service, tmp_path):
    code, shown, _ = submit("--download", tmp_path / "trained", "--json")
    assert code == 0
    assert json.loads(shown)["checkpoint"] == "inference-checkpoint-10"
    assert (tmp_path / "trained" / "model.safetensors").read_bytes() == FILE
    assert any(url.endswith("variant=CHECKPOINT_VARIANT_MERGED") for _, url, _, _ in service.seen)


def test_nothing_is_saved_where_that_is_not_wanted(submit, service):
    assert submit("--no-save")[0] == 0
    assert service.checkpoints == {}


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
        assert (code, "seed was 0 and is 1" in said, "--run-dir" in said) == (1, True, True)
    sk.write_samples(samples, SAMPLES[1:])
    code, _, said = submit()
    assert (code, "samples was" in said) == (1, True)
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
    for text in ("{", "{}", '{"plan": {}, "format": 9}', '{"odd": 1}'):
        RunState.path_in(tmp_path / "run").write_text(text)
        code, _, said = submit()
        assert (code, "run.json" in said) == (1, True)


def test_faults_are_named_by_line_before_anything_is_asked(submit, service, tmp_path, write):
    rows = [json.loads(sample.to_json()) for sample in SAMPLES[:3]]
    rows[1]["loss_fn_inputs"]["weights"]["data"] = [0.0]
    path = write("bad.jsonl", *rows, b"{")
    code, _, said = submit(path=path)
    assert code == 1
    assert f"{path}:2" in said
    assert f"{path}:4" in said
    assert "nothing was created" in said
    assert service.seen == []


def test_samples_are_held_to_their_lock_and_to_the_tokenizer(submit, service, samples):
    template = ChatTemplate.load("samplekit/tiny")
    sk.write_samples(samples, SAMPLES, lock={**make_lock(template), "fingerprint": "other"})
    code, _, said = submit()
    assert (code, "build the samples again" in said) == (1, True)
    assert submit("--template", "none")[0] == 0
    sk.write_samples(samples, [sk.build_sample([1, 2, 9_999_999], [0, 1, 1])])
    service.seen.clear()
    assert submit()[0] == 1
    assert service.seen == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--batch-size", 17], "max_batch_size"),
        (["--max-tokens", 5], "max_tokens"),
        (["--held-out", "20"], "leaves nothing"),
        (["--held-out", "0.01x"], "a whole number of samples (20) or a samples file"),
        (["--beta", 0.1], "has none"),
        (["--loss", "dro"], "needs --beta"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_created(submit, service, options, words):
    code, _, said = submit(*options)
    assert (code, words in said) == (1, True)
    assert {line.split()[0] for line, *_ in service.seen} <= {"GET"}


@pytest.mark.parametrize("option", [["--wandb", "p"], ["--tensorboard"]])
def test_a_package_that_is_not_there_is_named_before_a_session_is_opened(submit, service, option, monkeypatch):
    monkeypatch.setattr("samplekit.cli.submit_logs.import_module", failing_import)
    code, _, said = submit(*option)
    assert (code, "pip install" in said) == (2, True)
    assert service.sessions == {}


def failing_import(name):
    raise ImportError(name)


class FakeModule:
    """Stands for wandb and for TensorBoard's writer."""

    def __init__(self):
        self.rows, self.closed = [], 0

    def init(self, **_):
        return self

    SummaryWriter = init

    def log(self, row, step):
        self.rows += [(step, name) for name in row]

    def add_scalar(self, name, value, step):
        self.rows.append((step, name))

    def close(self):
        self.closed += 1

    finish = close


@pytest.mark.parametrize("option", [["--wandb", "p"], ["--tensorboard"]])
def test_metrics_go_where_they_are_asked_to(submit, option, monkeypatch):
    fake = FakeModule()
    fake.SummaryWriter = lambda folder, purge_step: fake
    monkeypatch.setattr("samplekit.cli.submit_logs.import_module", lambda name: fake)
    assert submit(*option, "--held-out", 4)[0] == 0
    assert {name for _, name in fake.rows} >= {"loss", "learning_rate", "held_out_loss"}
    assert [step for step, name in fake.rows if name == "loss"] == list(range(1, 9))
    assert fake.closed == 1


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("constant", 0, [1, 1, 1, 1]),
        ("constant", 2, [0.5, 1, 1, 1]),
        ("linear", 0, [1, 0.75, 0.5, 0.25]),
        ("linear", 2, [0.5, 1, 1, 0.5]),
        ("linear", 0.5, [0.5, 1, 1, 0.5]),
        ("cosine", 0, [1, 0.5 + math.sqrt(0.5) / 2, 0.5, 0.5 - math.sqrt(0.5) / 2]),
        ("cosine", 9, [1 / 9, 2 / 9, 3 / 9, 4 / 9]),
    ],
)
def test_learning_rates_follow_the_schedule(schedule, warmup, expected):
    settings = replace(SETTINGS, schedule=schedule, warmup=warmup)
    assert [settings.rate_at(step, 4) for step in range(4)] == pytest.approx(expected)


def test_a_plan_is_the_same_for_the_same_seed_and_another_for_another():
    def order(seed):
        plan = make_plan(SAMPLES, [], replace(SETTINGS, epochs=2, accumulate=2, seed=seed), None)
        return [sample.info["n"] for step in plan.steps for batch in step.batches for sample in batch]

    assert order(3) == order(3) != order(4)


@pytest.mark.parametrize(("held_out", "count"), [("0.25", 5), ("5", 5), ("0.001", 1), ("19", 19)])
def test_samples_are_split_by_share_or_number(held_out, count):
    train, kept = split_held_out(SAMPLES, held_out, seed=1)
    assert len(kept) == count
    assert sorted(sample.info["n"] for sample in [*train, *kept]) == list(range(20))
    assert split_held_out(SAMPLES, held_out, seed=1)[1] == kept


@pytest.mark.parametrize("held_out", ["0", "-1", "0.0", "1.0", "20.0", "1.5", "nan", "inf", "1e-1000", "many"])
def test_what_is_neither_a_share_nor_a_number_of_samples_is_refused(held_out):
    with pytest.raises(sk.SampleError, match=r"expected a share above 0 and below 1 \(0\.1\), a whole number"):
        split_held_out(SAMPLES, held_out, seed=1)


@pytest.mark.parametrize("held_out", ["20", "21"])
def test_a_split_that_leaves_nothing_to_train_on_is_refused(held_out):
    with pytest.raises(sk.SampleError, match="leaves nothing to train on"):
        split_held_out(SAMPLES, held_out, seed=1)


def test_a_run_on_a_local_service_of_its_own_learns(run, samples, tmp_path, monkeypatch):
    monkeypatch.delenv("TOGETHER_BASE_URL", raising=False)
    code, shown, said = run(
        "submit", samples, "-m", "samplekit/tiny", "--run-dir", tmp_path / "run", "--epochs", 3, "--batch-size", 5,
        "--accumulate", 2, "--learning-rate", 4e-3, "--held-out", 4, "--json",
    )  # fmt: skip
    assert code == 0
    summary = json.loads(shown)
    assert summary["steps"] == 6
    assert summary["held_out_loss"]["6"] < summary["held_out_loss"]["0"] - 0.5
    assert "127.0.0.1" in said
    assert "checkpoint" not in summary
