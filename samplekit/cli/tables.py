"""Tables of metrics for a terminal: what `rollout_metrics`, `group_metrics` and the losses give as plain numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table


def metrics_table(metrics: Mapping[str, Any], title: str = "") -> Table:
    """Draw metrics as a table of names and values, in the order given.

    Args:
        metrics: name to number or text.
        title: stands above the table.
    """
    table = Table(title=title or None, show_header=False, title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name, value in metrics.items():
        table.add_row(name, _shown(value))
    return table


def rows_table(rows: Iterable[Mapping[str, Any]], title: str = "") -> Table:
    """Draw mappings as rows; a column for every name, in the order in which names appear.

    Args:
        rows: a group each, say, as `samplekit.group_metrics` gives them.
        title: stands above the table.
    """
    kept = list(rows)
    names = list(dict.fromkeys(name for row in kept for name in row))
    table = Table(title=title or None, title_justify="left")
    for name in names:
        table.add_column(name, justify="right")
    for row in kept:
        table.add_row(*(_shown(row.get(name)) for name in names))
    return table


def _shown(value: object) -> str:
    """Print a number in four digits; NaN and infinities stay visible."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
