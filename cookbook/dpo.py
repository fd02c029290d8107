"""Direct preference optimisation: a loss that the service does not know, computed here and sent as a gradient.

Without arguments it trains the package's own tiny model on the local service, in a minute or two on a laptop:

    python cookbook/dpo.py

Pairs of one's own, a JSON object a line with "messages" (a prompt), "chosen" and "rejected" (two replies):

    python cookbook/dpo.py --pairs pairs.jsonl
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import click
from parts.curve import draw_curve
from parts.larger_number import NumberTask, demonstrations, number_tasks, try_out
from parts.settings import Settings, examples, recipe_options, training_session
from parts.summary import folder_line
from parts.supervised_start import supervised_start

import samplekit as sk
from samplekit.cli.screen import progress, results
from samplekit.cli.tables import metrics_table
from samplekit.client import Session, TrainResult
from samplekit.files import RunFolder
from samplekit.files.lines import read_objects
from samplekit.sample.arrays import FloatArray
from samplekit.training import dpo_loss, loss_gradients

SCORING = sk.CrossEntropy()
START_STEPS = 120
MARGIN = "dpo/margin/mean"
CHUNK = 64  # samples scored in one request

Pair: TypeAlias = tuple[sk.Sample, sk.Sample]  # chosen, rejected


@click.command(
    epilog=examples(
        "dpo.py",
        "dpo.py --beta 0.3 --steps 20 --run-dir runs/short",
        "dpo.py --pairs pairs.jsonl --base-url https://api.together.ai --model Qwen/Qwen3-8B --lora-rank 32",
    )
)
@recipe_options(steps=40, learning_rate=3e-4, run_dir="runs/dpo")
@click.option(
    "--pairs", "path", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Pairs to use instead."
)
@click.option("--num-pairs", type=click.IntRange(min=1), default=16, show_default=True, help="Pairs a step.")
@click.option("--beta", type=float, default=0.1, show_default=True, help="How strongly the reference is kept to.")
def main(path: Path | None, num_pairs: int, beta: float, **options: Any) -> None:  # noqa: ANN401 - fields of Settings
    """Teach a model to prefer one reply to another, and leave metrics and margin curve in the run folder."""
    settings = Settings(**options)
    template = sk.ChatTemplate.load(settings.model, thinking=False)
    train_tasks, held_out_tasks = number_tasks(settings.seed)
    rows = read_pairs(path) if path else [number_row(task) for task in [*train_tasks, *held_out_tasks]]
    run = RunFolder(settings.run_dir)
    with training_session(settings) as session:
        start = demonstrations(template, train_tasks)
        supervised_start(session, start, steps=settings.num_start_steps(START_STEPS), seed=settings.seed)
        # The reference is the policy before the first step: its logprobs are taken once, and no second model is kept.
        pairs = with_reference(session, [build_pair(template, row) for row in rows])
        cut = max(1, len(pairs) // 6)
        train, held_out = pairs[:-cut], pairs[-cut:]
        results.print(metrics_table(evaluate(session, held_out, beta), "held-out pairs, before"))
        fit(session, train, run, settings, num_pairs=num_pairs, beta=beta)
        results.print(metrics_table(evaluate(session, held_out, beta), "held-out pairs, after"))
        if path is None:
            session.weights_sync().result()
            results.print(try_out(session, template, held_out_tasks, "replies after training")[1])
    files = draw_curve(run, MARGIN)
    margins = [row[MARGIN] for row in run.metrics]
    results.print(f"margin: {margins[0]:.3f} in the first step, {margins[-1]:.3f} in the last")
    results.print(folder_line(run, files))


def read_pairs(path: Path) -> list[dict[str, Any]]:
    """Read rows of ``messages``, ``chosen`` and ``rejected``; the first one at fault is named path:line."""
    rows: list[dict[str, Any]] = []
    for line, row in read_objects(path):
        if isinstance(row, sk.FileFormatError):
            raise row
        missing = sorted({"messages", "chosen", "rejected"} - set(row))
        if missing:
            raise sk.FileFormatError(
                f"{path}:{line} lacks {missing}, expected a prompt and two replies", path=str(path), line=line
            )
        rows.append(row)
    if len(rows) < 2:
        raise sk.SampleError(f"{path} holds {len(rows)} pairs, expected 2 or more: the last sixth is held out")
    return rows


def number_row(task: NumberTask) -> dict[str, Any]:
    """Prefer the larger number to the smaller one."""
    return {"messages": task.messages, "chosen": task.answer, "rejected": task.wrong_answer}


def build_pair(template: sk.ChatTemplate, row: Mapping[str, Any]) -> Pair:
    """Build two samples that differ in the reply; only the reply trains."""
    chosen, rejected = (
        template.samples([*row["messages"], {"role": "assistant", "content": row[name]}], train_on="last")[0]
        for name in ("chosen", "rejected")
    )
    return chosen, rejected


def with_reference(session: Session, pairs: list[Pair]) -> list[Pair]:
    """Score pairs by the policy as it is now, and give them with what it says as reference_logprobs."""
    samples = flat(pairs)
    rows = policy_logprobs(session, samples)
    scored = [sample.with_reference_logprobs(row) for sample, row in zip(samples, rows, strict=True)]
    return list(zip(scored[::2], scored[1::2], strict=True))


def fit(
    session: Session, pairs: list[Pair], run: RunFolder, settings: Settings, *, num_pairs: int, beta: float
) -> None:
    """Run one optimizer step a batch of pairs; both samples of a pair travel together."""
    loss = partial(dpo_loss, beta=beta)
    with progress(transient=False) as display:
        bar = display.add_task("preferring", total=settings.steps, note="")
        for step, batch in enumerate(batches(pairs, num_pairs, settings.seed, settings.steps), 1):
            samples = flat(batch)
            logprobs = policy_logprobs(session, samples)
            session.custom_forward_backward(samples, loss_gradients(loss, logprobs, samples))
            session.optim_step(learning_rate=settings.learning_rate).result()
            output = loss(logprobs, samples)
            run.log(step=step, loss=float(output.loss), **output.metrics)
            display.update(bar, advance=1, note=f"margin {output.metrics[MARGIN]:.3f}")


def batches(pairs: list[Pair], size: int, seed: int, count: int) -> Iterator[list[Pair]]:
    """Draw batches of different pairs."""
    chooser = random.Random(seed)
    for _ in range(count):
        yield chooser.sample(pairs, min(size, len(pairs)))


def evaluate(session: Session, pairs: list[Pair], beta: float) -> dict[str, float]:
    """Compute loss, margin and accuracy of pairs, without a gradient."""
    output = dpo_loss(policy_logprobs(session, flat(pairs)), flat(pairs), beta=beta)
    return {"dpo/loss": float(output.loss), **output.metrics}


def flat(pairs: list[Pair]) -> list[sk.Sample]:
    """Lay pairs out as dpo_loss reads them: chosen, rejected, chosen, rejected ..."""
    return [sample for pair in pairs for sample in pair]


def policy_logprobs(session: Session, samples: list[sk.Sample]) -> list[FloatArray]:
    """Give the current policy's logprobs, one array a sample; positions that do not train read 0."""
    parts = [samples[at : at + CHUNK] for at in range(0, len(samples), CHUNK)]
    results = [operation.result() for operation in [session.forward(part, SCORING) for part in parts]]
    return [row for result in results for row in logprobs_of(result)]


def logprobs_of(result: TrainResult) -> list[FloatArray]:
    """Give what DPO is made of, or say that the service left it out."""
    if result.logprobs is None:
        raise sk.SampleError("the service sent no logprobs, expected one array a sample: DPO needs them")
    return [*result.logprobs]


if __name__ == "__main__":
    main()
