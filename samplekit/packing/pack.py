"""Records -> packed rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from samplekit.errors import PackingError
from samplekit.packing.in_order import NUM_OPEN, OpenRows
from samplekit.packing.lengths import OVERSIZE, Oversize, whole_number
from samplekit.packing.packed import PackedRecord, agreed, join, refuse_unlike
from samplekit.packing.plan import Plan, Strategy, plan_packing
from samplekit.packing.read import read_record
from samplekit.packing.record import Record, follows_on, trusted_record
from samplekit.sample.kinds import is_whole_number, shown


class PackedRows(list[PackedRecord]):
    """A list of rows that also knows the plan they follow: its utilisation, and what was dropped and cut off.

    Attributes:
        plan: which record went where; it counts tokens.
    """

    def __init__(self, rows: Iterable[PackedRecord], plan: Plan) -> None:
        super().__init__(rows)
        self.plan = plan


def pack(
    records: Iterable[object],
    max_length: int,
    *,
    pad_id: int,
    strategy: Strategy = "best",
    oversize: Oversize = "error",
    seed: int | None = None,
    max_items: int | None = None,
    groups: Sequence[Hashable] | None = None,
) -> PackedRows:
    """Lay records end to end in rows of max_length tokens. A record is never split over rows.

    For local trainers only: never send packed rows to a service, which takes one sequence a sample.

        >>> rows = pack([Record([1, 11, 2]), Record([1, 21, 22, 2]), Record([1, 2])], 6, pad_id=0)
        >>> [row.tokens.tolist() for row in rows]
        [[1, 21, 22, 2, 1, 2], [1, 11, 2, 0, 0, 0]]
        >>> rows[1].document_ids.tolist(), rows[1].per_token["positions"].tolist()
        ([1, 1, 1, 0, 0, 0], [0, 1, 2, 0, 1, 2])

    Args:
        records: Records, Samples, or mappings of arrays, without padding and not packed yet.
        max_length: tokens of a row. A trainer that shifts labels reads one fewer: 4,097 gives it 4,096.
        pad_id: what fills rows up.
        strategy: as in `plan_packing`, and so are seed, max_items and groups.
        oversize: what happens to records longer than a row: ``"error"``, ``"drop"``, ``"truncate"`` (keeps their start)
            or ``"truncate_left"`` (keeps their end). Every array is cut alike, and no stop token is put in.
        seed: shuffles the rows; None keeps the planner's order, which is sorted: shuffle before you train.
        max_items: most records of a row.
        groups: a label for every record: records of different labels never share a row.

    Returns:
        The rows; ``.plan`` has what was dropped and cut off.

    Raises:
        PackingError: a record is too long, holds padding or several documents, or lacks an array that others have.
    """
    given = agreed([_document(record, place) for place, record in enumerate(records)])
    pad = _pad_id(pad_id)
    plan = plan_packing(
        [record.length for record in given],
        max_length,
        strategy=strategy,
        seed=seed,
        max_items=max_items,
        groups=groups,
        oversize=oversize,
    )
    rows = [
        join(
            [cut_record(given[place], max_length, oversize) for place in row],
            [_id_of(given[place], place) for place in row],
            max_length,
            pad,
        )
        for row in map(list[int], (row.tolist() for row in plan))
    ]
    return PackedRows(rows, plan)


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
        oversize: as in `pack`.

    Attributes:
        num_tokens: tokens taken in so far: those of rows given out or open, dropped and cut off ones.
        num_dropped: tokens of records left out so far.
        num_truncated: tokens cut off so far.
    """

    def __init__(self, max_length: int, *, pad_id: int, num_open: int = NUM_OPEN, oversize: Oversize = "error") -> None:
        if oversize not in OVERSIZE:
            raise PackingError(f"oversize is {shown(oversize)}, expected one of {', '.join(OVERSIZE)}: choose one")
        self.max_length = whole_number(max_length, "max_length")
        self.pad_id = _pad_id(pad_id)
        self.oversize: Oversize = oversize
        self.num_tokens = self.num_dropped = self.num_truncated = 0
        self._count = 0
        self._first: Record | None = None
        no_limit = self.max_length + 1
        self._open = OpenRows[tuple[Record, object]](self.max_length, no_limit, whole_number(num_open, "num_open"))

    def add(self, record: object) -> list[PackedRecord]:
        """Take one record in; give the rows that this completes, often none.

        Raises:
            PackingError: as `pack`; the packer goes on as if the record had not come.
        """
        place = self._count
        found = _document(record, place)
        if self._first is not None:
            refuse_unlike(self._first, found, place)
        kept = self._fitted(found, place)
        self._count += 1
        self.num_tokens += found.length
        self._first = self._first or found
        if kept is None:
            self.num_dropped += found.length
            return []
        self.num_truncated += found.length - kept.length
        return [self._row(row) for row in self._open.put((kept, _id_of(found, place)), kept.length)]

    def flush(self) -> list[PackedRecord]:
        """Give the rows that are still open, the oldest first; the packer can go on."""
        return [self._row(row) for row in self._open.close_all()]

    def _fitted(self, record: Record, place: int) -> Record | None:
        if record.length <= self.max_length:
            return record
        if self.oversize == "error":
            raise PackingError(
                f"sample {place} holds {record.length} tokens, a row holds max_length={self.max_length}: samples are "
                "never split, so raise max_length or say oversize='drop' or 'truncate'"
            )
        return None if self.oversize == "drop" else cut_record(record, self.max_length, self.oversize)

    def _row(self, items: list[tuple[Record, object]]) -> PackedRecord:
        return join(agreed([record for record, _ in items]), [id_ for _, id_ in items], self.max_length, self.pad_id)


def _document(value: object, place: int) -> Record:
    """Read one record to be packed, and refuse what is a row already."""
    record = read_record(value, f"records[{place}]")
    if record.padding_length:
        raise PackingError(
            f"records[{place}] holds {record.padding_length} tokens of padding, expected none: pack records before "
            "they are padded"
        )
    if isinstance(record, PackedRecord) or not follows_on(record, record.length):
        raise PackingError(
            f"records[{place}] holds several documents already, expected one: pack the documents themselves"
        )
    return record


def cut_record(record: Record, max_length: int, oversize: str) -> Record:
    """Cut every array of a record by the same slice."""
    if record.length <= max_length:
        return record
    kept = slice(-max_length, None) if oversize == "truncate_left" else slice(0, max_length)
    mask = None if record.loss_mask is None else record.loss_mask[kept]
    arrays = {name: values[kept] for name, values in record.per_token.items()}
    lost = record.length - max_length if oversize == "truncate" else 0
    padding = min(max(record.padding_length - lost, 0), max_length)
    return trusted_record(record.tokens[kept], mask, arrays, id=record.id, padding_length=padding)


def _id_of(record: Record, place: int) -> object:
    return place if record.id is None else record.id


def _pad_id(pad_id: object) -> int:
    if not is_whole_number(pad_id) or pad_id < 0:
        raise PackingError(
            f"pad_id is {shown(pad_id)}, expected a token id of 0 or more: pass the tokenizer's pad token"
        )
    return int(pad_id)
