"""`samplekit build`: conversations, or rows of tokens, to a samples file with its lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal

import click
import orjson
from rich.table import Table

from samplekit.build import build_sample
from samplekit.chat import ChatTemplate, SampleBuilder, Skipped
from samplekit.cli.screen import counted, errors, load_template, print_json, results
from samplekit.errors import FileFormatError, SampleError
from samplekit.files import Row, make_lock, read_rows, write_samples
from samplekit.sample import Sample

_CHUNK = 1024  # rows encoded together
_EXAMPLES = 3


@click.command()
@click.argument("chats", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--model", "-m", help="Tokenizer and chat template: samplekit/tiny, a folder or a Hugging Face id.")
@click.option(
    "--output", "-o", required=True, type=click.Path(path_type=Path), help="The samples file (.jsonl, .gz, .zst)."
)
@click.option(
    "--turns", type=click.Choice(["all", "last"]), default="all", show_default=True, help="Which replies train."
)
@click.option("--max-length", type=click.IntRange(min=2), help="The most tokens a sample may hold.")
@click.option(
    "--truncation",
    type=click.Choice(["error", "drop", "left", "right"]),
    default="error",
    show_default=True,
    help="What happens to longer conversations.",
)
@click.option(
    "--thinking",
    type=click.Choice(["as_rendered", "auto", "on", "off"]),
    default="as_rendered",
    show_default=True,
    help="How the template's thinking switch is set.",
)
@click.option(
    "--template-kwarg",
    "template_kwargs",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting the template reads; JSON or text.",
)
@click.option("--skip-errors", is_flag=True, help="Leave rows at fault out, count them and name them.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def build(
    chats: Sequence[Path], model: str | None, output: Path, turns: Literal["all", "last"], max_length: int | None,
    truncation: str, thinking: str, template_kwargs: Sequence[str], skip_errors: bool, as_json: bool,
) -> None:  # fmt: skip
    r"""Build samples from CHATS (JSON lines with messages; or with tokens and loss_mask, which need no --model).

    \b
    Example:
      samplekit build chats.jsonl --model samplekit/tiny --thinking off -o samples.jsonl
    """
    options = {"turns": turns, "max_length": max_length, "truncation": truncation}
    template = None if model is None else _load(model, thinking, template_kwargs)
    run = _Run(template, options, skip_errors=skip_errors)
    count = write_samples(output, run.samples(chats), lock=run.lock())
    summary = run.summary(count, output)
    if as_json:
        print_json(summary)
    else:
        _print_summary(summary)


def _load(model: str, thinking: str, pairs: Sequence[str]) -> ChatTemplate:
    setting = {"on": True, "off": False}.get(thinking, thinking)
    return load_template(model, thinking=setting, **dict(_pair(pair) for pair in pairs))


def _pair(pair: str) -> tuple[str, Any]:
    name, equals, text = pair.partition("=")
    if not equals or not name.isidentifier():
        raise click.BadParameter(f"{pair!r} is not of the form NAME=VALUE", param_hint="--template-kwarg")
    try:
        return name, orjson.loads(text)
    except orjson.JSONDecodeError:
        return name, text


class _Run:
    """One build: rows in, samples out, and what was counted on the way."""

    def __init__(self, template: ChatTemplate | None, options: dict[str, Any], *, skip_errors: bool) -> None:
        self.template = template
        self.options = options
        self.skip_errors = skip_errors
        self.skipped: list[Skipped] = []
        self.num_rows = 0
        self.num_tokens = 0
        self.num_trained = 0

    def lock(self) -> dict[str, Any] | None:
        return None if self.template is None else make_lock(self.template, options=self.options)

    def samples(self, paths: Sequence[Path]) -> Iterator[Sample]:
        """Stream the samples of every row, a chunk of rows at a time."""
        on_fault = self._skip_line if self.skip_errors else None
        for chunk in _chunks(counted(read_rows(paths, on_fault=on_fault), "building samples")):
            self.num_rows += len(chunk)
            for sample in self._build(chunk):
                self.num_tokens += sample.length
                self.num_trained += sample.num_trained
                yield sample
        if not self.num_tokens:  # raised before anything is renamed: an older file stays
            raise SampleError(f"{', '.join(map(str, paths))} gave no sample: {self._why_none()}")

    def _skip_line(self, fault: FileFormatError) -> None:
        self.num_rows += 1
        self.skipped.append(Skipped(f"{fault.path}:{fault.line}", "file_format", str(fault)))

    def _build(self, rows: Sequence[Row]) -> Iterator[Sample]:
        for is_chat, group in groupby(rows, lambda row: "messages" in row):
            if is_chat:
                yield from self._chat_samples(list(group))
            else:
                yield from chain.from_iterable(map(self._token_sample, group))

    def _chat_samples(self, rows: Sequence[Row]) -> Sequence[Sample]:
        if self.template is None:
            raise click.UsageError("conversations need a chat template: pass --model, such as --model samplekit/tiny")
        builder = SampleBuilder(
            self.template, on_error="skip" if self.skip_errors else "raise", train_on=self.options["turns"],
            max_length=self.options["max_length"], truncation=self.options["truncation"],
        )  # fmt: skip
        built = builder.build(rows)
        self.skipped += built.skipped
        return built.samples

    def _token_sample(self, row: Row) -> Iterator[Sample]:
        arrays = {name: value for name, value in row.items() if name not in ("tokens", "loss_mask", "source", "info")}
        info: dict[str, Any] = {**(row.get("info") or {}), "source": row["source"]}
        limit, truncation = self.options["max_length"], self.options["truncation"]
        try:
            if limit is not None and truncation in ("error", "drop") and len(row["tokens"]) > limit:
                raise SampleError(f"tokens holds {len(row['tokens'])} values, --max-length is {limit}: raise it")
            side: Any = "right" if truncation in ("error", "drop") else truncation
            yield build_sample(row["tokens"], row["loss_mask"], **arrays, max_length=limit, truncation=side, info=info)
        except SampleError as error:
            if not self.skip_errors:
                raise SampleError(f"{row['source']}: {error}") from error
            self.skipped.append(Skipped(row["source"], "sample", str(error)))

    def _why_none(self) -> str:
        if not self.num_rows:
            return "there is no row in it"
        found = "; ".join(f"{item.source}: {item.message}" for item in self.skipped[:_EXAMPLES])
        return found or "no row holds a reply to train"

    def summary(self, count: int, output: Path) -> dict[str, Any]:
        """Say what was read, built and skipped."""
        return {
            "output": str(output),
            "num_rows": self.num_rows,
            "num_samples": count,
            "num_tokens": self.num_tokens,
            "num_trained": self.num_trained,
            "trained_share": self.num_trained / self.num_tokens,
            "skipped": [{"source": item.source, "code": item.code, "message": item.message} for item in self.skipped],
        }


def _print_summary(summary: dict[str, Any]) -> None:
    """Print what was built on stdout, and what was skipped, by code with examples, on stderr."""
    skipped: list[dict[str, str]] = summary["skipped"]
    table = Table(show_header=False, box=None)
    table.add_row("rows read", f"{summary['num_rows']:,}")
    table.add_row("samples", f"{summary['num_samples']:,}")
    table.add_row("tokens", f"{summary['num_tokens']:,}")
    table.add_row("trained", f"{summary['num_trained']:,} ({summary['trained_share']:.1%})")
    table.add_row("rows skipped", f"{len(skipped):,}")
    table.add_row("written to", summary["output"])
    results.print(table)
    for code, number in Counter(item["code"] for item in skipped).most_common():
        errors.print(f"skipped {number} x {code}", style="yellow", markup=False)
        for item in [item for item in skipped if item["code"] == code][:_EXAMPLES]:
            errors.print(f"  {item['source']}: {item['message']}", markup=False)


def _chunks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
