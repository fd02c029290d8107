"""The folder of a run: named, made and held before anything that costs is created."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from pathlib import Path
from typing import IO

from samplekit.cli.screen import errors
from samplekit.errors import FileFormatError, SampleError

if sys.platform != "win32":
    import fcntl

METRICS = "metrics.jsonl"
_LOCK = "run.lock"
_COMPRESSED = (".gz", ".zst", ".zstd")


def default_folder(samples: Path) -> Path:
    """Give ``runs/<name>``: the whole name of the file but for what says how it is written."""
    named = samples.with_suffix("") if samples.suffix in _COMPRESSED else samples
    return Path("runs") / (named.stem if named.suffix in {".jsonl", ".json", ".parquet"} else named.name)


@contextlib.contextmanager
def held_folder(folder: Path) -> Generator[None]:
    """Make a run's folder and hold it for this process alone; the hold ends with the process, however it ends.

    Raises:
        FileFormatError: it cannot be made or written to.
        SampleError: another process runs in it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / _LOCK).open("a+b")
    except OSError as error:
        raise FileFormatError(
            f"{folder} cannot be written ({error.strerror}), nothing was created: take another --run-dir",
            path=str(folder),
        ) from error
    with stream:
        _lock(stream, folder)
        yield


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


def set_metrics_aside(folder: Path) -> None:
    """Keep what an earlier run logged, under the next free name, where a run begins anew beside it."""
    metrics = folder / METRICS
    if not metrics.exists() or not metrics.stat().st_size:
        return
    number = 1
    while (kept := folder / f"{METRICS}.{number}").exists():
        number += 1
    metrics.rename(kept)
    errors.print(f"what an earlier run logged in {metrics} is kept as {kept.name}", style="yellow", markup=False)
