"""What a training run leaves behind: samples, their lock, metrics.jsonl and the loss curve."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from samplekit.errors import FileFormatError, MissingExtraError
from samplekit.files.lines import read_objects, write_whole
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
        self.metrics = [] if resume_at is None else self._logged_until(resume_at)
        with write_whole(self._metrics_path) as stream:
            stream.writelines(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in self.metrics)

    def _logged_until(self, step: int) -> list[dict[str, Any]]:
        """Read the rows of steps up to one; a line cut short by a crash, and what follows it, is left out."""
        found: list[dict[str, Any]] = []
        for _, row in read_objects(self._metrics_path) if self._metrics_path.exists() else ():
            if isinstance(row, FileFormatError) or row.get("step", 0) > step:
                break
            found.append(row)
        return found

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
        axes.plot([row["step"] for row in self.metrics], [row["loss"] for row in self.metrics], label="training", lw=1)
        axes.plot(list(held_out), list(held_out.values()), "o--", label="held out")
        axes.set(xlabel="step", ylabel=label)
        axes.legend()
        axes.grid(alpha=0.3)
        path = self.path / "loss.svg"
        with write_whole(path) as stream:
            figure.savefig(stream, format="svg", metadata={"Date": None})
        return path
