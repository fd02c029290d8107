"""Training on this machine in small: packed, unpacked and through the Trainer, the losses are the same."""

import importlib.util
import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from samplekit.files import RunFolder

RECIPE = Path(__file__).parents[2] / "cookbook" / "train_locally.py"
SMALL = ["--limit", "24", "--width", "512", "--rows-per-step", "2", "--micro-batch", "1", "--epochs", "2"]


def recipe():
    spec = importlib.util.spec_from_file_location("train_locally", RECIPE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def losses(folder, way):
    done = CliRunner().invoke(recipe().main, [*SMALL, "--way", way], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    run = folder / "runs" / "train_locally" / way
    assert (run / "loss.svg").exists()
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.filterwarnings("ignore")  # what Trainer and its libraries warn of is theirs
def test_packed_unpacked_and_through_the_trainer_the_losses_are_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # each way has a run folder of its own there
    packed, unpacked, trainer = (losses(tmp_path, way) for way in ("packed", "unpacked", "trainer"))
    assert len(packed) >= 4
    assert packed[-1] < 0.95 * packed[0]
    assert packed == pytest.approx(unpacked, rel=1e-4)  # the model is float32
    assert packed == pytest.approx(trainer, rel=1e-4)


def test_the_help_has_an_example():
    assert "python cookbook/train_locally.py --way trainer" in CliRunner().invoke(recipe().main, ["--help"]).output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--limit", "0"], "Invalid value for '--limit'"),
        (["--limit", "-5"], "Invalid value for '--limit'"),
        (["--learning-rate", "nan"], "nan is no finite number"),
        (["--learning-rate", "inf"], "inf is no finite number"),
        (["--learning-rate", "0"], "Invalid value for '--learning-rate'"),
        (["--seed", "-1"], "Invalid value for '--seed'"),
        (["--rows-per-step", "3", "--micro-batch", "2"], "2 does not divide"),
        (["--width", "20", "--limit", "3"], "gave no sample to train on, with --width 20: "),
        (["--limit", "2"], "lower --rows-per-step"),
        (["--data", "nowhere.jsonl"], "does not exist"),
        (["--data", "."], "is a directory"),
        (["--data", "empty.jsonl"], "empty.jsonl gave no sample to train on, with --width 1024: there is no row in it"),
        (["--data", "wrong.jsonl"], "wrong.jsonl:1 is not JSON"),
        (["--data", "other.jsonl"], "other.jsonl:1 holds no 'messages'"),
        (["--model", "./no/such/model"], "'./no/such/model' is not a folder"),
        (["--run-dir", "empty.jsonl"], "is a file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_options_are_errors_of_a_line_without_a_traceback(tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    Path("empty.jsonl").touch()
    Path("wrong.jsonl").write_text("{\n")
    Path("other.jsonl").write_text('{"a": 1}\n')
    done = CliRunner().invoke(recipe().main, options)
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in (1, 2)
    assert words in done.output
    assert not Path("runs").exists()


def test_a_learning_rate_that_breaks_the_model_ends_the_run_without_a_traceback(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(recipe().main, [*SMALL, "--learning-rate", "1e30"])
    assert isinstance(done.exception, SystemExit), done.exception
    assert "Error: policy_logprobs[0] is nan" in done.output


def test_a_loss_that_is_no_number_is_not_logged(tmp_path):
    run = RunFolder(tmp_path)
    with pytest.raises(click.ClickException, match="the loss of step 2 is nan: lower --learning-rate"):
        recipe().log(run, iter([1.5, float("nan"), 1.0]))
    assert run.metrics == [{"step": 1, "loss": 1.5}]
