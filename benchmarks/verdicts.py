"""Measurements -> ratios beside their gates, as a table or as JSON. No bare time leaves this file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich.markup import escape
from rich.table import Table

from benchmarks.row import OURS, Case, Gate, Reading, Row, Size


@dataclass(frozen=True)
class Verdict:
    """One line of the table.

    Attributes:
        work: the row's work.
        quantity: what was measured.
        versus: what ours is compared with.
        measured: the median ratio over the rounds (or the value), None where the contender was skipped.
        low: the lowest of the rounds.
        high: the highest of the rounds.
        shown: measured, with its unit or direction.
        gate: what is asked for, as text.
        verdict: ``"ok"``, ``"MISS"``, ``"-"`` where nothing is asked for, or why it was skipped.
    """

    work: str
    quantity: str
    versus: str
    measured: float | None
    low: float | None
    high: float | None
    shown: str
    gate: str
    verdict: str


def run_row(row: Row, size: Size) -> list[Verdict]:
    """Prepare a row, measure it and hold it to its gates."""
    case = row.prepare(size)
    return [verdict for reading in row.readings for verdict in _read(row, reading, case, size)]


def _read(row: Row, reading: Reading, case: Case, size: Size) -> Iterator[Verdict]:
    chosen = {
        name: work
        for name, work in case.contenders.items()
        if name == OURS or name in (reading.only or case.contenders)
    }
    costs = reading.meter(chosen, size.rounds)
    for gate in reading.gates:
        if gate.versus in case.skipped:
            yield Verdict(row.work, reading.quantity, gate.versus, None, None, None, "skipped", _asked(gate),
                          f"skipped: {case.skipped[gate.versus]}")  # fmt: skip
        else:
            yield _judge(row, reading, gate, costs)


def _judge(row: Row, reading: Reading, gate: Gate, costs: dict[str, list[float]]) -> Verdict:
    ours = costs[gate.of]
    if gate.sense == "value":
        ratios = ours
    elif gate.sense == "peer":
        ratios = [theirs / own for theirs, own in zip(costs[gate.versus], ours, strict=True)]
    else:
        ratios = [own / theirs for theirs, own in zip(costs[gate.versus], ours, strict=True)]
    measured = median(ratios)
    quantity = reading.quantity if gate.of == OURS else f"{reading.quantity} of {gate.of}"
    return Verdict(row.work, quantity, gate.versus, measured, min(ratios), max(ratios),
                   _shown(gate, measured, min(ratios), max(ratios)), _asked(gate), _held(gate, measured))  # fmt: skip


def _held(gate: Gate, measured: float) -> str:
    if gate.limit is None:
        return "-"
    kept = measured >= gate.limit if gate.sense == "peer" else measured <= gate.limit
    return "ok" if kept else "MISS"


def _shown(gate: Gate, measured: float, low: float, high: float) -> str:
    spread = f" ({_number(low)} to {_number(high)})" if high > low else ""
    if gate.sense == "value":
        return f"{_number(measured)} {gate.unit}{spread}"
    return f"{_number(measured)}x {'better' if gate.sense == 'peer' else 'of it'}{spread}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _asked(gate: Gate) -> str:
    if gate.limit is None:
        return "-"
    if gate.sense == "value":
        return f"<= {gate.limit:g} {gate.unit}"
    return f"{'>=' if gate.sense == 'peer' else '<='} {gate.limit:g}x"


def as_table(verdicts: Sequence[Verdict], caption: str) -> Table:
    """Draw verdicts; a row's work is named once."""
    table = Table(caption=caption, caption_justify="left")
    for heading in ("work", "quantity", "vs", "measured (rounds)", "gate", "verdict"):
        table.add_column(heading, overflow="fold")
    before = ("", "")
    for item in verdicts:
        same = item.work == before[0]
        if not same and before[0]:
            table.add_section()
        quantity = "" if (item.work, item.quantity) == before else item.quantity
        style = {"ok": "green", "MISS": "bold red"}.get(item.verdict, "")
        table.add_row("" if same else item.work, quantity, item.versus, item.shown, item.gate,
                      f"[{style}]{item.verdict}[/]" if style else escape(item.verdict))  # fmt: skip
        before = (item.work, item.quantity)
    return table


def as_json(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Give verdicts as plain records: ratios and values that are no times."""
    return [asdict(item) for item in verdicts]
