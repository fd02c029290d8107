"""Where metrics go besides metrics.jsonl: Weights & Biases and TensorBoard, each loaded only when asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

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


def wandb_log(project: str, settings: Mapping[str, Any], folder: Path, run: str) -> tuple[Log, Callable[[], None]]:
    """Open a run at Weights & Biases, or go on with it; give what logs to it and what ends it.

    Raises:
        MissingExtraError: the package is not installed.
    """
    opened: Any = _load("wandb", "wandb").init(
        project=project, config=dict(settings), dir=str(folder), id=run, resume="allow"
    )
    return lambda step, row: opened.log(row, step=step), opened.finish


def tensorboard_log(folder: Path) -> tuple[Log, Callable[[], None]]:
    """Open TensorBoard's files in the run's folder at the first row; give what logs to them and what closes them.

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

    return log, close


def _load(module: str, packages: str) -> Any:  # noqa: ANN401 - a module
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{module} is not installed: pip install {packages}", extra=packages) from error
