"""`samplekit build`: conversations, or rows of tokens, to a samples file with its lock."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from samplekit.chat import ChatTemplate
from samplekit.cli.build_run import BuildOptions, BuildRun, refused_path
from samplekit.cli.screen import errors, load_template, print_json, results
from samplekit.cli.template_options import read_settings, template_options
from samplekit.errors import TemplateError
from samplekit.files import lock_path, locked_clock, make_lock, write_samples

_EXAMPLES = 3
_FORMATS = ["auto", "messages", "sharegpt", "alpaca", "prompt_completion"]


@click.command(short_help="Build samples from conversations.")
@click.argument("chats", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--model", "-m", help="Tokenizer and chat template: samplekit/tiny, a folder or a Hugging Face id.")
@click.option(
    "--output", "-o", required=True, type=click.Path(path_type=Path), help="The samples file (.jsonl, .gz, .zst)."
)
@click.option("--format", type=click.Choice(_FORMATS), default="auto", show_default=True, help="What the rows are.")
@click.option(
    "--turns", type=click.Choice(["all", "last"]), default="all", show_default=True, help="Which replies train."
)
@click.option("--merge", is_flag=True, help="Join turns into one sample where that is proved to train the same.")
@click.option("--max-length", type=click.IntRange(min=2), help="The most tokens a sample may hold.")
@click.option(
    "--truncation",
    type=click.Choice(["error", "drop", "left", "right"]),
    default="error",
    show_default=True,
    help="What happens to longer conversations.",
)
@template_options
@click.option("--clock", type=click.DateTime(), help="The time that templates print; the output's lock, or now.")
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes that build side by side."
)
@click.option(
    "--skip-errors", is_flag=True, help="Leave rows at fault out, and write them beside the output with their reasons."
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def build(
    chats: Sequence[Path], model: str | None, output: Path, format: Any, turns: str, merge: bool,  # noqa: A002, ANN401
    max_length: int | None, truncation: str, thinking: str, template_kwargs: Sequence[str], clock: dt.datetime | None,
    workers: int, skip_errors: bool, as_json: bool,
) -> None:  # fmt: skip
    """Build samples from CHATS: conversations in any known format, or rows of tokens and loss_mask (without --model).

    A second run on the same input writes the same bytes.

    \b
    Example:
      samplekit build chats.jsonl --model samplekit/tiny --thinking off -o samples.jsonl
    """
    _refuse_own_input(output, chats)
    options = BuildOptions(turns, merge, max_length, truncation, format)
    template = None if model is None else _load(model, thinking, template_kwargs, clock, output)
    run = BuildRun(template, options, skip_errors=skip_errors, workers=workers)
    lock = None if template is None else make_lock(template, options=asdict(options))
    try:
        write_samples(output, run.samples(chats), lock=lock)
    except TemplateError as error:
        if error.code == "no_template":
            raise click.UsageError(
                "conversations need a chat template: pass --model, such as --model samplekit/tiny"
            ) from error
        raise
    refused = run.write_refused(refused_path(output))
    summary = {"output": str(output), "refused": None if refused is None else str(refused), **run.summary()}
    if as_json:
        print_json(summary)
    else:
        _print_summary(summary)


def _refuse_own_input(output: Path, chats: Sequence[Path]) -> None:
    """Refuse to write over what is read: it would be gone with the first build."""
    written = {path.resolve() for path in (output, lock_path(output), refused_path(output))}
    for path in chats:
        if path.resolve() in written:
            raise click.BadParameter(f"{path} is read by this build, and would be overwritten", param_hint="--output")


def _load(model: str, thinking: str, pairs: Sequence[str], clock: dt.datetime | None, output: Path) -> ChatTemplate:
    """Load the template with the time it is to print: as asked, as the output's lock has it, or now."""
    settings = read_settings(thinking, pairs)
    template = load_template(model, clock=clock, **settings)
    if clock is not None or not template.reads_clock:
        return template
    read = locked_clock(output) or dt.datetime.now().replace(microsecond=0)  # noqa: DTZ005 - templates print local time
    return ChatTemplate(template.tokenizer, clock=read, **settings)


def _print_summary(summary: dict[str, Any]) -> None:
    """Print what was built on stdout, and what was skipped, by code with examples, on stderr."""
    skipped: list[dict[str, str]] = summary["skipped"]
    table = Table(show_header=False, box=None)
    table.add_row("rows read", f"{summary['num_rows']:,}")
    table.add_row("samples", f"{summary['num_samples']:,}")
    table.add_row("tokens", f"{summary['num_tokens']:,}")
    table.add_row("trained", f"{summary['num_trained']:,} ({summary['trained_share']:.1%})")
    table.add_row("skipped", f"{len(skipped):,}")
    table.add_row("written to", summary["output"])
    results.print(table)
    for code, number in Counter(item["code"] for item in skipped).most_common():
        errors.print(f"skipped {number} x {code}", style="yellow", markup=False)
        for item in [item for item in skipped if item["code"] == code][:_EXAMPLES]:
            told = item["message"].startswith(item["source"])
            errors.print(f"  {item['message']}" if told else f"  {item['source']}: {item['message']}", markup=False)
    if summary["refused"]:
        errors.print(f"refused rows and their reasons: {summary['refused']}", markup=False)
