"""The `samplekit` command: its subcommands, and what their ends mean to a script."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

import click

from samplekit._version import __version__
from samplekit.cli.build import build
from samplekit.cli.pack import pack_command
from samplekit.cli.screen import errors
from samplekit.cli.serve import serve
from samplekit.cli.show import show
from samplekit.cli.submit import submit
from samplekit.cli.template import template
from samplekit.cli.validate import validate
from samplekit.errors import MissingExtraError, SampleError, SamplekitError, ServiceError

DATA_AT_FAULT, USAGE, SERVICE_AT_FAULT, INTERRUPTED = 1, 2, 3, 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="samplekit")
def samplekit() -> None:
    """Correct training samples for remote post-training.

    \b
    Example:
      samplekit template samplekit/tiny
      samplekit build chats.jsonl --model samplekit/tiny -o samples.jsonl
      samplekit validate samples.jsonl --model samplekit/tiny
      samplekit submit samples.jsonl --model samplekit/tiny
      samplekit serve --model samplekit/tiny

    Exit codes: 0 fine, 1 the data is at fault, 2 usage, 3 the service, 130 interrupted.
    """


for command in (template, build, validate, show, pack_command, submit, serve):
    samplekit.add_command(command)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with 0 (fine), 1 (data), 2 (usage), 3 (service) or 130 (Ctrl-C)."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(_run(arguments))


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    """End as on Ctrl-C, so that files half written are removed."""
    raise KeyboardInterrupt


def _run(arguments: list[str] | None) -> int:
    try:
        return int(samplekit.main(arguments, prog_name="samplekit", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        errors.print("interrupted: what was written before is whole", style="yellow")
        return INTERRUPTED
    except SamplekitError as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        if isinstance(error, SampleError):
            for note in getattr(error, "__notes__", ()):
                errors.print(note, markup=False)
        return _exit_code(error)
    except BrokenPipeError:  # the reader of a pipe has left, as `head` does
        sys.stdout = None  # nothing is left to flush to
        return DATA_AT_FAULT
    except OSError as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return DATA_AT_FAULT


def _exit_code(error: SamplekitError) -> int:
    if isinstance(error, ServiceError):
        return SERVICE_AT_FAULT
    return USAGE if isinstance(error, MissingExtraError) else DATA_AT_FAULT
