"""The lines that end a run: what was gained, and where it was written down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from samplekit.files import RunFolder

_FEW = 5  # steps that are averaged at either end


def gain_line(rewards: Sequence[float]) -> str:
    """Compare the first five steps with the last five; of fewer than ten, the first half with the last."""
    if len(rewards) < 2:
        return f"mean reward: {mean(rewards):.3f} in the only step"
    size, called = (_FEW, "five steps") if len(rewards) >= 2 * _FEW else (len(rewards) // 2, "half of the steps")
    first, last = mean(rewards[:size]), mean(rewards[-size:])
    return (
        f"mean reward: {first:.3f} in the first {called}, {last:.3f} in the last {called.split()[0]} "
        f"({last - first:+.3f})"
    )


def folder_line(run: RunFolder, files: Sequence[Path]) -> str:
    """Say where the metrics are, and the files beside them."""
    return f"run folder: {run.path} ({', '.join(['metrics.jsonl', *(path.name for path in files)])})"


def mean(values: Sequence[float]) -> float:
    """Average numbers."""
    return sum(values) / len(values)
