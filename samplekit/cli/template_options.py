"""The options of commands that take a chat template's settings, and how their texts are read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import click
import orjson

from samplekit.chat import ChatTemplate

Command = Callable[..., Any]
_OWN = {"name_or_path", *inspect.signature(ChatTemplate.__init__).parameters} - {"self", "template_kwargs"}


def template_options(command: Command) -> Command:
    """Add ``--thinking`` and ``--template-kwarg`` to a command, as ``thinking`` and ``template_kwargs``."""
    command = click.option(
        "--template-kwarg",
        "template_kwargs",
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting the template reads; JSON or text.",
    )(command)
    return click.option(
        "--thinking",
        type=click.Choice(["as_rendered", "auto", "on", "off"]),
        default="as_rendered",
        show_default=True,
        help="How the template's thinking switch is set.",
    )(command)


def read_settings(thinking: str, template_kwargs: Sequence[str]) -> dict[str, Any]:
    """Read the values of ``template_options`` as keyword arguments of ChatTemplate.

    Raises:
        click.BadParameter: a setting is not of the form NAME=VALUE.
    """
    given = dict(map(_pair, template_kwargs))
    return {"thinking": {"on": True, "off": False}.get(thinking, thinking), **given}


def _pair(pair: str) -> tuple[str, Any]:
    name, equals, text = pair.partition("=")
    if not equals or not name.isidentifier():
        raise click.BadParameter(f"{pair!r} is not of the form NAME=VALUE", param_hint="--template-kwarg")
    if name in _OWN:
        raise click.BadParameter(
            f"{name} is a setting of ChatTemplate, not of the template: use the command's own options, or Python",
            param_hint="--template-kwarg",
        )
    try:
        return name, orjson.loads(text)
    except orjson.JSONDecodeError:
        return name, text
