"""Reinforcement learning, end to end: prompts -> sampled groups -> rewards -> advantages -> samples -> a better policy.

Without arguments it trains the package's own tiny model on the local service, in two or three minutes on a laptop:

    python cookbook/grpo.py

The tiny model first learns from demonstrations to reply with one of the two numbers it is asked about, either of them;
which one is the larger it learns from rewards alone.
"""

from __future__ import annotations

import random
import time
from typing import Any

import click
from parts.curve import draw_curve
from parts.larger_number import MAX_TOKENS, NumberTask, demonstrations, number_tasks, reply_text, score, try_out
from parts.policy_step import has_trained, policy_step
from parts.settings import Settings, examples, recipe_options, training_session
from parts.summary import folder_line, gain_line
from parts.supervised_start import supervised_start

import samplekit as sk
from samplekit.cli.screen import progress, results
from samplekit.cli.tables import metrics_table
from samplekit.client import Session
from samplekit.files import RunFolder

LOSS = sk.GRPO()
START_STEPS = 120


@click.command(
    epilog=examples(
        "grpo.py",
        "grpo.py --steps 20 --seed 1 --run-dir runs/short",
        "grpo.py --base-url https://api.together.ai --model Qwen/Qwen3-8B --lora-rank 32 --learning-rate 1e-5",
    )
)
@recipe_options(steps=40, learning_rate=3e-4, run_dir="runs/grpo")
@click.option("--num-tasks", type=click.IntRange(min=1), default=16, show_default=True, help="Prompts a step.")
@click.option("--num-samples", type=click.IntRange(min=2), default=8, show_default=True, help="Completions a prompt.")
def main(num_tasks: int, num_samples: int, **options: Any) -> None:  # noqa: ANN401 - the fields of Settings
    """Teach a model by rewards which of two numbers is larger, and leave metrics and reward curve in the run folder."""
    settings = Settings(**options)
    template = sk.ChatTemplate.load(settings.model, thinking=False)
    train, held_out = number_tasks(settings.seed)
    run = RunFolder(settings.run_dir)
    with training_session(settings) as session:
        samples = demonstrations(template, train)
        supervised_start(session, samples, steps=settings.num_start_steps(START_STEPS), seed=settings.seed)
        before, _ = try_out(session, template, held_out, "before")
        reinforce(session, template, train, run, settings, num_tasks=num_tasks, num_samples=num_samples)
        after, replies = try_out(session, template, held_out, "tasks it never trained on")
    files = draw_curve(run, "reward/mean")
    results.print(replies)
    results.print(gain_line([row["reward/mean"] for row in run.metrics]))
    results.print(f"held-out tasks right: {before:.0%} before, {after:.0%} after")
    results.print(folder_line(run, files))


def reinforce(
    session: Session, template: sk.ChatTemplate, tasks: list[NumberTask], run: RunFolder, settings: Settings,
    *, num_tasks: int, num_samples: int,
) -> None:  # fmt: skip
    """Sample, score, compare within each group, step, and give the generators the new weights."""
    chooser = random.Random(settings.seed)
    with progress(transient=False) as display:
        bar = display.add_task("reinforcing", total=settings.steps, note="")
        for step in range(1, settings.steps + 1):
            start = time.monotonic()
            chosen = chooser.sample(tasks, min(num_tasks, len(tasks)))
            groups = sample_groups(session, template, chosen, num_samples, seed=settings.seed * 1_000_000 + step)
            metrics = sk.rollout_metrics(groups)
            samples = sk.build_grpo_samples(groups)
            metrics |= {"samples": len(samples), "dropped": samples.dropped.total()}
            if samples:
                first = not has_trained(run)
                metrics |= policy_step(session, samples, LOSS, settings.learning_rate, diagnose=first)
                if first:
                    results.print(metrics_table(metrics, "the first step that trains"))
            metrics["seconds"] = round(time.monotonic() - start, 3)
            run.log(step=step, **metrics)
            display.update(bar, advance=1, note=f"reward {metrics['reward/mean']:.3f}")


def sample_groups(
    session: Session, template: sk.ChatTemplate, tasks: list[NumberTask], num_samples: int, *, seed: int
) -> list[sk.Group]:
    """Draw completions at temperature 1, and score them."""
    prompts = [template.prompt(task.messages) for task in tasks]
    found = session.generate(
        prompts, num_samples=num_samples, max_tokens=MAX_TOKENS, stop=template.stop_strings, seed=seed
    ).result()
    return [
        group.with_rewards([score(reply_text(template, item), task) for item in group.completions])
        for group, task in zip(found, tasks, strict=True)
    ]


if __name__ == "__main__":
    main()
