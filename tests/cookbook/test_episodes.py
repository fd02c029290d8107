"""Episodes with a tool, with completions written by hand in the place of a model's."""

import importlib
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import samplekit as sk

COOKBOOK = Path(__file__).parents[2] / "cookbook"


@pytest.fixture
def parts(monkeypatch):
    monkeypatch.syspath_prepend(str(COOKBOOK))
    yield SimpleNamespace(
        episodes=importlib.import_module("parts.episodes"), task=importlib.import_module("parts.price_task")
    )
    for name in [name for name in sys.modules if name == "parts" or name.startswith("parts.")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def template():
    return sk.ChatTemplate.load("samplekit/tiny", thinking=False)


class Scripted:
    """A session that answers each request with the next texts written for it."""

    def __init__(self, template, *requests):
        self.template, self.requests, self.prompts = template, list(requests), []
        self.seeds = []

    def generate(self, prompts, *, num_samples=1, seed=None, **_):
        self.seeds.append(seed)
        self.prompts.append([self.template.decode(prompt) for prompt in prompts])
        texts = iter(self.requests.pop(0))
        groups = [
            sk.Group(prompt, [self.completion(next(texts)) for _ in range(num_samples)], id=f"{number}")
            for number, prompt in enumerate(prompts)
        ]
        return SimpleNamespace(result=lambda: groups)

    def completion(self, text):
        tokens = self.template.encode(text + "<|im_end|>")
        return sk.Completion(tokens, [-0.5] * len(tokens))


CALL = '<tool_call>\n{"name": "price", "arguments": {"thing": "lamp"}}\n</tool_call>'


def test_a_call_is_run_its_answer_read_and_both_steps_share_one_sample(parts, template):
    session = Scripted(template, [CALL, "3"], ["7"])
    called, guessed = parts.episodes.play(session, template, [parts.task.PriceTask("lamp", 7)], 2, seed=0)
    assert (called.reward, guessed.reward) == (1.0, 0.0)
    assert (len(called.trajectory), len(guessed.trajectory)) == (2, 1)
    assert "<tool_response>\n7\n</tool_response>" in session.prompts[1][0]
    samples = sk.build_trajectory_samples([called.trajectory, guessed.trajectory])
    assert len(samples) == 2
    trained = samples[0].tokens[samples[0].loss_mask != 0]
    assert template.decode(trained) == CALL + "<|im_end|>" + "7<|im_end|>"
    assert samples[0].info["steps"] == [0, 1]
    advantages = [sample.loss_fn_inputs["advantages"].data[sample.weights != 0] for sample in samples]
    assert np.all(advantages[0] > 0)
    assert np.all(advantages[1] < 0)


def test_a_call_in_other_words_than_the_templates_still_shares_a_sample(parts, template):
    loose = CALL.replace(": ", ":")
    session = Scripted(template, [loose, "3"], ["7"])
    episodes = parts.episodes.play(session, template, [parts.task.PriceTask("lamp", 7)], 2, seed=0)
    samples = sk.build_trajectory_samples([episode.trajectory for episode in episodes])
    assert [sample.info["steps"] for sample in samples] == [[0, 1], [0]]
    assert loose in template.decode(samples[0].tokens[samples[0].loss_mask != 0])


def test_all_first_steps_are_one_request_and_all_second_ones_another(parts, template):
    tasks = [parts.task.PriceTask("lamp", 7), parts.task.PriceTask("book", 2)]
    book = CALL.replace("lamp", "book")
    session = Scripted(template, [CALL, "7", book, book], ["6", "2", "2"])
    episodes = parts.episodes.play(session, template, tasks, 2, seed=3)
    assert [episode.reward for episode in episodes] == [0.0, 1.0, 1.0, 1.0]
    assert [episode.trajectory.group for episode in episodes] == ["task 0", "task 0", "task 1", "task 1"]
    assert len(set(session.seeds)) == 2
    assert [len(prompts) for prompts in session.prompts] == [2, 3]


def test_a_call_about_something_else_finds_nothing(parts, template):
    session = Scripted(template, [CALL.replace("lamp", "moon")], ["7"])
    parts.episodes.play(session, template, [parts.task.PriceTask("lamp", 7)], 1, seed=0)
    assert "<tool_response>\nunknown\n</tool_response>" in session.prompts[1][0]


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "<tool_call>\n{]\n</tool_call>",
        "<tool_call>\n{}\n</tool_call>",
        CALL.replace("price", "weight"),
        CALL.replace('"lamp"', "3"),
        CALL.replace('"thing"', '"what"'),
        CALL + CALL,
    ],
)
def test_what_is_no_call_ends_the_episode(parts, template, text):
    session = Scripted(template, [text])
    (episode,) = parts.episodes.play(session, template, [parts.task.PriceTask("lamp", 7)], 1, seed=0)
    assert len(episode.trajectory) == 1
    assert len(session.prompts) == 1


def test_two_demonstrations_in_three_call_the_tool(parts, template):
    chooser = random.Random(0)
    samples = parts.task.demonstrations(template, parts.task.price_tasks(chooser, 30), chooser)
    assert len(samples) == 30
    called = [sample for sample in samples if sample.num_trained > 10]
    assert len(called) == 20
    assert all("</tool_call><|im_end|>" in template.decode(sample.tokens[sample.loss_mask != 0]) for sample in called)
