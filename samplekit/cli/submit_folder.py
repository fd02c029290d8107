"""The folder of a run: named, made and held before anything that costs is created."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any

import click

from samplekit.cli.screen import errors
from samplekit.errors import FileFormatError, SampleError

if sys.platform != "win32":
    import fcntl

STATE, METRICS, SCORES, CURVE = "run.json", "metrics.jsonl", "held_out.jsonl", "loss.svg"
_LOCK = "run.lock"
_RESERVE, _RESERVE_BYTES = ".run.reserve", 262_144  # for run.json, and the rows of the steps begun
_COMPRESSED = (".gz", ".zst", ".zstd")


def default_folder(samples: Path) -> Path:
    """Give ``runs/<name>``: the whole name of the file but for what says how it is written."""
    named = samples.with_suffix("") if samples.suffix in _COMPRESSED else samples
    return Path("runs") / (named.stem if named.suffix in {".jsonl", ".json", ".parquet"} else named.name)


class FolderName(click.Path):
    """A folder by its name; an empty one, as an unset variable of a shell gives, is not the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Refuse what names no folder."""
        if not str(value).strip() or "\0" in str(value):
            self.fail(f"{value!r} names no folder: '.' is the current one", param, ctx)
        return super().convert(value, param, ctx)


def make_writable(folder: Path, option: str) -> None:
    """Make a folder and find out whether files can be written to it.

    Raises:
        FileFormatError: it cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unwritable(folder, option, error) from error


def _unwritable(folder: Path, option: str, error: OSError) -> FileFormatError:
    return FileFormatError(
        f"{folder} cannot be written ({error.strerror}), nothing was created: take another {option}", path=str(folder)
    )


@contextlib.contextmanager
def held_folder(folder: Path) -> Generator[None]:
    """Make a run's folder and hold it for this process alone; the hold ends with the process, however it ends.

    Room is kept in it meanwhile, so that a disk that fills up still takes where the run stands.

    Raises:
        FileFormatError: it cannot be made or written to.
        SampleError: another process runs in it.
    """
    make_writable(folder, "--run-dir")
    for path in (folder / METRICS, folder / SCORES, folder / STATE):
        if path.exists() and not path.is_file():
            raise FileFormatError(f"{path} is no file, nothing was created: take another --run-dir", path=str(path))
    with _opened(folder / _LOCK) as stream:
        _lock(stream, folder)
        _keep_room(folder)
        try:
            yield
        finally:
            give_room(folder)


def _keep_room(folder: Path) -> None:
    try:
        (folder / _RESERVE).write_bytes(os.urandom(_RESERVE_BYTES))  # which no file system makes smaller
    except OSError as error:
        give_room(folder)
        raise _unwritable(folder, "--run-dir", error) from error


def give_room(folder: Path) -> None:
    """Give back the room that was kept, for what must be written at the end."""
    (folder / _RESERVE).unlink(missing_ok=True)


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("a+b")
    except OSError as error:
        raise _unwritable(path, "--run-dir", error) from error


def _lock(stream: IO[bytes], folder: Path) -> None:
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise SampleError(
            f"{folder} is in use by another samplekit submit, nothing was created: wait until it ends, or take another "
            "--run-dir"
        ) from error
    except OSError as error:  # some network file systems have no locks
        errors.print(f"{folder} cannot be locked ({error.strerror}): run one submit in it at a time", style="yellow",
                     markup=False)  # fmt: skip


def keep_earlier(folder: Path, service: Path) -> None:
    """Keep what an earlier run left, under the next free names, where a run begins anew beside it.

    Args:
        folder: of both.
        service: what the local service of the run that begins writes to; those of others stay as they are.
    """
    for path in (folder / METRICS, folder / SCORES, folder / CURVE):
        if path.is_file() and path.stat().st_size:
            number = 1
            while (kept := path.with_name(f"{path.name}.{number}")).exists():
                number += 1
            path.rename(kept)
            errors.print(f"what an earlier run left in {path} is kept as {kept.name}", style="yellow", markup=False)
    for path in sorted(folder.glob("service-*")):
        if path != service:
            errors.print(f"{path} has checkpoints of an earlier run, to delete if not needed", style="yellow",
                         markup=False)  # fmt: skip
