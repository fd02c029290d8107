"""The positions of a batch side by side, without padding: what a loss reads, in float64, and 0 where nothing trains.

Needs numpy only, so that a service or a test can use it where torch is busy or absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from samplekit.training.rows import BoolArray, FloatsArray, as_rows, refuse_missing, refuse_not_finite

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from samplekit.sample import Sample

Float64Array: TypeAlias = npt.NDArray[np.float64]
IndexArray: TypeAlias = npt.NDArray[np.int64]

_READ = ("logprobs", "advantages", "reference_logprobs")
_BLOCK = 32_768  # positions: a few float64 arrays of them stay in a core's cache


@dataclass(frozen=True)
class Positions:
    """N positions of some samples, the spans that train, one sample after the other, masked.

    Attributes:
        lengths: positions of each sample that are held, int64 (S,).
        counts: trained positions of each sample, int64 (S,).
        trained: whether a position trains, (N,).
        policy: log-probabilities of the policy being trained, (N,).
        weights: how much each position counts, (N,).
        inputs: the other inputs that the loss reads, by name, (N,) each.
    """

    lengths: IndexArray
    counts: IndexArray
    trained: BoolArray
    policy: Float64Array
    weights: Float64Array
    inputs: dict[str, Float64Array]

    def per_sample(self, values: Float64Array) -> Float64Array:
        """Sum values (N,) over each sample, (S,)."""
        sums: Float64Array = np.add.reduceat(values, np.cumsum(self.lengths) - self.lengths)
        return sums

    def per_position(self, values: Float64Array) -> Float64Array:
        """Repeat one value a sample (S,) at each of its positions, (N,)."""
        return np.repeat(values, self.lengths)


@dataclass(frozen=True)
class Batch:
    """What a loss reads of S samples.

    Attributes:
        samples: S of them.
        rows: the policy's log-probabilities, floats (T_i,) each.
        weights: float32 (T_i,) each.
        spans: from the first to the last trained position of each; nothing outside is read.
        counts: trained positions of each sample, int64 (S,).
        names: the inputs that are read.
    """

    samples: Sequence[Sample]
    rows: list[FloatsArray]
    weights: list[FloatsArray]
    spans: list[slice]
    counts: IndexArray
    names: list[str]

    @property
    def num_trained(self) -> int:
        """How many positions train."""
        return int(self.counts.sum())

    @property
    def lengths(self) -> list[int]:
        """Positions of each sample."""
        return [len(row) for row in self.rows]

    def blocks(self) -> Iterator[tuple[slice, Positions]]:
        """Yield runs of samples that fit a core's cache together: which ones, and their positions.

        Raises:
            SampleError: the policy's log-probability is not finite where a sample trains; the message names both.
        """
        ends = np.cumsum([span.stop - span.start for span in self.spans])
        first, begin = 0, 0
        while first < len(self.rows):
            last = max(first + 1, int(np.searchsorted(ends, begin + _BLOCK, side="right")))
            yield slice(first, last), self._positions(slice(first, last))
            first, begin = last, int(ends[last - 1])

    def put(self, values: Float64Array, part: slice, rows: Sequence[FloatsArray]) -> None:
        """Write values of a block's positions where they belong.

        Args:
            values: as many as the block has positions.
            part: which samples the block holds.
            rows: a full-length array (T_i,) for each sample of the batch.
        """
        begin = 0
        for row, span in zip(rows[part], self.spans[part], strict=True):
            end = begin + span.stop - span.start
            row[span] = values[begin:end]
            begin = end

    def _positions(self, part: slice) -> Positions:
        """Lay samples side by side.

        Inputs are masked here, before any arithmetic: multiplying by the mask afterwards turns an infinity into NaN.
        """
        spans = self.spans[part]
        weights = _joined(self.weights[part], spans)
        trained = weights != 0
        every = bool(trained.all())

        def kept(rows: Iterable[npt.NDArray[Any]]) -> Float64Array:
            joined = _joined(rows, spans)
            return joined if every else np.where(trained, joined, 0.0)

        policy = kept(self.rows[part])
        if not np.isfinite(policy).all():
            for index in range(part.start, part.stop):
                refuse_not_finite(self.rows[index], self.weights[index] != 0, f"policy_logprobs[{index}]")
        return Positions(
            np.array([span.stop - span.start for span in spans], dtype=np.int64),
            self.counts[part],
            trained,
            policy,
            weights,
            {name: kept(item.loss_fn_inputs[name].data for item in self.samples[part]) for name in self.names},
        )


def read_batch(
    policy_logprobs: Sequence[Any],
    samples: Sequence[Sample],
    reader: str,
    required: frozenset[str],
    optional: frozenset[str] = frozenset(),
) -> Batch:
    """Gather what a loss reads.

    Args:
        policy_logprobs: one (T_i,) tensor or array of floats a sample, in nats.
        samples: as many.
        reader: who reads, for errors.
        required: the inputs that every sample must hold.
        optional: the inputs that are read where every sample holds them.

    Raises:
        LossInputError: a sample lacks an input; the message names both.
        AlignmentError: not one value for every position of every sample.
        SampleError: there is no sample, or something else than one.
    """
    rows = as_rows(policy_logprobs, samples)
    for index, sample in enumerate(samples):
        refuse_missing(sample, index, required, reader, otherwise=", or set beta=0")
    held = [name for name in _READ if all(name in sample.loss_fn_inputs for sample in samples)]
    names = [name for name in held if name in required | optional]
    weights: list[FloatsArray] = [sample.weights for sample in samples]
    masks = [row != 0 for row in weights]
    counts = np.array([np.count_nonzero(mask) for mask in masks], dtype=np.int64)
    return Batch(samples, rows, weights, [_span(mask) for mask in masks], counts, names)


def views(values: FloatsArray, lengths: Sequence[int]) -> list[FloatsArray]:
    """Cut a flat array into one view a sample."""
    ends = list(accumulate(lengths))
    return [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def _span(trained: BoolArray) -> slice:
    """Give the smallest span that holds every trained position; the first position where there is none."""
    marks = trained.tobytes()  # searched several times as fast as an array
    return slice(max(marks.find(1), 0), max(marks.rfind(1), 0) + 1)


def _joined(rows: Iterable[npt.NDArray[Any]], spans: Sequence[slice]) -> Float64Array:
    return np.concatenate([row[span] for row, span in zip(rows, spans, strict=True)], dtype=np.float64)
