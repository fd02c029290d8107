"""Packing records as they come."""

from __future__ import annotations

from samplekit.errors import PackingError
from samplekit.packing.in_order import NUM_OPEN, OpenRows
from samplekit.packing.lengths import OVERSIZE, WIDEST_ROW, Oversize, choice, whole_number
from samplekit.packing.pack import (
    UNTRAINED,
    Untrained,
    cut_record,
    id_of,
    name_of,
    num_trained,
    read_document,
    read_pad_id,
)
from samplekit.packing.packed import PackedRecord, join, refuse_unlike, with_floats
from samplekit.packing.record import Record


class StreamingPacker:
    """Packs records as they come, in bounded memory: few rows are open, and each record goes to the first it fits.

        >>> packer = StreamingPacker(4, pad_id=0)
        >>> [row.tokens.tolist() for record in ([1, 2], [1, 5, 2], [1, 2]) for row in packer.add(Record(record))]
        [[1, 2, 1, 2]]
        >>> [row.tokens.tolist() for row in packer.flush()]
        [[1, 5, 2, 0]]

    Args:
        max_length: tokens of a row.
        pad_id: what fills rows up.
        num_open: most rows that are open at a time; where a record fits none of them, the fullest is given out.
        oversize: as in `pack`, and so is untrained.
        untrained: what happens to documents of which nothing trains.

    Attributes:
        num_tokens: tokens taken in so far: those of rows given out or open, dropped and cut off ones.
        num_dropped: tokens of records left out so far.
        num_truncated: tokens cut off so far.
        num_trained: tokens that train in rows given out or open so far.
        num_trained_lost: tokens that trained in the records and do not in the rows, so far.
        num_untrained: documents of which nothing trains once cut, so far, in the rows or dropped.
    """

    def __init__(
        self,
        max_length: int,
        *,
        pad_id: int,
        num_open: int = NUM_OPEN,
        oversize: Oversize = "error",
        untrained: Untrained = "keep",
    ) -> None:
        choice(oversize, "oversize", OVERSIZE)
        choice(untrained, "untrained", UNTRAINED)
        self.max_length = whole_number(max_length, "max_length", limit=WIDEST_ROW)
        self.pad_id = read_pad_id(pad_id)
        self.oversize: Oversize = oversize
        self.untrained: Untrained = untrained
        self.num_tokens = self.num_dropped = self.num_truncated = 0
        self.num_trained = self.num_trained_lost = self.num_untrained = 0
        self._count = 0
        self._first: Record | None = None
        no_limit = self.max_length + 1
        self._open = OpenRows[tuple[Record, object]](self.max_length, no_limit, whole_number(num_open, "num_open"))

    def add(self, record: object) -> list[PackedRecord]:
        """Take one record in; give the rows that this completes, often none.

        Raises:
            PackingError: as `pack`, or an array holds fractions that holds whole numbers in the first record; the
                packer goes on as if the record had not come.
        """
        place = self._count
        found = self._alike(read_document(record, place), place)
        kept = self._fitted(found, place)
        self._count += 1
        self.num_tokens += found.length
        self._first = self._first or found
        left = 0 if kept is None else num_trained(kept)
        self.num_trained += left
        self.num_trained_lost += num_trained(found) - left
        self.num_untrained += kept is not None and not left
        if kept is None or (not left and self.untrained == "drop"):
            self.num_dropped += found.length
            return []
        self.num_truncated += found.length - kept.length
        return [self._row(row) for row in self._open.put((kept, id_of(found, place)), kept.length)]

    def flush(self) -> list[PackedRecord]:
        """Give the rows that are still open, the oldest first; the packer can go on."""
        return [self._row(row) for row in self._open.close_all()]

    def _alike(self, record: Record, place: int) -> Record:
        """Give the record's arrays the dtypes of the first one's: rows that were given out cannot change any more."""
        if self._first is None:
            return record
        refuse_unlike(self._first, record, place)
        unlike = {
            name
            for name, values in self._first.per_token.items()
            if name != "positions" and values.dtype != record.per_token[name].dtype
        }
        for name in sorted(unlike):
            if self._first.per_token[name].dtype.kind != "f":
                raise PackingError(
                    f"records[{place}] holds fractions in {name}, records[0] whole numbers: give fractions from the "
                    "first record on, for rows that were given out hold whole numbers"
                )
        return with_floats(record, unlike)

    def _fitted(self, record: Record, place: int) -> Record | None:
        if record.length <= self.max_length:
            return record
        if self.oversize == "error":
            raise PackingError(
                f"{name_of(record, place)} holds {record.length} tokens, a row holds max_length={self.max_length}: "
                "samples are never split, so raise max_length or say oversize='drop' or 'truncate'"
            )
        return None if self.oversize == "drop" else cut_record(record, self.max_length, self.oversize)

    def _row(self, items: list[tuple[Record, object]]) -> PackedRecord:
        return join([record for record, _ in items], [id_ for _, id_ in items], self.max_length, self.pad_id)
