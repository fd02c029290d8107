"""What the README prints is what runs."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

from samplekit.cli.main import samplekit

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
PYTHON = [code for language, code in BLOCKS if language == "python"]
SHELL = [line for language, code in BLOCKS if language == "sh" for line in code.splitlines()]


def loop(name):
    """Give the one program of the README that uses a name."""
    (found,) = [code for code in PYTHON if ">>>" not in code and name in code]
    return found


def test_two_commands_set_everything_up_each_with_its_own_install():
    job, tests = (line for line in SHELL if line.startswith("python3 -m venv "))
    assert job.endswith(".venv/bin/python cookbook/sft.py")
    assert tests.endswith(".venv/bin/python -m pytest")
    for line in (job, tests):
        assert " && .venv/bin/pip install -q -c constraints.txt -e " in line


def printed_numbers(code, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    return [float(line) for line in capsys.readouterr().out.split()]


def test_the_fine_tuning_loop_runs_as_printed_and_its_loss_falls(monkeypatch, capsys):
    losses = printed_numbers(loop("CrossEntropy"), monkeypatch, capsys)
    assert len(losses) >= 4
    assert losses[-1] < losses[0]


def test_the_reinforcement_learning_loop_runs_as_printed_and_its_reward_rises(monkeypatch, capsys):
    rewards = printed_numbers(loop("build_grpo_samples"), monkeypatch, capsys)
    assert len(rewards) == 12
    assert sum(rewards[-3:]) > sum(rewards[:3])


@pytest.mark.parametrize("code", [code for code in PYTHON if ">>>" in code])
def test_a_session_prints_what_it_says(code):
    found = doctest.DocTestParser().get_doctest(code, {}, "README.md", "README.md", 0)
    runner = doctest.DocTestRunner()
    runner.run(found)
    assert (runner.summarize().attempted, runner.summarize().failed) == (len(found.examples), 0)


@pytest.mark.parametrize("line", [line for line in SHELL if line.startswith("samplekit ")])
def test_a_command_line_is_one_the_command_takes(line):
    _, name, *arguments = shlex.split(line)
    with samplekit.commands[name].make_context(name, arguments):
        pass


def test_the_files_it_points_to_are_there():
    linked = re.findall(r"\]\(([\w./]+)\)", TEXT)
    assert "docs/losses.md" in linked
    for name in linked + re.findall(r"`((?:cookbook|benchmarks|docs)/[\w./]+|CHANGELOG\.md)`", TEXT):
        assert (ROOT / name).exists(), name


def test_every_recipe_it_runs_is_there_and_listed():
    for line in SHELL:
        if line.startswith("python cookbook/"):
            assert f"`{line.split()[1]}`" in TEXT
            assert (ROOT / line.split()[1]).exists()
