"""What a training run leaves behind: samples, their lock, metrics.jsonl and the loss curve."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import orjson

from samplekit.errors import MissingExtraError
from samplekit.files.lines import write_whole
from samplekit.files.samples import write_samples
from samplekit.sample import Sample


class RunFolder:
    """A folder that is filled while a run goes on; every line and file in it is whole at any time.

    Attributes:
        path: the folder.
        metrics: what was logged so far, in order.
    """

    def __init__(self, path: str | os.PathLike[str], *, resume_at: int | None = None) -> None:
        """Open a folder, made where it is not there.

        Args:
            path: the folder.
            resume_at: keep what an earlier run logged of steps up to this one; None begins anew.
        """
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._metrics_path = self.path / "metrics.jsonl"
        self.metrics: list[dict[str, Any]] = []
        if resume_at is not None and self._metrics_path.exists():
            self._keep_until(resume_at)
        else:
            with write_whole(self._metrics_path):
                pass

    def _keep_until(self, step: int) -> None:
        """Keep the rows of steps up to one; a line cut short by a crash, and what follows it, is cut off.

        What is kept is not written again: where a disk has filled up there is no room to.
        """
        size = 0
        with self._metrics_path.open("r+b") as stream:
            for line in stream:
                row = _row_of(line)
                if row is None or not _is_until(row.get("step", 0), step):
                    break
                self.metrics.append(row)
                size += len(line)
            stream.truncate(size)

    @property
    def losses(self) -> list[tuple[float, float]]:
        """Steps that trained and their losses: rows of scores have none."""
        return [(row["step"], row["loss"]) for row in self.metrics if isinstance(row.get("loss"), int | float)]

    def write_samples(self, samples: Iterable[Sample], lock: Mapping[str, Any]) -> Path:
        """Write what will train, and its lock, before the first step."""
        path = self.path / "samples.jsonl"
        write_samples(path, samples, lock=lock)
        return path

    def log(self, **metrics: float) -> None:
        """Append one line to metrics.jsonl."""
        self.metrics.append(metrics)
        with self._metrics_path.open("ab") as stream:
            stream.write(orjson.dumps(metrics, option=orjson.OPT_APPEND_NEWLINE))

    def plot_loss(self, held_out: Mapping[int, float], *, label: str = "loss per trained token (nats)") -> Path:
        """Draw the training loss over steps, with the held-out loss at the steps it was taken.

        Args:
            held_out: held-out loss by step.
            label: what the losses are.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise MissingExtraError(
                'a loss curve needs matplotlib: pip install "samplekit[plot]"', extra="plot"
            ) from error
        figure: Any = Figure(figsize=(7, 4), layout="constrained")
        axes: Any = figure.add_subplot()
        axes.plot([step for step, _ in self.losses], [loss for _, loss in self.losses], label="training", lw=1)
        axes.plot(list(held_out), list(held_out.values()), "o--", label="held out")
        axes.set(xlabel="step", ylabel=label)
        axes.legend()
        axes.grid(alpha=0.3)
        path = self.path / "loss.svg"
        with write_whole(path) as stream:
            figure.savefig(stream, format="svg", metadata={"Date": None})
        return path


def _row_of(line: bytes) -> dict[str, Any] | None:
    """Read a row, None where it is none or was cut short: with its end a row is whole."""
    try:
        row: Any = orjson.loads(line) if line.endswith(b"\n") else None
    except orjson.JSONDecodeError:
        return None
    return cast("dict[str, Any]", row) if isinstance(row, dict) else None


def _is_until(found: object, step: int) -> bool:
    return isinstance(found, int | float) and found <= step
