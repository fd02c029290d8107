"""Supervised fine-tuning, end to end: conversations -> samples -> checks -> a service -> a model that learned.

Without arguments it trains the package's own tiny model on the local service, in a few minutes on a laptop:

    python cookbook/sft.py

The same loop on another service, with a key in TOGETHER_API_KEY:

    python cookbook/sft.py --base-url https://api.together.ai --model Qwen/Qwen3-8B --lora-rank 32 --learning-rate 1e-4
"""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path
from typing import Any

import click
from rich.panel import Panel
from rich.text import Text

import samplekit as sk
from samplekit.cli.screen import progress, results
from samplekit.cli.show import sample_view
from samplekit.client import Client, Session, held_out_loss
from samplekit.files import RunFolder, make_lock

DATA = Path(__file__).parent / "data"
LOSS = sk.CrossEntropy()


@click.command()
@click.option(
    "--data", type=click.Path(path_type=Path, exists=True), default=DATA, help="A folder of *.jsonl, or a file."
)
@click.option(
    "--model", default="samplekit/tiny", show_default=True, help="What is trained; also names the chat template."
)
@click.option("--base-url", help="Another service; the default starts a local one.")
@click.option("--lora-rank", type=int, help="Train an adapter of this rank; the default trains full weights.")
@click.option("--epochs", type=int, default=3, show_default=True)
@click.option("--batch-size", type=int, default=16, show_default=True)
@click.option("--learning-rate", type=float, default=4e-3, show_default=True)
@click.option(
    "--max-length", type=int, default=1024, show_default=True, help="Tokens; longer conversations are skipped."
)
@click.option("--limit", type=int, help="Use only this many conversations.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--run-dir", type=click.Path(path_type=Path), default=Path("runs/sft"), show_default=True)
def main(
    data: Path, model: str, base_url: str | None, lora_rank: int | None, epochs: int, batch_size: int,
    learning_rate: float, max_length: int, limit: int | None, seed: int, run_dir: Path,
) -> None:  # fmt: skip
    """Fine-tune a model on conversations and leave samples, lock, metrics and loss curve in the run folder."""
    template = sk.ChatTemplate.load(model)
    train, held_out = build(data, template, max_length=max_length, limit=limit, seed=seed)
    run = RunFolder(run_dir)
    run.write_samples(train, make_lock(template, max_length=max_length, seed=seed))
    for index, sample in enumerate(train[:2]):
        results.print(sample_view(sample, template, f"sample {index}"))

    with contextlib.ExitStack() as stack:
        client = stack.enter_context(Client(base_url=base_url or stack.enter_context(local_service(model))))
        session = stack.enter_context(client.session(base_model=model, lora_rank=lora_rank))
        losses = {0: held_out_loss(session, held_out)}
        batches = list(session.batches(train, batch_size=batch_size, epochs=epochs, seed=seed))
        fit(session, batches, run, learning_rate)
        losses[len(batches)] = held_out_loss(session, held_out)
        curve = run.plot_loss(losses)
        before, after = losses.values()
        results.print(
            f"held-out loss per token: {before:.3f} before, {after:.3f} after ({1 - after / before:.0%} lower)"
        )
        show_replies(session, template, held_out)
    results.print(f"run folder: {run.path} (samples.jsonl, its lock, metrics.jsonl, {curve.name})")


def build(
    data: Path, template: sk.ChatTemplate, *, max_length: int, limit: int | None, seed: int
) -> tuple[list[sk.Sample], list[sk.Sample]]:
    """Build and check samples; one conversation in ten is held out."""
    files = sorted(data.glob("*.jsonl")) if data.is_dir() else data
    rows = list(sk.read_chats(files, on_fault=lambda fault: say_skipped("file_format", str(fault))))
    random.Random(seed).shuffle(rows)
    rows = rows[:limit]
    builder = sk.SampleBuilder(template, on_error="skip", max_length=max_length)
    cut = max(1, len(rows) // 10)
    held_out, train = builder.build(rows[:cut]), builder.build(rows[cut:])
    for skipped in [*held_out.skipped, *train.skipped]:
        say_skipped(skipped.code, skipped.message)
    for part in (train, held_out):
        report = sk.check(part.samples, loss=LOSS, max_length=max_length).raise_for_errors()
        results.print(str(report), markup=False)
    return train.samples, held_out.samples


def say_skipped(code: str, message: str) -> None:
    """Name a row that trains nothing; the message begins with its place."""
    results.print(f"skipped [{code}] {message}", style="yellow", markup=False)


def fit(session: Session, batches: list[Any], run: RunFolder, learning_rate: float) -> None:
    """Run one optimizer step a batch; the rate falls to a tenth, linearly."""
    with progress(transient=False) as display:
        task = display.add_task("training", total=len(batches), note="")
        for index, batch in enumerate(batches):
            start = time.monotonic()
            step = session.forward_backward(batch, LOSS)
            session.optim_step(learning_rate=learning_rate * (1 - 0.9 * index / len(batches))).result()
            result = step.result()
            rate = sum(sample.length for sample in batch) / (time.monotonic() - start)
            run.log(
                step=index + 1, loss=result.mean_loss, num_trained=result.num_trained, tokens_per_second=round(rate, 1)
            )
            display.update(task, advance=1, note=f"loss {result.mean_loss:.3f}  {rate:,.0f} tokens/s")


def show_replies(session: Session, template: sk.ChatTemplate, held_out: list[sk.Sample]) -> None:
    """Let the trained model answer three prompts it never saw."""
    session.weights_sync().result()  # generators keep the weights they started with until they are given new ones
    prompts = [sample.tokens[: int(sample.loss_mask.argmax())].tolist() for sample in held_out[:3]]
    groups = session.generate(prompts, max_tokens=60, temperature=0, stop=template.stop_strings).result()
    for prompt, group in zip(prompts, groups, strict=True):
        reply = Text(template.decode(prompt), style="dim")
        reply.append(template.decode(group.completions[0].tokens), style="bold green")
        results.print(Panel(reply, title="generated", title_align="left"))


@contextlib.contextmanager
def local_service(model: str):  # noqa: ANN201 - a context manager of the service's URL
    """Serve the model on this machine for as long as the block runs."""
    from samplekit.server import LocalService

    with LocalService(model=model) as service:
        yield service.url


if __name__ == "__main__":
    main()
