"""Arrays of few distinct runs, kept and printed as runs: most weights, masks and advantages are a handful of spans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from samplekit.sample.arrays import AnyArray, IntArray, freeze
from samplekit.sample.digits import Printed, plain_json

_SHORTEST = 128  # values; below, an array takes less room than its runs
_RUN_LENGTH = 8  # values per run, on average, from which runs are kept


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """What an array holds, run by run.

    Attributes:
        values: int64 or float32 (R,); no two neighbours have the same bits.
        counts: int64 (R,), how often each value stands in a row.
    """

    values: AnyArray
    counts: IntArray

    @classmethod
    def of(cls, array: AnyArray) -> Runs | None:
        """Find the runs of an array, or None where it is short or they are.

        Args:
            array: int64 or float32 (T,).
        """
        if len(array) < _SHORTEST:
            return None
        changes = np.diff(array.view(f"i{array.itemsize}"))  # compared as bits, for -0.0 is not 0.0; 0 where none
        if (np.count_nonzero(changes) + 1) * _RUN_LENGTH > len(array):
            return None
        ends = [*np.flatnonzero(changes).tolist(), len(array) - 1]
        counts = [end - start for start, end in zip([-1, *ends], ends, strict=False)]
        return cls(array[ends], np.array(counts, dtype=np.int64))

    @property
    def length(self) -> int:
        """How many values the array has (T)."""
        return int(self.counts.sum())

    def expand(self) -> AnyArray:
        """Give the array, (T,), read-only and new each time."""
        return freeze(self.values.repeat(self.counts))

    def print_numbers(self) -> Printed:
        """Print the array; the digits of each run are made once and repeated, without ".0" but for -0.0."""
        digits = zip(plain_json(self.values)[1:-1].split(b","), self.counts.tolist(), strict=True)
        runs = [((text if text == b"-0.0" else text.removesuffix(b".0")) + b",") * count for text, count in digits]
        return memoryview(b"".join(runs))[:-1]
