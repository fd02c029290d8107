"""`samplekit template`: what a model's chat template does, and which settings it needs."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from samplekit.chat import TemplateReport
from samplekit.cli.screen import load_template, print_json, results
from samplekit.cli.template_options import read_settings, template_options


@click.command(short_help="Examine a model's chat template.")
@click.argument("name_or_path")
@template_options
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def template(
    context: click.Context, name_or_path: str, thinking: str, template_kwargs: Sequence[str], as_json: bool
) -> None:
    """Examine the chat template of NAME_OR_PATH (samplekit/tiny, a folder or a Hugging Face id).

    Says what it keeps and drops, what ends a reply, which settings it needs, and what becomes of every kind of
    conversation. Run it first with a new model. Exits with 0 where the plain chat builds, 1 otherwise.

    \b
    Example:
      samplekit template samplekit/tiny
      samplekit template Qwen/Qwen3-8B --thinking off --json
    """
    report = load_template(name_or_path, **read_settings(thinking, template_kwargs)).report()
    if as_json:
        print_json(report.to_dict())
    else:
        _print(report)
    if not report.builds:
        context.exit(1)


def _print(report: TemplateReport) -> None:
    results.print(_facts(report))
    results.print(_verdicts(report))
    advice = "\n".join(f"- {line}" for line in report.advice) or "nothing: the defaults fit"
    results.print(Panel(Text(advice), title="what to do", title_align="left"))


def _facts(report: TemplateReport) -> Table:
    """Draw what was found, one line a question."""
    table = Table(show_header=False, box=None, title=Text(report.name, style="bold"), title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in report.lines():
        table.add_row(label, Text(text))
    return table


def _verdicts(report: TemplateReport) -> Table:
    """Draw what becomes of each kind: green builds, yellow builds with another setting, red does not."""
    table = Table(
        "conversation",
        Column("outcome", no_wrap=True),
        "what to try",
        caption="strict, split and graft build, and train the reply alone; any other outcome names an error",
        caption_justify="left",
    )
    for verdict in report.verdicts:
        style = "green" if verdict.builds else "yellow" if verdict.remedy else "red"
        hint = "" if verdict.builds else f"{verdict.remedy} builds it" if verdict.remedy else verdict.hint
        table.add_row(verdict.kind, Text(verdict.outcome, style=style), Text(hint))
    return table
