"""Metrics drawn for a terminal hold every number that the plain dict holds."""

from __future__ import annotations

import math

import numpy as np
from rich.console import Console

import samplekit as sk
from samplekit.cli.tables import metrics_table, rows_table


def drawn(table) -> str:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123 - text is exported
    console.print(table)
    console.file.close()
    return console.export_text()


def group(number: int) -> sk.Group:
    found = [
        sk.Completion(np.arange(length), [-0.5] * length, reward=length / 2, stop_reason="stop") for length in (1, 2, 3)
    ]
    return sk.Group([1, 2, 3], found, id=f"g{number}")


def test_every_metric_of_a_batch_of_groups_stands_in_the_table():
    metrics = sk.rollout_metrics([group(0), group(1)])
    text = drawn(metrics_table(metrics, "rollouts"))
    assert text.splitlines()[0].startswith("rollouts")
    for name, value in metrics.items():
        (line,) = [line for line in text.splitlines() if f" {name} " in line]
        assert math.isclose(float(line.strip("│ ").split()[-1]), value, rel_tol=1e-3, abs_tol=1e-6)


def test_a_row_a_group_with_a_column_a_name():
    text = drawn(rows_table(sk.group_metrics([group(0), group(1)])))
    assert "g0" in text
    assert "g1" in text


def test_what_is_missing_or_not_finite_stays_visible():
    assert "-" in drawn(rows_table([{"a": 1}, {"b": 2.0}])).splitlines()[3]
    assert "nan" in drawn(metrics_table({"loss": math.nan}))
