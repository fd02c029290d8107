"""The command line: template, build, validate, show, serve."""

from samplekit.cli.main import main

__all__ = ["main"]
