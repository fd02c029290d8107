"""Samples, and a record of every completion that trains in none of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from samplekit.errors import AlignmentError, SampleError
from samplekit.rollouts.listed import listed
from samplekit.sample import Sample
from samplekit.sample.kinds import describe_kind

REASONS: Mapping[str, str] = MappingProxyType({
    "degenerate": "every advantage of its group is 0, so it would train nothing",
    "overlong": "it (or a step of its trajectory) was cut or exceeds max_length, and overlong is 'mask' or 'drop'",
    "alone": "overlong='drop' left it (or its trajectory) as the only one of its group",
    "empty": "the policy sampled no token",
    "no_room": "its prompt alone fills max_length",
})  # fmt: skip
"""Why a completion may train in no sample."""


@dataclass(frozen=True)
class Drop:
    """A completion that trains in no sample.

    Attributes:
        reason: one of `REASONS`.
        source: where it stood in what was given, such as ``"groups[3].completions[1]"``.
        group: its group's id, None where it has none.
    """

    reason: str
    source: str
    group: str | int | None


class SampleList(list[Sample]):
    """A list of Samples that also tells what is missing from it.

    ``+`` and `map` keep what is missing; a slice or a list made of the samples is a plain list, which does not.

    Attributes:
        drops: every completion that trains in no sample, in the order of the input.
    """

    def __init__(self, samples: Iterable[Sample] = (), drops: Iterable[Drop] = ()) -> None:
        super().__init__(samples)
        self.drops: tuple[Drop, ...] = tuple(drops)

    @property
    def dropped(self) -> Counter[str]:
        """How many completions train in no sample, by reason (`REASONS`); empty where all of them do."""
        return Counter(drop.reason for drop in self.drops)

    @property
    def num_split(self) -> int:
        """How many trajectories train in several samples: where a step did not continue another, or merge is False."""
        return sum(sample.info.get("run") == 0 for sample in self)

    def map(self, fn: Callable[..., Sample], *columns: Iterable[Any]) -> SampleList:
        """Give what fn makes of every sample, in order, and of as many values of each column.

            >>> from samplekit import SampleList, Sample, build_sample
            >>> samples = SampleList([build_sample([1, 2, 3], [0, 1, 1])])
            >>> samples.map(Sample.with_reference_logprobs, [[-0.5, -0.25]])
            SampleList(1 samples, dropped={})

        Raises:
            AlignmentError: a column holds another number of values.
            SampleError: fn gives something else than a Sample.
        """
        rows = [listed(column, f"columns[{number}]", "one value a sample") for number, column in enumerate(columns)]
        for number, row in enumerate(rows):
            if len(row) != len(self):
                raise AlignmentError(
                    f"columns[{number}] holds {len(row)} values, expected one for each of {len(self)} samples"
                )
        made: list[Any] = [fn(*given) for given in zip(self, *rows, strict=True)]
        for index, item in enumerate(made):
            if not isinstance(item, Sample):
                raise SampleError(f"fn gives {describe_kind(item)} of samples[{index}], expected a Sample: return one")
        return SampleList(made, self.drops)

    def __add__(self, other: list[Any]) -> SampleList:  # type: ignore[override]
        return SampleList(super().__add__(other), (*self.drops, *_drops_of(other)))

    def __radd__(self, other: list[Sample]) -> SampleList:
        return SampleList([*other, *self], (*_drops_of(other), *self.drops))

    def __iadd__(self, other: Iterable[Sample]) -> Self:  # type: ignore[override,misc]
        self.drops = (*self.drops, *_drops_of(other))
        return super().__iadd__(other)

    def __repr__(self) -> str:
        return f"SampleList({len(self)} samples, dropped={dict(self.dropped)})"


def _drops_of(samples: object) -> tuple[Drop, ...]:
    return samples.drops if isinstance(samples, SampleList) else ()
