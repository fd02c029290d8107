"""Training on this machine: samples -> packed rows -> a plain torch loop, or Hugging Face's Trainer.

Without arguments it trains the package's own tiny model on packed rows, in a minute on a laptop:

    python cookbook/train_locally.py

The same documents one at a time, with the same losses, and the same rows through the Trainer:

    python cookbook/train_locally.py --way unpacked
    python cookbook/train_locally.py --way trainer
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import torch

import samplekit as sk
from samplekit.cli.screen import results
from samplekit.files import RunFolder
from samplekit.server import load_model
from samplekit.training import PackingCollator, compute_loss, packed_logprobs, target_logprobs

DATA = Path(__file__).parent / "data" / "everyday.jsonl"
LOSS = sk.CrossEntropy()


def finite(_context: click.Context, _option: click.Parameter, value: float) -> float:
    """Refuse what click's ranges let pass: nan and infinities."""
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is no finite number")
    return value


@click.command()
@click.option("--way", type=click.Choice(["packed", "unpacked", "trainer"]), default="packed", show_default=True)
@click.option(
    "--data", type=click.Path(path_type=Path, exists=True, dir_okay=False), default=DATA, help="Conversations."
)
@click.option("--model", default="samplekit/tiny", show_default=True, help="A Hugging Face path or id.")
@click.option("--width", type=click.IntRange(min=2), default=1024, show_default=True, help="Tokens of a row.")
@click.option("--rows-per-step", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--micro-batch", type=click.IntRange(min=1), default=1, show_default=True, help="Rows of one pass.")
@click.option("--epochs", type=click.IntRange(min=1), default=8, show_default=True)
@click.option(
    "--learning-rate", type=click.FloatRange(min=0, min_open=True), default=0.2, show_default=True, callback=finite
)
@click.option("--limit", type=click.IntRange(min=1), help="Use only this many conversations.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
@click.option("--run-dir", type=click.Path(path_type=Path, file_okay=False), help="[default: runs/train_locally/<way>]")
def main(
    way: str, data: Path, model: str, width: int, rows_per_step: int, micro_batch: int, epochs: int,
    learning_rate: float, limit: int | None, seed: int, run_dir: Path | None,
) -> None:  # fmt: skip
    r"""Fine-tune a model here, on packed rows, and leave metrics and a loss curve in the run folder.

    \b
    Example:
      python cookbook/train_locally.py --way trainer --epochs 3
    """
    if rows_per_step % micro_batch:
        raise click.BadParameter(
            f"{micro_batch} does not divide --rows-per-step {rows_per_step}", param_hint="--micro-batch"
        )
    torch.manual_seed(seed)
    with faults_without_traceback():
        loaded = load_model(model)
        rows = rows_of(data, sk.ChatTemplate.load(model), width, longest=loaded.context_length, limit=limit, seed=seed)
        steps = list(steps_of(rows, rows_per_step, epochs, seed))
        run = RunFolder(run_dir or Path("runs/train_locally") / way)
        network = loaded.module.train().requires_grad_(True)
        if way == "trainer":
            losses = fit_with_trainer(network, steps, width, micro_batch, learning_rate, run.path)
        else:
            losses = fit(network, steps, micro_batch, learning_rate, packed=way == "packed")
        first, last = log(run, losses)
        results.print(f"loss per token: {first:.3f} in the first step, {last:.3f} in the last")
        results.print(f"run folder: {run.path} (metrics.jsonl, {run.plot_loss({}).name})")


@contextmanager
def faults_without_traceback() -> Generator[None]:
    """Print what is wrong with the data, the model, a file or an installation as click prints its own errors."""
    try:
        yield
    except (sk.SamplekitError, OSError, ImportError) as error:
        raise click.ClickException(str(error)) from error


def rows_of(
    data: Path, template: sk.ChatTemplate, width: int, *, longest: int, limit: int | None, seed: int
) -> list[sk.PackedRecord]:  # fmt: skip
    """Build the samples that fit a row and the model's context, and pack them."""
    conversations = list(sk.read_chats(data))[:limit]
    built = sk.SampleBuilder(template, on_error="skip", max_length=min(width, longest)).build(conversations)
    if not built.samples:
        why = f"{built.skipped[0].source}: {built.skipped[0].message}" if built.skipped else "there is no row in it"
        raise click.UsageError(f"{data} gave no sample to train on, with --width {width}: {why}")
    sk.check(built.samples, loss=LOSS, max_length=width).raise_for_errors()
    rows = sk.pack([sk.Record.from_sample(sample) for sample in built.samples], width, pad_id=0, seed=seed)
    results.print(
        f"{len(built.samples)} samples in {len(rows)} rows, {rows.plan.utilization:.1%} full; "
        f"{len(built.skipped)} conversations skipped"
    )
    return rows


def log(run: RunFolder, losses: Iterable[float]) -> tuple[float, float]:
    """Log the losses as they come, as long as they are numbers; give the first and the last."""
    for number, loss in enumerate(losses, start=1):
        if not math.isfinite(loss):
            raise click.ClickException(f"the loss of step {number} is {loss}: lower --learning-rate")
        run.log(step=number, loss=loss)
    return run.metrics[0]["loss"], run.metrics[-1]["loss"]


def steps_of(rows: list[sk.PackedRecord], size: int, epochs: int, seed: int) -> Iterator[list[sk.PackedRecord]]:
    """Give the rows of every optimizer step; each epoch shuffles anew and leaves out rows that fill no step."""
    if len(rows) < size:
        raise click.UsageError(f"{len(rows)} rows are fewer than one step takes ({size}): lower --rows-per-step")
    order = random.Random(seed)
    for _ in range(epochs):
        shuffled = order.sample(rows, len(rows))
        for start in range(0, len(rows) - size + 1, size):
            yield shuffled[start : start + size]


def fit(
    network: torch.nn.Module, steps: list[list[sk.PackedRecord]], micro_batch: int, learning_rate: float, *,
    packed: bool,
) -> Iterator[float]:  # fmt: skip
    """Run the plain loop and give each step's loss: the mean over all tokens that the step trains."""
    optimizer = torch.optim.SGD(network.parameters(), lr=learning_rate, momentum=0.9)
    started, tokens = time.monotonic(), 0
    for rows in steps:
        num_trained = sum(document.to_sample().num_trained for row in rows for document in row.documents)
        total = 0.0
        for batch in sk.batch(rows, micro_batch):
            samples = [document.to_sample() for document in batch.documents]
            logprobs = packed_logprobs(network, batch) if packed else target_logprobs(network, samples)
            # not the mean of the passes' means: they train unlike counts of tokens
            loss = compute_loss(logprobs, samples, LOSS, normalizer=num_trained).loss
            loss.backward()
            total += float(loss.detach())
            tokens += sum(document.length for document in batch.documents)
        optimizer.step()
        optimizer.zero_grad()
        yield total
    results.print(f"{tokens / (time.monotonic() - started):,.0f} tokens/s")


def fit_with_trainer(
    network: torch.nn.Module, steps: list[list[sk.PackedRecord]], width: int, micro_batch: int, learning_rate: float,
    run_dir: Path,
) -> list[float]:  # fmt: skip
    """Run the same steps through Hugging Face's Trainer: the collator gives it documents, and what they train."""
    from transformers import Trainer, TrainingArguments

    size = len(steps[0])
    arguments = TrainingArguments(
        str(run_dir / "trainer"), per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=size // micro_batch, max_steps=len(steps), learning_rate=learning_rate,
        lr_scheduler_type="constant", optim="sgd", optim_args="momentum=0.9", max_grad_norm=0.0, logging_steps=1,
        train_sampling_strategy="sequential", remove_unused_columns=False, report_to=[], save_strategy="no",
        disable_tqdm=True, logging_nan_inf_filter=False,
    )  # fmt: skip
    rows = [row for step in steps for row in step]
    collator = PackingCollator(width, pad_id=0)
    trainer = Trainer(network, arguments, train_dataset=rows, data_collator=collator)  # type: ignore[arg-type]
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    main()
