"""What a training run leaves behind: samples, their lock, metrics.jsonl and the loss curve."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

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

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self.metrics: list[dict[str, Any]] = []
        self._metrics_path = self.path / "metrics.jsonl"
        self._metrics_path.unlink(missing_ok=True)

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

    def plot_loss(self, held_out: Mapping[int, float]) -> Path:
        """Draw the training loss over steps, with the held-out loss at the steps it was taken.

        Args:
            held_out: mean held-out loss by step.

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
        axes.set(xlabel="step", ylabel="loss per trained token (nats)")
        axes.legend()
        axes.grid(alpha=0.3)
        path = self.path / "loss.svg"
        with write_whole(path) as stream:
            figure.savefig(stream, format="svg", metadata={"Date": None})
        return path
