"""The step that both reward recipes take, and the lines that end them, with a session that answers from a script."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import samplekit as sk
from samplekit.files import RunFolder

COOKBOOK = Path(__file__).parents[2] / "cookbook"


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(str(COOKBOOK))
    monkeypatch.setenv("COLUMNS", "200")
    yield importlib.import_module
    for name in [name for name in sys.modules if name == "parts" or name.startswith("parts.")]:
        del sys.modules[name]


class Scripted:
    """A session that draws the texts written for each request and finds every ratio where it is told to."""

    def __init__(self, template=None, requests=(), *, ratio=1.0, metrics=None):
        self.template, self.requests, self.ratio, self.metrics = template, list(requests), ratio, metrics or {}
        self.steps = 0

    def generate(self, prompts, **_):
        texts = iter(self.requests.pop(0))
        size = len(self.template.encode("9<|im_end|>"))
        groups = [
            sk.Group(
                prompt,
                [sk.Completion(self.template.encode(next(texts) + "<|im_end|>"), [-0.5] * size) for _ in range(2)],
            )
            for prompt in prompts
        ]
        return SimpleNamespace(result=lambda: groups)

    def forward_backward(self, samples, loss, *, return_logprobs):
        assert return_logprobs
        moved = np.float32(np.log(self.ratio))
        rows = [sample.loss_fn_inputs["logprobs"].data + moved for sample in samples]
        return SimpleNamespace(result=lambda: SimpleNamespace(loss=3.0, metrics=self.metrics, logprobs=rows))

    def optim_step(self, *, learning_rate):
        self.steps += 1
        return SimpleNamespace(result=lambda: None)

    def weights_sync(self):
        return SimpleNamespace(result=lambda: None)


def some_samples():
    group = sk.Group([1, 2], [sk.Completion([3], [-0.5]), sk.Completion([4], [-0.5])]).with_rewards([1.0, 0.0])
    return sk.build_grpo_samples([group])


@pytest.mark.parametrize(("clip_high", "share"), [(1.2, 0.0), (1.01, 0.5)])
def test_clip_fractions_are_counted_by_the_bounds_of_the_loss(load, clip_high, share):
    step = load("parts.policy_step").policy_step
    found = step(Scripted(ratio=1.05), some_samples(), sk.GRPO(clip_high=clip_high), 1e-3, diagnose=False)
    assert (found["loss"], found["loss/clip/high_fraction"]) == (3.0, share)  # of two tokens one has A > 0


def test_where_both_tell_a_metric_the_services_stands(load):
    session = Scripted(metrics={"loss/ratio/mean": 7.0})
    found = load("parts.policy_step").policy_step(session, some_samples(), sk.GRPO(), 1e-3, diagnose=False)
    assert (found["loss/ratio/mean"], found["loss/ratio/max"]) == (7.0, pytest.approx(1.0))


def test_the_first_step_that_has_samples_is_the_one_that_is_shown(load, capsys, tmp_path):
    recipe, numbers = load("grpo"), load("parts.larger_number")
    template = sk.ChatTemplate.load("samplekit/tiny", thinking=False)
    task = numbers.NumberTask(3, 8)
    session = Scripted(template, [["3", "3"], ["8", "3"], ["8", "3"]])
    run = RunFolder(tmp_path)
    settings = SimpleNamespace(seed=0, steps=3, learning_rate=1e-3)
    recipe.reinforce(session, template, [task], run, settings, num_tasks=1, num_samples=2)
    shown = capsys.readouterr().out
    assert [row["samples"] for row in run.metrics] == [0, 2, 2]
    assert [row["dropped"] for row in run.metrics] == [2, 0, 0]
    assert session.steps == 2
    assert shown.count("ratios are 1") == shown.count("the first step that trains") == 1


@pytest.mark.parametrize(
    ("rewards", "line"),
    [
        ([0, 0, 0, 0, 1, 1, 1, 1, 1, 1], "mean reward: 0.200 in the first five steps, 1.000 in the last five (+0.800)"),
        ([1, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0], "mean reward: 0.200 in the first five steps, 0.000 in the last five (-0.200)"),
        ([0, 0, 7, 1, 2], "mean reward: 0.000 in the first half of the steps, 1.500 in the last half (+1.500)"),
        ([0.5], "mean reward: 0.500 in the only step"),
    ],
)  # fmt: skip
def test_no_step_stands_on_both_sides_of_the_gain(load, rewards, line):
    assert load("parts.summary").gain_line(rewards) == line
