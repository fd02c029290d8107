"""Episodes of two steps: a call of the tool, and a reply that has read its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import samplekit as sk
from parts.larger_number import reply_text
from parts.price_task import TOOLS, PriceTask, read_call
from samplekit.client import Session

MAX_TOKENS = 40


@dataclass(frozen=True)
class Episode:
    """What was read and sampled, its score, and the same as text."""

    trajectory: sk.Trajectory
    reward: float
    transcript: str


@dataclass(frozen=True)
class _Opening:
    """An episode after its first completion."""

    task: PriceTask
    group: str
    step: sk.Step
    text: str


def play(
    session: Session, template: sk.ChatTemplate, tasks: Sequence[PriceTask], num_samples: int, *, seed: int
) -> list[Episode]:
    """Play every task several times: all first steps, then all second ones.

    An episode whose first completion makes no call that can be run ends there, with the score of that completion. The
    second prompt begins with the tokens of the first step, however the model spelled its call, so that
    build_trajectory_samples joins both.
    """
    prompts = [template.prompt(task.messages, TOOLS) for task in tasks]
    groups = _generate(session, template, prompts, num_samples, seed=2 * seed)
    openings = [
        _Opening(task, f"task {number}", sk.Step(group.prompt, item), reply_text(template, item))
        for number, (task, group) in enumerate(zip(tasks, groups, strict=True))
        for item in group.completions
    ]
    seconds = _second_steps(session, template, openings, seed=2 * seed + 1)
    return [_finish(template, opening, seconds.get(index)) for index, opening in enumerate(openings)]


def _second_steps(
    session: Session, template: sk.ChatTemplate, openings: Sequence[_Opening], *, seed: int
) -> dict[int, sk.Step]:
    """Run the tool where it was called, and sample what the model says to its answer."""
    calls = {index: call for index, opening in enumerate(openings) if (call := read_call(opening.text)) is not None}
    if not calls:
        return {}
    prompts = [
        template.next_prompt(openings[index].step.tokens, openings[index].task.after_call(call), TOOLS)
        for index, call in calls.items()
    ]
    groups = _generate(session, template, prompts, 1, seed=seed)
    return {index: sk.Step(group.prompt, group.completions[0]) for index, group in zip(calls, groups, strict=True)}


def _generate(
    session: Session, template: sk.ChatTemplate, prompts: list[list[int]], num_samples: int, *, seed: int
) -> list[sk.Group]:
    return session.generate(
        prompts, num_samples=num_samples, max_tokens=MAX_TOKENS, stop=template.stop_strings, seed=seed
    ).result()


def _finish(template: sk.ChatTemplate, opening: _Opening, second: sk.Step | None) -> Episode:
    """Score the last completion of an episode."""
    reply = opening.text if second is None else reply_text(template, second.completion)
    reward = opening.task.score(reply)
    steps = [opening.step] if second is None else [opening.step, second]
    asked, answered = opening.task.messages[0]["content"], "" if second is None else f" -> {reply}"
    transcript = f"{asked}\n  {' '.join(opening.text.split())}{answered}"
    return Episode(sk.Trajectory(steps, reward=reward, group=opening.group), reward, transcript)
