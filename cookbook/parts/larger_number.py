"""A task small enough for a model of a million parameters: which of two numbers is the larger one?"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from rich.table import Table

import samplekit as sk
from samplekit.client import Session

MAX_TOKENS = 8
NUM_HELD_OUT = 18


@dataclass(frozen=True)
class NumberTask:
    """Two different digits to compare."""

    first: int
    second: int

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What is asked."""
        return [{"role": "user", "content": f"Reply with the larger number: {self.first} or {self.second}?"}]

    @property
    def answer(self) -> str:
        """What is right."""
        return str(max(self.first, self.second))

    @property
    def wrong_answer(self) -> str:
        """What a model says that knows the form but not the numbers."""
        return str(min(self.first, self.second))

    def replied(self, text: str) -> list[dict[str, Any]]:
        """Give the conversation with a reply."""
        return [*self.messages, {"role": "assistant", "content": text}]


def number_tasks(seed: int) -> tuple[list[NumberTask], list[NumberTask]]:
    """Give the 90 ordered pairs of digits as tasks to train on, and 18 to hold out."""
    tasks = [NumberTask(first, second) for first, second in permutations(range(10), 2)]
    random.Random(seed).shuffle(tasks)
    return tasks[NUM_HELD_OUT:], tasks[:NUM_HELD_OUT]


def demonstrations(template: sk.ChatTemplate, tasks: Sequence[NumberTask]) -> list[sk.Sample]:
    """Build samples that reply with either number, right or wrong: they teach the form, not the answer."""
    return [
        sample
        for task in tasks
        for text in (task.answer, task.wrong_answer)
        for sample in template.samples(task.replied(text))
    ]


def score(text: str, task: NumberTask) -> float:
    """Give 1 where the reply is the larger number and nothing else, else 0."""
    return float(text.strip() == task.answer)


def reply_text(template: sk.ChatTemplate, completion: sk.Completion) -> str:
    """Decode a completion without the token that ended it."""
    return template.decode([token for token in completion.tokens.tolist() if token not in template.stop_ids])


def try_out(
    session: Session, template: sk.ChatTemplate, tasks: Sequence[NumberTask], title: str
) -> tuple[float, Table]:
    """Let the generators answer tasks by their likeliest tokens.

    Returns:
        The share of right replies, and a table of the first five.
    """
    prompts = [template.prompt(task.messages) for task in tasks]
    groups = session.generate(prompts, max_tokens=MAX_TOKENS, temperature=0, stop=template.stop_strings).result()
    replies = [reply_text(template, group.completions[0]) for group in groups]
    table = Table("question", "reply", "right", title=title, title_justify="left")
    for task, reply in list(zip(tasks, replies, strict=True))[:5]:
        table.add_row(task.messages[0]["content"], reply, "yes" if score(reply, task) else "no")
    return sum(score(reply, task) for task, reply in zip(tasks, replies, strict=True)) / len(tasks), table
