"""Reinforcement learning with a tool: the model calls it, reads what it answers and replies; one reward for both steps.

Without arguments it trains the package's own tiny model on the local service, in a few minutes on a laptop:

    python cookbook/grpo_tools.py

The tool is the Python function `PriceTask.price`. From demonstrations the tiny model first learns both to call it and
to guess a price; that calling pays it learns from rewards alone.
"""

from __future__ import annotations

import random
import time
from typing import Any

import click
from parts.curve import draw_curve
from parts.episodes import Episode, play
from parts.policy_step import has_trained, policy_step
from parts.price_task import demonstrations, price_tasks
from parts.settings import Settings, examples, recipe_options, training_session
from parts.summary import folder_line, gain_line
from parts.supervised_start import supervised_start
from rich.text import Text

import samplekit as sk
from samplekit.cli.screen import progress, results
from samplekit.cli.show import sample_view
from samplekit.cli.tables import metrics_table
from samplekit.client import Session
from samplekit.files import RunFolder

LOSS = sk.GRPO()
START_STEPS = 190
START_BATCH = 16  # demonstrations a step: with the tool's schema each has about 160 tokens


@click.command(
    epilog=examples(
        "grpo_tools.py",
        "grpo_tools.py --steps 20 --seed 1 --run-dir runs/short",
        "grpo_tools.py --base-url https://api.together.ai --model Qwen/Qwen3-8B --lora-rank 32 --learning-rate 1e-5",
    )
)
@recipe_options(steps=20, learning_rate=3e-4, run_dir="runs/grpo_tools")
@click.option("--num-tasks", type=click.IntRange(min=1), default=8, show_default=True, help="Questions a step.")
@click.option("--num-samples", type=click.IntRange(min=2), default=8, show_default=True, help="Episodes a question.")
def main(num_tasks: int, num_samples: int, **options: Any) -> None:  # noqa: ANN401 - the fields of Settings
    """Teach a model by rewards to ask a tool, and leave metrics and reward curve in the run folder."""
    settings = Settings(**options)
    template = sk.ChatTemplate.load(settings.model, thinking=False)
    chooser = random.Random(settings.seed)
    run = RunFolder(settings.run_dir)
    with training_session(settings) as session:
        samples = demonstrations(template, price_tasks(chooser, 400), chooser)
        num_start = settings.num_start_steps(START_STEPS)
        supervised_start(session, samples, steps=num_start, seed=settings.seed, batch_size=START_BATCH)
        with progress(transient=False) as display:
            bar = display.add_task("reinforcing", total=settings.steps, note="")
            for step in range(1, settings.steps + 1):
                start = time.monotonic()
                tasks = price_tasks(chooser, num_tasks)
                episodes = play(session, template, tasks, num_samples, seed=settings.seed * 1_000_000 + step)
                metrics = learn(session, template, episodes, settings.learning_rate, first=not has_trained(run))
                run.log(step=step, **metrics, seconds=round(time.monotonic() - start, 3))
                display.update(bar, advance=1, note=f"reward {metrics['reward/mean']:.3f}")
        last = play(session, template, price_tasks(chooser, 3), 1, seed=settings.seed)
    for episode in last:
        results.print(Text(episode.transcript, style="green" if episode.reward else "red"))
    files = draw_curve(run, "reward/mean")
    results.print(gain_line([row["reward/mean"] for row in run.metrics]))
    results.print(folder_line(run, files))


def learn(
    session: Session, template: sk.ChatTemplate, episodes: list[Episode], learning_rate: float, *, first: bool
) -> dict[str, float]:
    """Build samples of whole episodes and take one step on them; show an episode and the metrics of the first step."""
    trajectories = [episode.trajectory for episode in episodes]
    samples = sk.build_trajectory_samples(trajectories)
    metrics = sk.rollout_metrics(trajectories)
    # fewer than completion/count: the steps of an episode share one
    metrics |= {"samples": len(samples), "dropped": samples.dropped.total()}
    if not samples:
        return metrics
    metrics |= policy_step(session, samples, LOSS, learning_rate, diagnose=first)
    if first:
        longest = max(samples, key=lambda sample: len(sample.info["steps"]))
        results.print(sample_view(longest, template, f"an episode of {len(longest.info['steps'])} steps in one sample"))
        results.print(metrics_table(metrics, "the first step that trains"))
    return metrics


if __name__ == "__main__":
    main()
