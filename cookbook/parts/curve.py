"""One metric over steps: as a chart in the terminal, and as an SVG file where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from samplekit.cli.screen import results
from samplekit.files import RunFolder, write_whole

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_HEIGHT, _WIDTH = 8, 60


def draw_curve(run: RunFolder, name: str) -> list[Path]:
    """Print the chart of a metric that every step logged, and draw it into the run folder.

    Args:
        run: holds ``step`` and the metric in every row.
        name: the metric, such as ``"reward/mean"``, which goes to ``reward_mean.svg``.

    Returns:
        The file that was written, if one was.
    """
    values = [float(row[name]) for row in run.metrics]
    results.print(f"{name} over {len(values)} steps")
    results.print("\n".join(chart_lines(values)), markup=False)
    try:
        from matplotlib.figure import Figure
    except ImportError:
        results.print('no SVG: pip install "samplekit[plot]" draws one', markup=False)
        return []
    return [_plot(Figure(figsize=(7, 4), layout="constrained"), run, name, values)]


def chart_lines(values: Sequence[float]) -> list[str]:
    """Draw columns of block characters, the range of the values beside them; steps share a column where many are."""
    size = -(-len(values) // _WIDTH)
    columns = [sum(part) / len(part) for part in (values[at : at + size] for at in range(0, len(values), size))]
    low, high = min(0.0, *values), max(columns)
    eighths = [round(8 * _HEIGHT * (value - low) / ((high - low) or 1.0)) for value in columns]
    labels = {_HEIGHT - 1: f"{high:.3g}", 0: f"{low:.3g}"}
    return [
        f"{labels.get(line, ''):>8} |" + "".join(_EIGHTHS[min(8, max(0, height - 8 * line))] for height in eighths)
        for line in reversed(range(_HEIGHT))
    ]


def _plot(figure: Any, run: RunFolder, name: str, values: Sequence[float]) -> Path:  # noqa: ANN401 - matplotlib's
    axes = figure.add_subplot()
    axes.plot([row["step"] for row in run.metrics], values, lw=1)
    axes.set(xlabel="step", ylabel=name)
    axes.grid(alpha=0.3)
    path = run.path / f"{name.replace('/', '_')}.svg"
    with write_whole(path) as stream:
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return path
