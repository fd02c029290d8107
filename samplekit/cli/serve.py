"""`samplekit serve`: the local service in the foreground."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from types import FrameType

import click

from samplekit._version import __version__
from samplekit.cli.screen import errors, number_of, results
from samplekit.errors import SampleError

logger = logging.getLogger(__name__)


@click.command(short_help="Run a local service that trains a small model.")
@click.option(
    "--model", "-m", default="samplekit/tiny", show_default=True, help="A Hugging Face causal LM: path or id."
)
@click.option(
    "--port", "-p", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one."
)
@click.option("--token", envvar="SAMPLEKIT_TOKEN", show_envvar=True, help="Ask clients for this bearer token.")
@click.option(
    "--state-dir", type=click.Path(path_type=Path, file_okay=False), help="Where sessions outlive this process."
)
@click.option(
    "--operation-log",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Append one JSON line for each operation; - is standard error.",
)
@click.option("--verbose", "-v", is_flag=True, help="Log every request and operation.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: one object a line on standard error, every request and operation among them.",
)
def serve(
    model: str,
    port: int,
    token: str | None,
    state_dir: Path | None,
    operation_log: Path | None,
    verbose: bool,
    log_format: str,
) -> None:
    """Train and generate on this machine behind the service's own protocol, until Ctrl-C.

    \b
    Example:
      samplekit serve --model samplekit/tiny --port 8000
      TOGETHER_BASE_URL=http://127.0.0.1:8000 python my_loop.py
    """
    _log(as_json=log_format == "json", verbose=verbose)
    if operation_log is not None:
        _write_operations(operation_log)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    _refuse_unusable(port, token, state_dir, model)
    if log_format == "text":
        errors.print(f"loading {model} ...", style="dim")
    from samplekit.server import LocalService  # takes seconds

    with LocalService(model=model, port=port, token=token, state_dir=state_dir) as service:
        try:  # an interrupt that comes while the address is shown is one, too
            results.print(f"samplekit {__version__} serves {model} on {service.url}  (Ctrl-C stops it)", soft_wrap=True)
            key = "" if token is None else "  # and TOGETHER_API_KEY=<the token>"
            results.print(f"  export TOGETHER_BASE_URL={service.url}{key}", soft_wrap=True)
            if state_dir is not None:
                kept = sum(session.is_active for session in service.service.sessions.values())
                results.print(f"  state in {state_dir}: {number_of(kept, 'session')} to go on with", soft_wrap=True)
            service.wait()
        except KeyboardInterrupt:
            stopping = "stopping: the operation that runs is finished first; once more ends it"
            if log_format == "text":
                errors.print(stopping, style="yellow")
            logger.info(stopping)
            raise click.exceptions.Exit(130) from None


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """End in good order, and at once when asked again: a state directory bears that, and nothing else is kept."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end_at_once)
    raise KeyboardInterrupt


def _end_at_once(_number: int, _frame: FrameType | None) -> None:
    os._exit(130)


def _refuse_unusable(port: int, token: str | None, state_dir: Path | None, model: str) -> None:
    """Find out before anything heavy is loaded what would stop the service later."""
    from samplekit.server.access import require_token
    from samplekit.server.listening import refuse_unusable

    if token is not None:
        try:
            require_token(token)
        except SampleError as error:
            raise click.BadParameter(error.message, param_hint="--token") from error
    refuse_unusable(port, state_dir, model)


def _log(*, as_json: bool, verbose: bool) -> None:
    """Log to standard error; JSON is for machines, which choose for themselves."""
    from samplekit.server.json_log import JsonFormatter

    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if as_json else text)
    logging.basicConfig(level=logging.INFO if verbose or as_json else logging.WARNING, handlers=[handler])
    if as_json:
        logging.captureWarnings(True)


def _write_operations(path: Path) -> None:
    """Let each operation that ends add its line to a file, or to standard error."""
    from samplekit.server.operation_log import NAME

    try:
        handler = logging.StreamHandler() if str(path) == "-" else logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be written: {error.strerror}", param_hint="--operation-log") from error
    handler.setFormatter(logging.Formatter("%(message)s"))
    log = logging.getLogger(NAME)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
