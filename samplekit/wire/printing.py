"""Long lists of JSON objects as bytes, in pieces that are worth a write each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from samplekit.sample import Sample
from samplekit.sample.digits import Printed, first_numbers
from samplekit.sample.parts import hold
from samplekit.wire.names import STAND_IN_LENGTH

Pieces = tuple[bytes, ...]
_PIECE_BYTES = 196_608  # a write costs a client as much as 50 KB of data; much larger pieces leave its caches
_cut = first_numbers(STAND_IN_LENGTH)


@dataclass(frozen=True)
class PrintedList:
    """The items of a JSON list, without its brackets.

    Attributes:
        pieces: of 192 KiB or somewhat more, but for the last; each ends with an item.
        sizes: bytes of every item, its comma included.
    """

    pieces: Pieces
    sizes: tuple[int, ...]


def print_list(items: Iterable[Sequence[Printed]]) -> PrintedList:
    """Join items, which come in parts, with commas between them; every byte is copied once."""
    pieces: list[bytes] = []
    sizes: list[int] = []
    waiting: list[Printed] = []
    num_waiting = 0
    for parts in items:
        if sizes:
            waiting.append(b",")
        waiting += parts
        sizes.append(sum(map(len, parts)) + bool(sizes))
        num_waiting += sizes[-1]
        if num_waiting >= _PIECE_BYTES:
            pieces.append(b"".join(waiting))
            waiting, num_waiting = [], 0
    return PrintedList((*pieces, b"".join(waiting)), tuple(sizes))


def print_samples(samples: Iterable[Sample]) -> tuple[PrintedList, Pieces]:
    """Print samples: whole, and cut to the length of a stand-in; digits are made once."""
    heads: list[list[Printed]] = []

    def whole() -> Iterator[list[Printed]]:
        for sample in samples:
            parts = sample.json_parts()
            heads.append(_head_parts(sample, parts))
            yield parts

    return print_list(whole()), print_list(heads).pieces


def _head_parts(sample: Sample, parts: Sequence[Printed]) -> list[Printed]:
    """Cut the number lists among the parts of a sample; of its tokens, all chunks together keep as many as a list."""
    if len(sample.model_input.chunks) > 1:
        parts = hold(Sample, **{**vars(sample), "model_input": sample.model_input.head(STAND_IN_LENGTH)}).json_parts()
    head = list(parts)
    head[1::2] = map(_cut, parts[1::2])
    return head
