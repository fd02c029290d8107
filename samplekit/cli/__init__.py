"""The command line: build, validate, show, template, submit, serve."""

from __future__ import annotations

import sys
from typing import NoReturn


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line; Ctrl-C ends it quietly even while it is still being imported."""
    try:
        from samplekit.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run(arguments)


__all__ = ["main"]
