"""`samplekit submit`: everything checked before anything is created, every sample once an epoch."""

from __future__ import annotations

import json

import pytest
from training_double import FILE, SAMPLES, metrics, numbers

import samplekit as sk
from samplekit.chat import ChatTemplate
from samplekit.files import make_lock

STEPS = 10  # of REMOTE: 20 samples in fours, two epochs


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
    rows = [json.loads(line) for line in (tmp_path / "run" / "held_out.jsonl").read_text().splitlines()]
    assert rows == [{"step": step, "held_out_loss": 1.0} for step in (0, 4, 8)]
    assert [row["step"] for row in metrics(tmp_path)] == list(range(1, 9))  # one line a step, of training alone
    trained = {first for step in numbers(service.sessions["ts-0"].steps) for batch in step[0] for first in batch}
    scored = {
        item["model_input"]["chunks"][0]["encoded_text"]["tokens"][0]
        for line, _, body, _ in service.seen
        if line.endswith("forward-backward") and body.get("forward_only")
        for item in body["samples"]
    }
    assert (len(trained), len(scored)) == (16, 4)
    assert not trained & scored


def test_scores_come_at_the_end_of_each_epoch_however_many_steps_it_has(submit, tmp_path):
    code, shown, _ = submit("--held-out", 2, "--epochs", 8, "--max-tokens", 30, "--json")
    assert code == 0
    ends = {row["epoch"]: row["step"] for row in metrics(tmp_path)}  # the last of each
    assert len({end - start for start, end in zip([0, *ends.values()], ends.values(), strict=False)}) > 1
    assert [int(step) for step in json.loads(shown)["held_out_loss"]] == [0, *ends.values()]


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
        (["--max-tokens", 5], "--max-tokens"),
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
