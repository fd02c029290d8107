"""Where metrics go besides metrics.jsonl: Weights & Biases and TensorBoard, each loaded only when asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from samplekit.cli.screen import errors
from samplekit.errors import MissingExtraError

Log = Callable[[int, dict[str, float]], None]
_REMEMBERED = 16  # rows; of those done again after an interrupt there are fewer


class Logs:
    """Gives each row to each place, never twice to one, also where a step is logged again after an interrupt."""

    def __init__(self, logs: Sequence[Log] = ()) -> None:
        self._logs = logs
        # By step and names, the row and who is still to be given it.
        self._rows = dict[tuple[int, *tuple[str, ...]], tuple[dict[str, float], list[Log]]]()

    def add(self, step: int, row: dict[str, float]) -> None:
        """Take a row, unless it was taken before."""
        self._rows.setdefault((step, *row), (row, [*self._logs]))

    def give(self) -> None:
        """Give away what was taken. A place whose code was interrupted is not given the same row again."""
        for (step, *_), (row, left) in self._rows.items():
            while left:
                left.pop(0)(step, row)
        for place in [*self._rows][:-_REMEMBERED]:
            del self._rows[place]


class Place:
    """A place of others: its first fault is told and ends nothing, for metrics.jsonl is the record."""

    def __init__(self, name: str) -> None:
        self._name, self._is_lost = name, False
        self._log: Log | None = None
        self._close: Callable[[], object] | None = None

    def open(self, opening: Callable[[], tuple[Log, Callable[[], object]]]) -> Place:
        """Take what logs to it and what ends it."""
        with self._borne():
            self._log, self._close = opening()
        return self

    def log(self, step: int, row: dict[str, float]) -> None:
        """Give it a row, unless it is lost."""
        if self._log is not None and not self._is_lost:
            with self._borne():
                self._log(step, row)

    def close(self) -> None:
        """End it; what was given before a fault may still be sent."""
        if self._close is not None:
            with self._borne():
                self._close()

    @contextlib.contextmanager
    def _borne(self) -> Generator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - code of others raises what it likes
            if not self._is_lost:
                why = next(iter(str(error).splitlines()), "")
                errors.print(
                    f"warning: {self._name} failed and is given nothing more ({type(error).__name__}: {why}); "
                    "metrics.jsonl has every row",
                    style="yellow",
                    markup=False,
                )
            self._is_lost = True


def wandb_log(project: str, settings: Mapping[str, Any], folder: Path, run: str) -> Place:
    """Open a run at Weights & Biases, or go on with it.

    Raises:
        MissingExtraError: the package is not installed.
    """
    module = _load("wandb", "wandb")

    def opening() -> tuple[Log, Callable[[], object]]:
        opened: Any = module.init(project=project, config=dict(settings), dir=str(folder), id=run, resume="allow")
        return lambda step, row: opened.log(row, step=step), opened.finish

    return Place("Weights & Biases").open(opening)


def tensorboard_log(folder: Path) -> Place:
    """Write TensorBoard's files in the run's folder, opened at the first row.

    Raises:
        MissingExtraError: the package is not installed.
    """
    _load("tensorboard", "tensorboard")
    module, writers = _load("torch.utils.tensorboard", "torch tensorboard"), list[Any]()

    def log(step: int, row: dict[str, float]) -> None:
        if not writers:
            # Hides what a process that ended has logged of steps that are done again; a score's own step is not.
            first = step if "loss" in row or step == 0 else step + 1
            writers.append(module.SummaryWriter(str(folder / "tensorboard"), purge_step=first))
        for name, value in row.items():
            writers[0].add_scalar(name, value, step)

    def close() -> None:
        for writer in writers:
            writer.close()

    return Place("TensorBoard").open(lambda: (log, close))


def _load(module: str, packages: str) -> Any:  # noqa: ANN401 - a module
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{module} is not installed: pip install {packages}", extra=packages) from error
