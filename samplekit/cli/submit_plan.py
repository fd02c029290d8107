"""What a run will do, settled before anything is created: its samples, batches, steps and learning rates."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from samplekit.checks import Report, check
from samplekit.cli.screen import counted, number_of
from samplekit.cli.validate import SampleLines
from samplekit.client.batches import Batch, make_batches
from samplekit.errors import SampleError
from samplekit.losses import LOSSES, Loss
from samplekit.sample import Sample
from samplekit.wire.names import LARGEST_SETTING

if TYPE_CHECKING:
    from samplekit.wire.offers import Limits

_MOST_SAMPLES = 50_000_000  # that a plan holds, over all epochs: some gigabytes
LOSS_NAMES: dict[str, type[Loss]] = {loss.wire_type.removeprefix("LOSS_TYPE_").lower(): loss for loss in LOSSES}
_WITH_BETA = ("dro", "grpo")
SCHEDULES = ("constant", "linear", "cosine")


class FiniteRange(click.FloatRange):
    """A number that the service takes."""

    def __init__(self, min: float, *, min_open: bool = False) -> None:  # noqa: A002 - as click calls it
        super().__init__(min, min_open=min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Refuse what is too large, and what is no number: nan is in every range of click's."""
        found = super().convert(value, param, ctx)
        if not found <= LARGEST_SETTING:
            self.fail(f"{value!r} is not a number of at most {LARGEST_SETTING:g}", param, ctx)
        return found


@dataclass(frozen=True)
class Settings:
    """What decides a run's numbers: a run is resumed with the same ones or not at all.

    Attributes:
        model: what is trained.
        lora_rank: of the adapter; None trains full weights.
        loss: by name.
        beta: of the losses that have one.
        epochs: passes over the samples.
        batch_size: samples in one forward_backward; None leaves it to the model.
        max_tokens: positions in one forward_backward.
        accumulate: batches whose gradients make one step.
        learning_rate: at its highest.
        schedule: how it falls.
        warmup: steps in which it rises; below 1 a share of all steps.
        weight_decay: Adam's.
        grad_clip: largest norm of the gradient, of the mean where the loss is a sum; 0 does not clip.
        held_out: samples kept apart: a share below 1, a number, or another file; None keeps none.
        seed: of every order and choice.
    """

    model: str
    lora_rank: int | None
    loss: str
    beta: float | None
    epochs: int
    batch_size: int | None
    max_tokens: int | None
    accumulate: int
    learning_rate: float
    schedule: str
    warmup: float
    weight_decay: float
    grad_clip: float
    held_out: str | None
    seed: int

    def make_loss(self) -> Loss:
        """Give the loss itself.

        Raises:
            SampleError: it needs a beta, or has none.
        """
        if self.beta is None and self.loss == "dro":
            raise SampleError("--loss dro needs --beta")
        if self.beta is not None and self.loss not in _WITH_BETA:
            raise SampleError(f"--beta is of {' and '.join(_WITH_BETA)}: --loss {self.loss} has none")
        return _made(LOSS_NAMES[self.loss], **({} if self.beta is None else {"beta": self.beta}))

    def divisor(self, num_trained: int) -> int:
        """Give what a loss is divided by: cross-entropy is a sum, how others are reduced is not documented."""
        return num_trained if self.loss == "cross_entropy" else 1

    def warmup_of(self, num_steps: int) -> int:
        """Give the steps in which the learning rate rises."""
        return round(self.warmup * num_steps) if self.warmup < 1 else round(self.warmup)

    def rate_at(self, step: int, num_steps: int) -> float:
        """Give the learning rate of a step, from 0: up to its highest in the warm-up, then along the schedule."""
        warmup = self.warmup_of(num_steps)
        if step < warmup:
            return self.learning_rate * (step + 1) / warmup
        done = (step - warmup) / max(num_steps - warmup, 1)
        shape = {"constant": 1.0, "linear": 1.0 - done, "cosine": 0.5 * (1.0 + math.cos(math.pi * done))}
        return self.learning_rate * shape[self.schedule]


def _made(kind: Callable[..., Loss], **settings: float) -> Loss:
    return kind(**settings)


@dataclass(frozen=True)
class Step:
    """One optimizer step.

    Attributes:
        index: from 0.
        epoch: from 0.
        batches: whose gradients are summed.
    """

    index: int
    epoch: int
    batches: Sequence[Batch]

    @property
    def num_trained(self) -> int:
        """Positions that train: what the step's sums are divided by."""
        return sum(batch.num_trained for batch in self.batches)

    @property
    def num_tokens(self) -> int:
        """Positions of all batches."""
        return sum(batch.num_tokens for batch in self.batches)


@dataclass(frozen=True)
class Plan:
    """A run as it will be: the same for the same files and settings.

    Attributes:
        steps: in their order.
        held_out: batches that are scored only.
        num_samples: that train.
    """

    steps: Sequence[Step]
    held_out: Sequence[Batch]
    num_samples: int

    @property
    def digest(self) -> str:
        """Tell it from a plan of other batches: the service's limits, too, decide where they are cut."""
        found = hashlib.sha256()
        for index, batches in [*((step.index, step.batches) for step in self.steps), (-1, self.held_out)]:
            for batch in batches:
                found.update(f"{index} {batch.epoch} {len(batch)} {batch.num_tokens} {batch.num_trained}\n".encode())
        return found.hexdigest()


def make_plan(train: Sequence[Sample], held_out: Sequence[Sample], settings: Settings, limits: Limits | None) -> Plan:
    """Cut samples into batches and batches into steps; the last step of an epoch may have fewer.

    Raises:
        SampleError: a sample or a setting is beyond what the model takes.
        UsageError: there would be more than a plan can hold.
    """
    if len(train) * settings.epochs > _MOST_SAMPLES:
        raise click.UsageError(
            f"--epochs {settings.epochs} of {number_of(len(train), 'sample')} are more than the {_MOST_SAMPLES:,} that "
            "a run takes: give fewer"
        )
    size, tokens = settings.batch_size, settings.max_tokens
    batches = make_batches(
        train, limits, batch_size=size, max_tokens=tokens, epochs=settings.epochs, seed=settings.seed
    )
    scored: Iterator[Batch] = iter(())
    if held_out:
        scored = make_batches(held_out, limits, batch_size=size, max_tokens=tokens, epochs=1, seed=settings.seed)
    return Plan(list(_steps(batches, settings.accumulate)), list(scored), len(train))


def _steps(batches: Iterator[Batch], accumulate: int) -> Iterator[Step]:
    held, index = list[Batch](), 0
    for batch in batches:
        if held and (len(held) == accumulate or batch.epoch != held[0].epoch):
            yield Step(index, held[0].epoch, held)
            held, index = [], index + 1
        held.append(batch)
    yield Step(index, held[0].epoch, held)


@dataclass(frozen=True)
class Source:
    """A file's samples, and the lines they stand on.

    Attributes:
        path: the file.
        samples: all of them.
        lines: their numbers, from 1.
    """

    path: Path
    samples: list[Sample]
    lines: list[int]

    def require_lengths(self, settings: Settings, limits: Limits | None) -> None:
        """Refuse samples that fit in no batch, by the lines they stand on.

        Raises:
            SampleError: naming the first.
        """
        bounds = {
            "--max-tokens": settings.max_tokens,
            "the model's max_seq_length": None if limits is None else limits.max_seq_length,
        }
        for name, bound in bounds.items():
            long = [index for index, sample in enumerate(self.samples) if bound is not None and sample.length > bound]
            if long:
                raise SampleError(
                    f"{self.path}:{self.lines[long[0]]} has {self.samples[long[0]].length} positions, expected at most "
                    f"{bound} ({name}), as have {number_of(len(long) - 1, 'other')}: build with --max-length {bound}"
                )


def require_file(path: Path) -> None:
    """Refuse what cannot be read as often as a run needs, or never ends.

    Raises:
        UsageError: it is a pipe or a device.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):  # of folders the reader says so
        raise click.UsageError(f"{path} is a pipe or a device, expected a file: its samples are read more than once")


def read_checked(path: Path, loss: Loss, vocab_size: int | None) -> tuple[Source, Report]:
    """Read a file's samples and find every fault in them, named path:line; without a fault each has its line."""
    lines, samples = SampleLines(path), list[Sample]()

    def admitted() -> Iterator[Sample | dict[str, Any]]:
        for row in counted(iter(lines), f"checking {path.name}"):
            try:
                sample = Sample.from_wire(row)
            except SampleError:
                yield row  # its faults are named by the check
            else:
                samples.append(sample)
                yield sample

    report = check(admitted(), loss=loss, vocab_size=vocab_size)
    return Source(path, samples, lines.numbers), lines.locate(report)


def digest_of(path: Path) -> str:
    """Give the digest of a file, which tells a resumed run whether its samples are the same."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
