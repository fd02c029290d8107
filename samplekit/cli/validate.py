"""`samplekit validate`: every fault of a samples file, named path:line."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from samplekit.checks import CODES, Finding, Report, check
from samplekit.cli.screen import counted, load_template, print_json, results
from samplekit.errors import FileFormatError
from samplekit.files import check_lock, read_sample_rows
from samplekit.losses import DRO, LOSSES, Loss

_LOSS_NAMES = {loss.wire_type.removeprefix("LOSS_TYPE_").lower(): loss for loss in LOSSES}
_IN_BATCH = re.compile(r"^samples\[(\d+)\]")


@click.command(short_help="Name every fault of a samples file.")
@click.argument("samples", type=click.Path(path_type=Path))
@click.option("--loss", type=click.Choice(sorted(_LOSS_NAMES)), help="The loss the samples are meant for.")
@click.option("--model", "-m", help="Hold token ids and the lock to this tokenizer and template.")
@click.option("--vocab-size", type=click.IntRange(min=1), help="Token ids must be below it.")
@click.option("--max-length", type=click.IntRange(min=2), help="The most tokens a sample may hold.")
@click.option("--allow", multiple=True, type=click.Choice(sorted(CODES)), help="A finding to accept.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def validate(
    samples: Path, loss: str | None, model: str | None, vocab_size: int | None, max_length: int | None,
    allow: Sequence[str], as_json: bool,
) -> None:  # fmt: skip
    """Check every sample of SAMPLES and name every fault; exits with 1 where there is one.

    \b
    Example:
      samplekit validate samples.jsonl --loss cross_entropy --model samplekit/tiny
    """
    template = None if model is None else load_template(model)
    lines = SampleLines(samples)
    try:
        check_lock(samples, template)
    except FileFormatError as fault:  # what is wrong with the samples themselves is still to be named
        lines.faults.append(fault)
    if vocab_size is None and template is not None:
        vocab_size = len(template.tokenizer)
    report = check(
        counted(iter(lines), "checking samples"),
        loss=_loss(loss),
        vocab_size=vocab_size,
        max_length=max_length,
        allow=allow,
    )
    report = lines.locate(report)
    if as_json:
        print_json(report.to_dict())
    else:
        results.print(str(report), style=None if report.ok else "red", markup=False, soft_wrap=True)
    if not report.ok:
        raise click.exceptions.Exit(1)


def _loss(name: str | None) -> Loss | None:
    if name is None:
        return None
    kind = _LOSS_NAMES[name]
    return DRO(beta=0.0) if kind is DRO else kind()


class SampleLines:
    """A file's samples as a batch that remembers the lines they stand on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.numbers: list[int] = []
        self.faults: list[FileFormatError] = []

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number, row in read_sample_rows(self.path, on_fault=self.faults.append):
            if "messages" in row and "model_input" not in row:
                raise FileFormatError(
                    f"{self.path}:{number} is a conversation, expected a sample: run samplekit build first",
                    path=str(self.path),
                    line=number,
                )
            self.numbers.append(number)
            yield row

    def locate(self, report: Report) -> Report:
        """Name path:line instead of the place in the batch, and put the lock and the unreadable lines first."""
        unreadable = [
            Finding("invalid_field", f"{fault.path}:{fault.line}" if fault.line else fault.path, str(fault))
            for fault in self.faults
        ]
        return dataclasses.replace(
            report,
            errors=[*unreadable, *map(self._located, report.errors)],
            warnings=[*map(self._located, report.warnings)],
        )

    def _located(self, finding: Finding) -> Finding:
        def place(found: re.Match[str]) -> str:
            return f"{self.path}:{self.numbers[int(found[1])]}"

        return Finding(finding.code, _IN_BATCH.sub(place, finding.path), _IN_BATCH.sub(place, finding.message))
