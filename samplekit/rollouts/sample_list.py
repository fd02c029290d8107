"""Samples, and a record of every completion that trains in none of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from samplekit.sample import Sample

REASONS: Mapping[str, str] = MappingProxyType({
    "degenerate": "every advantage of its group is 0, so it would train nothing",
    "overlong": "it ran into a length limit, and overlong is 'mask' or 'drop'",
    "alone": "overlong='drop' left it as the only completion of its group",
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

    def __repr__(self) -> str:
        return f"SampleList({len(self)} samples, dropped={dict(self.dropped)})"
