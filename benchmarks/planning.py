"""Planning of packed rows, side by side: the contenders of the rows "plan" and "filled"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.meters import cpu_time
from benchmarks.row import OURS, Case, Gate, Reading, Row, Size, Work, offer, require

WIDTH = 4096
A_HUNDRED_THOUSAND, A_MILLION = 200, 2000  # lengths for every sample of the size: 102,400 and 1,024,000 for 512
FFD, TRL, STAND_IN = "ours, ffd", "TRL bfd", "stand-in of axolotl's first-fit"
Draw = Callable[[int], Any]


class Planned(NamedTuple):
    """What a planner gave: tokens that are in rows, and how many rows there are."""

    num_tokens: int
    num_rows: int


def many_short(count: int) -> Any:
    """Draw lengths around a median of 600."""
    return _fitted(np.random.default_rng(0).lognormal(np.log(600), 0.8, count))


def few_long(count: int) -> Any:
    """Draw lengths around a median of 1,500."""
    return _fitted(np.random.default_rng(0).lognormal(np.log(1500), 0.6, count))


def two_or_three_a_row(count: int) -> Any:
    """Draw lengths around 1,500 of which none is below 600."""
    drawn = np.random.default_rng(0).normal(1500, 500, 2 * count + 50)
    return _fitted(drawn[drawn >= 600][:count])


def _fitted(drawn: Any) -> Any:
    return np.clip(drawn.astype(np.int64), 1, WIDTH)


def planning_row(key: str, count: str, lengths_a_sample: int, *, best: float, ffd: float, stand_in: bool) -> Row:
    """Define a row that plans many short lengths.

    Args:
        key: of the row.
        count: the number of lengths at full size, in words.
        lengths_a_sample: lengths for every sample of the size.
        best: how many times as fast as TRL's the default strategy has to be.
        ffd: the same of first-fit-decreasing, which TRL's rows are as many as.
        stand_in: whether the first-fit runs too, whose cost grows with the square.
    """
    names = {OURS: _ours, FFD: partial(_ours, strategy="ffd"), TRL: _trl, **({STAND_IN: _stand_in} if stand_in else {})}
    gates = [Gate(TRL, best), Gate(TRL, ffd, of=FFD), *([Gate(STAND_IN)] if stand_in else [])]
    return Row(
        key=key,
        work=f"plan rows of {WIDTH:,}, {count} lengths",
        prepare=partial(_prepare, names, many_short, lengths_a_sample),
        readings=[Reading("CPU time", cpu_time, (*gates, Gate(FFD, sense="floor")))],
    )


def filling_row(key: str, what: str, draw: Draw, most_empty: float) -> Row:
    """Define a row that shows which share of the rows stays empty; at full size it plans 102,400 lengths.

    Args:
        key: of the row.
        what: the lengths, in words.
        draw: draws them.
        most_empty: what may stay empty, in percent.
    """
    names = {OURS: _ours, FFD: partial(_ours, strategy="ffd"), TRL: _trl}
    gate = Gate(OURS, most_empty, "value", "% of the rows")
    return Row(
        key=key,
        work=f"fill rows of {WIDTH:,}, {what}",
        prepare=partial(_prepare, names, draw, A_HUNDRED_THOUSAND),
        readings=[Reading("left empty", _empty_percent, (gate, Gate(FFD, sense="floor"), Gate(TRL, sense="floor")))],
    )


def _prepare(names: Mapping[str, Callable[[Any], Work]], draw: Draw, lengths_a_sample: int, size: Size) -> Case:
    lengths = draw(size.num_samples * lengths_a_sample)
    contenders, skipped = offer({name: partial(load, lengths) for name, load in names.items()})
    return Case(contenders, lambda _name, found: found.num_tokens, skipped)


def _empty_percent(contenders: Mapping[str, Work], rounds: int) -> dict[str, list[float]]:
    """Measure what stays empty; it does not vary, so one round is enough."""
    del rounds
    found = {name: work() for name, work in contenders.items()}
    return {name: [100 - 100 * item.num_tokens / (item.num_rows * WIDTH)] for name, item in found.items()}


def _ours(lengths: Any, strategy: Any = "best") -> Work:
    from samplekit import plan_packing

    def work() -> Planned:
        plan = plan_packing(lengths, WIDTH, strategy=strategy)
        return Planned(plan.num_tokens, plan.num_rows)

    return work


def _trl(lengths: Any) -> Work:
    """Pack a column whose tokens take no memory, so that TRL plans and moves nothing."""
    require("trl", "pyarrow")
    import pyarrow as pa
    from trl.data_utils import _pack_bfd

    offsets = np.concatenate([[0], np.cumsum(lengths)])
    table = pa.table({"input_ids": pa.LargeListArray.from_arrays(offsets, pa.nulls(int(offsets[-1])))})

    def work() -> Planned:
        rows = _pack_bfd(table, WIDTH)["input_ids"].combine_chunks()
        return Planned(len(rows.flatten()), len(rows))

    return work


def _stand_in(lengths: Any) -> Work:
    """First-fit-decreasing as axolotl's packer does it, with numpy in place of its compiler: written for this row."""
    descending = np.sort(lengths)[::-1].tolist()

    def work() -> Planned:
        rooms = np.full(len(descending), WIDTH)
        num_rows = total = 0
        for length in descending:
            place = int(np.argmax(rooms[: num_rows + 1] >= length))  # the last of these is still empty
            num_rows = max(num_rows, place + 1)
            rooms[place] -= length
            total += length
        return Planned(total, num_rows)

    return work
