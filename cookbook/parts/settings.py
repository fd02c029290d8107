"""The settings that every recipe here takes, and the session they open."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from samplekit.client import Client, Session

F = TypeVar("F", bound=Callable[..., Any])

TINY = "samplekit/tiny"
"""The package's own model; its weights are random until something trains them."""


@dataclass(frozen=True)
class Settings:
    """What every recipe takes.

    Attributes:
        model: what is trained; also names the chat template.
        base_url: another service; None starts a local one.
        lora_rank: of the adapter; None trains full weights.
        learning_rate: of Adam, for the recipe's own steps.
        steps: optimizer steps after the supervised start.
        start_steps: supervised steps before; None where the model decides.
        seed: of tasks, batches and draws.
        run_dir: where metrics and curve go.
    """

    model: str
    base_url: str | None
    lora_rank: int | None
    learning_rate: float
    steps: int
    start_steps: int | None
    seed: int
    run_dir: Path

    def num_start_steps(self, of_tiny: int) -> int:
        """Give the steps of the supervised start: a model that can already read and answer needs none."""
        if self.start_steps is not None:
            return self.start_steps
        return of_tiny if self.model == TINY else 0


def recipe_options(*, steps: int, learning_rate: float, run_dir: str) -> Callable[[F], F]:
    """Add an option for every field of `Settings`, with these defaults."""
    options = [
        click.option("--model", default=TINY, show_default=True, help="What is trained; also names the chat template."),
        click.option(
            "--base-url", help="Another service, with a key in TOGETHER_API_KEY; the default starts one here."
        ),
        click.option(
            "--lora-rank", type=click.IntRange(min=1), help="Train an adapter; the default trains all weights."
        ),
        click.option("--learning-rate", type=float, default=learning_rate, show_default=True),
        click.option("--steps", type=click.IntRange(min=1), default=steps, show_default=True, help="Optimizer steps."),
        click.option(
            "--start-steps",
            type=click.IntRange(min=0),
            help="Supervised steps before; the default gives them to the tiny model only.",
        ),
        click.option(
            "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of tasks, batches and draws."
        ),
        click.option("--run-dir", type=click.Path(path_type=Path), default=Path(run_dir), show_default=True),
    ]

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def examples(*commands: str) -> str:
    """Lay command lines out as the end of a help page; the first line keeps click from wrapping them."""
    return "\n".join(["\b", "Examples:", *(f"  python cookbook/{command}" for command in commands)])


@contextlib.contextmanager
def training_session(settings: Settings) -> Iterator[Session]:
    """Open a session on the service of the settings, or on a local one for as long as the block runs."""
    with contextlib.ExitStack() as stack:
        url = settings.base_url or stack.enter_context(_local_service(settings.model))
        client = stack.enter_context(Client(base_url=url))
        lora_seed = None if settings.lora_rank is None else settings.seed
        yield stack.enter_context(
            client.session(base_model=settings.model, lora_rank=settings.lora_rank, lora_seed=lora_seed)
        )


@contextlib.contextmanager
def _local_service(model: str) -> Iterator[str]:
    """Give the URL of a service on this machine; another service needs nothing that this one imports."""
    from samplekit.server import LocalService

    with LocalService(model=model) as service:
        yield service.url
