"""The recipes that learn from rewards and preferences, in small: what they promise rises, and is what they logged."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import samplekit as sk

COOKBOOK = Path(__file__).parents[2] / "cookbook"


@pytest.fixture
def recipe(monkeypatch, tmp_path):
    """Run a recipe as `python cookbook/<name>.py` would; give what it printed and what it logged."""
    monkeypatch.syspath_prepend(str(COOKBOOK))
    monkeypatch.setenv("COLUMNS", "200")

    def run(name, *arguments):
        folder = tmp_path / name
        command = importlib.import_module(name).main
        done = CliRunner().invoke(command, ["--run-dir", str(folder), *arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
        return done.output, rows, folder

    yield run
    for name in [name for name in sys.modules if name == "parts" or name.startswith("parts.")]:
        del sys.modules[name]


def mean(values):
    return sum(values) / len(values)


def gain(shown, rows):
    """Give how much the mean reward rose from the first five steps to the last five, as logged and as printed."""
    rewards = [row["reward/mean"] for row in rows]
    printed = float(re.search(r"in the last five \(([+-][\d.]+)\)", shown)[1])
    assert printed == pytest.approx(mean(rewards[-5:]) - mean(rewards[:5]), abs=6e-4)
    return printed


def held_out(shown):
    return [int(share) for share in re.search(r"held-out tasks right: (\d+)% before, (\d+)% after", shown).groups()]


def test_rewards_teach_which_number_is_larger(recipe):
    small = ["--start-steps", "60", "--steps", "18", "--num-tasks", "12", "--learning-rate", "5e-4"]
    shown, rows, folder = recipe("grpo", *small)
    assert len(rows) == 18
    assert gain(shown, rows) > 0.05
    before, after = held_out(shown)
    assert after > before
    assert "ratios are 1" in shown
    assert all(abs(row["loss/ratio/mean"] - 1) < 1e-4 for row in rows)  # sampled by the weights that are trained
    assert (folder / "reward_mean.svg").read_text().lstrip().startswith("<?xml")


def test_preferences_raise_the_margin_of_pairs_the_model_never_saw(recipe):
    shown, rows, folder = recipe(
        "dpo", "--start-steps", "10", "--steps", "14", "--learning-rate", "1e-3", "--beta", "0.5"
    )
    assert rows[0]["loss"] == pytest.approx(0.693147, abs=1e-5)  # -log sigmoid(0): policy and reference are the same
    assert rows[0]["dpo/margin/mean"] == pytest.approx(0, abs=1e-5)
    assert rows[-1]["dpo/margin/mean"] > 0.5
    before, after = (float(value) for value in re.findall(r"dpo/margin/mean\W+([-\d.e]+) ", shown))
    assert before == pytest.approx(0, abs=1e-5)
    assert after > 0.5
    assert (folder / "dpo_margin_mean.svg").exists()


def test_pairs_of_a_file_are_used_and_a_fault_names_its_line(recipe, tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [
        {"messages": [{"role": "user", "content": f"Name {n}"}], "chosen": "Yes.", "rejected": "No."} for n in range(6)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, logged, _ = recipe("dpo", "--pairs", str(path), "--start-steps", "0", "--steps", "3")
    assert logged[-1]["dpo/margin/mean"] > 0
    path.write_text(json.dumps(rows[0]) + "\n" + json.dumps({"messages": [], "chosen": "x"}) + "\n")
    with pytest.raises(sk.FileFormatError, match=r"pairs\.jsonl:2 lacks \['rejected'\]"):
        recipe("dpo", "--pairs", str(path))


@pytest.mark.parametrize("name", ["grpo", "grpo_tools", "dpo"])
def test_help_shows_how_it_is_called_and_every_shared_option(name, monkeypatch):
    monkeypatch.syspath_prepend(str(COOKBOOK))
    shown = CliRunner().invoke(importlib.import_module(name).main, ["--help"]).output
    assert f"python cookbook/{name}.py\n" in shown
    for option in ("--base-url", "--model", "--seed", "--steps", "--run-dir", "--learning-rate", "--lora-rank"):
        assert option in shown


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_the_whole_run_gains_a_fifth_of_the_reward_whatever_the_seed(recipe, seed):
    shown, rows, _ = recipe("grpo", "--seed", seed)
    assert gain(shown, rows) >= 0.2
    assert held_out(shown)[1] >= 75


@pytest.mark.slow
def test_rewards_teach_to_ask_the_tool(recipe):
    shown, rows, _ = recipe("grpo_tools")
    assert gain(shown, rows) > 0.1
    assert rows[0]["samples"] < rows[0]["completion/count"]
    assert "ratios are 1" in shown
