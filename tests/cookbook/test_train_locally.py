"""Training on this machine in small: packed, unpacked and through the Trainer, the losses are the same."""

import importlib.util
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

RECIPE = Path(__file__).parents[2] / "cookbook" / "train_locally.py"
SMALL = ["--limit", "24", "--width", "512", "--rows-per-step", "2", "--micro-batch", "1", "--epochs", "2"]


def losses(folder, way):
    spec = importlib.util.spec_from_file_location("train_locally", RECIPE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    options = [*SMALL, "--way", way, "--run-dir", str(folder / way)]
    done = CliRunner().invoke(module.main, options, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert (folder / way / "loss.svg").exists()
    return [json.loads(line)["loss"] for line in (folder / way / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.filterwarnings("ignore")  # what Trainer and its libraries warn of is theirs
def test_packed_unpacked_and_through_the_trainer_the_losses_are_the_same(tmp_path):
    packed, unpacked, trainer = (losses(tmp_path, way) for way in ("packed", "unpacked", "trainer"))
    assert len(packed) >= 4
    assert packed[-1] < 0.95 * packed[0]
    assert packed == pytest.approx(unpacked, rel=1e-4)  # the model is float32
    assert packed == pytest.approx(trainer, rel=1e-4)


def test_the_help_has_an_example():
    spec = importlib.util.spec_from_file_location("train_locally", RECIPE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "python cookbook/train_locally.py --way trainer" in CliRunner().invoke(module.main, ["--help"]).output
