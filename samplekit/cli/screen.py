"""Where the command line draws: results on stdout, everything else on stderr, progress only where someone watches."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import orjson
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from samplekit.chat import ChatTemplate

T = TypeVar("T")

results = Console(highlight=False)
errors = Console(stderr=True, soft_wrap=True, highlight=False)


def load_template(model: str, **options: Any) -> ChatTemplate:  # noqa: ANN401 - the options of ChatTemplate
    """Load a chat template; a terminal sees that it takes a moment."""
    with errors.status(f"loading {model}"):
        return ChatTemplate.load(model, **options)


def print_json(value: object) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")


def number_of(count: int, noun: str) -> str:
    """Say how many there are of something, in the singular where there is one."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@contextmanager
def progress(*, transient: bool = True) -> Generator[Progress]:
    """Open a progress display on stderr; silent where stderr is no terminal."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=errors, transient=transient, disable=not errors.is_terminal) as display:
        yield display


def counted(items: Iterable[T], description: str) -> Iterator[T]:
    """Yield items while a progress display counts them."""
    with progress() as display:
        task = display.add_task(description, total=None, note="")
        for item in items:
            yield item
            display.advance(task)
