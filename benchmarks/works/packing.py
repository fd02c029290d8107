"""Row "packing": which of many lengths share a row of 4,096; 200 lengths for every sample of the size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks.meters import cpu_time
from benchmarks.row import OURS, Case, Gate, Reading, Row, Size, Work, offer, require

WIDTH = 4096
LENGTHS_A_SAMPLE = 200  # 512 samples: 102,400 lengths
FFD, TRL, STAND_IN = "ours, ffd", "TRL bfd", "stand-in of axolotl's first-fit"


def _prepare(size: Size) -> Case:
    loads: Mapping[str, Callable[[Size], Work]] = {OURS: _best, FFD: _ffd, TRL: _trl, STAND_IN: _stand_in}
    contenders, skipped = offer({name: partial(load, size) for name, load in loads.items()})
    return Case(contenders, lambda _name, found: int(found), skipped)


def _lengths(size: Size) -> Any:
    drawn = np.random.default_rng(0).lognormal(np.log(600), 0.8, size.num_samples * LENGTHS_A_SAMPLE)
    return np.clip(drawn.astype(np.int64), 1, WIDTH)


def _best(size: Size) -> Work:
    from samplekit import plan_packing

    lengths = _lengths(size)
    return lambda: plan_packing(lengths, WIDTH).num_tokens


def _ffd(size: Size) -> Work:
    from samplekit import plan_packing

    lengths = _lengths(size)
    return lambda: plan_packing(lengths, WIDTH, strategy="ffd").num_tokens


def _trl(size: Size) -> Work:
    """Pack a column of one byte a token, so that moving the tokens costs TRL little beside planning."""
    require("trl", "pyarrow")
    import pyarrow as pa
    from trl.data_utils import _pack_bfd

    lengths = _lengths(size)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    column = pa.LargeListArray.from_arrays(offsets, np.zeros(offsets[-1], np.int8))
    table = pa.table({"input_ids": column})
    return lambda: len(_pack_bfd(table, WIDTH)["input_ids"].combine_chunks().flatten())


def _stand_in(size: Size) -> Work:
    """First-fit-decreasing as axolotl's packer does it, with numpy in place of its compiler: written for this row."""
    lengths = np.sort(_lengths(size))[::-1]

    def work() -> int:
        rooms = np.full(len(lengths), WIDTH)
        num_rows = total = 0
        for length in lengths.tolist():
            place = int(np.argmax(rooms[: num_rows + 1] >= length))  # the last of these is still empty
            num_rows = max(num_rows, place + 1)
            rooms[place] -= length
            total += length
        return total

    return work


ROW = Row(
    key="packing",
    work="plan rows of 4,096",
    prepare=_prepare,
    readings=[
        Reading("CPU time", cpu_time, (Gate(TRL, 10), Gate(STAND_IN), Gate(FFD, sense="floor"))),
    ],
)
