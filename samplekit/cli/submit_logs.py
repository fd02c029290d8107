"""Where metrics go besides metrics.jsonl: Weights & Biases and TensorBoard, each loaded only when asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from samplekit.errors import MissingExtraError

Log = Callable[[int, dict[str, float]], None]


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
            # Hides what a process that was killed has logged of steps that are done again.
            first = step if "loss" in row else step + 1
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
