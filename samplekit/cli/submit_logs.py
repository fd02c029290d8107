"""Where metrics go besides metrics.jsonl: Weights & Biases and TensorBoard, each loaded only when asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from samplekit.errors import MissingExtraError

Log = Callable[[int, dict[str, float]], None]


def wandb_log(project: str, settings: Mapping[str, Any], folder: Path) -> tuple[Log, Callable[[], None]]:
    """Open a run at Weights & Biases; give what logs to it and what ends it.

    Raises:
        MissingExtraError: the package is not installed.
    """
    run: Any = _load("wandb", "wandb").init(project=project, config=dict(settings), dir=str(folder))
    return lambda step, row: run.log(row, step=step), run.finish


def tensorboard_log(folder: Path) -> tuple[Log, Callable[[], None]]:
    """Open TensorBoard's files in the run's folder; give what logs to them and what closes them.

    Raises:
        MissingExtraError: the package is not installed.
    """
    _load("tensorboard", "tensorboard")
    writer: Any = _load("torch.utils.tensorboard", "torch tensorboard").SummaryWriter(str(folder / "tensorboard"))

    def log(step: int, row: dict[str, float]) -> None:
        for name, value in row.items():
            writer.add_scalar(name, value, step)

    return log, writer.close


def _load(module: str, packages: str) -> Any:  # noqa: ANN401 - a module
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{module} is not installed: pip install {packages}", extra=packages) from error
