"""Records -> packed rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import numpy as np

from samplekit.errors import PackingError
from samplekit.packing.lengths import OVERSIZE, WIDEST_ROW, Oversize, choice, fit_lengths, whole_number
from samplekit.packing.packed import PackedRecord, agreed, join
from samplekit.packing.plan import Plan, Strategy, plan_kept
from samplekit.packing.read import read_record
from samplekit.packing.record import Record, follows_on, trusted_record
from samplekit.sample.kinds import is_whole_number, shown

Untrained: TypeAlias = Literal["keep", "drop"]
UNTRAINED: tuple[str, ...] = ("keep", "drop")
_ID_LIMIT = 2**63


class PackedRows(list[PackedRecord]):
    """A list of rows that also knows the plan they follow, and what of the records still trains.

    Attributes:
        plan: which record went where; it counts tokens: the utilisation, and what was dropped and cut off.
        untrained: ids of the documents of which no token trains, once cut; they are in the rows unless pack was told
            to drop them. Such a document builds no sample.
        num_trained: tokens that train in the rows; the first of a document never does.
        num_trained_lost: tokens that trained in the records and do not in the rows, dropped or cut off.
    """

    def __init__(
        self,
        rows: Iterable[PackedRecord],
        plan: Plan,
        *,
        untrained: Sequence[object] = (),
        num_trained: int = 0,
        num_trained_lost: int = 0,
    ) -> None:
        super().__init__(rows)
        self.plan = plan
        self.untrained = tuple(untrained)
        self.num_trained = num_trained
        self.num_trained_lost = num_trained_lost


def pack(
    records: Iterable[object],
    max_length: int,
    *,
    pad_id: int,
    strategy: Strategy = "best",
    oversize: Oversize = "error",
    seed: int | None = None,
    max_items: int | None = None,
    groups: object = None,
    untrained: Untrained = "keep",
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
        max_length: tokens of a row, at most 2**27. A trainer that shifts labels reads one fewer: 4,097 gives it 4,096.
        pad_id: what fills rows up.
        strategy: as in `plan_packing`, and so are seed, max_items and groups.
        oversize: what happens to records longer than a row: ``"error"``, ``"drop"``, ``"truncate"`` (keeps their start)
            or ``"truncate_left"`` (keeps their end). Every array is cut alike, and no stop token is put in.
        seed: shuffles the rows; None keeps the planner's order, which is sorted: shuffle before you train.
        max_items: most records of a row.
        groups: a label for every record, text or a whole number: records of different labels never share a row.
        untrained: what happens to documents of which nothing trains, because the cut took what did or nothing ever did:
            ``"keep"`` or ``"drop"``. Either way they are named in ``.untrained``; no sample can be built of one.

    Returns:
        The rows; ``.plan`` has what was dropped and cut off, ``.untrained`` which documents train nothing.

    Raises:
        PackingError: a record is too long, holds padding or several documents, or lacks an array that others have.
    """
    given = agreed([read_document(record, place) for place, record in enumerate(records)])
    room = whole_number(max_length, "max_length", limit=WIDEST_ROW)
    pad = read_pad_id(pad_id)
    choice(oversize, "oversize", OVERSIZE)
    choice(untrained, "untrained", UNTRAINED)
    sizes = np.array([record.length for record in given], dtype=np.int64)
    kept, fitted = fit_lengths(sizes, room, oversize, lambda place: name_of(given[place], place))
    places: list[int] = kept.tolist()
    cut = {place: cut_record(given[place], room, oversize) for place in places}
    trained = {place: num_trained(record) for place, record in cut.items()}
    idle = [place for place, count in trained.items() if not count]
    if untrained == "drop":
        kept = np.setdiff1d(kept, np.array(idle, dtype=np.int64))
    plan = plan_kept(sizes, fitted, kept, room, strategy=strategy, seed=seed, max_items=max_items, groups=groups)
    rows = [
        join([cut[place] for place in row], [id_of(given[place], place) for place in row], room, pad)
        for row in map(list[int], (row.tolist() for row in plan))
    ]
    left = sum(trained.values())
    return PackedRows(
        rows,
        plan,
        untrained=[id_of(given[place], place) for place in idle],
        num_trained=left,
        num_trained_lost=sum(map(num_trained, given)) - left,
    )


def num_trained(record: Record) -> int:
    """Count the tokens of one document that train; its first never does, for nothing predicts it."""
    return record.length - 1 if record.loss_mask is None else int(np.count_nonzero(record.loss_mask[1:]))


def read_document(value: object, place: int) -> Record:
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
    return trusted_record(record.tokens[kept], mask, arrays, id=record.id, padding_length=padding, origin=record.origin)


def id_of(record: Record, place: int) -> object:
    """Give a record's id; its place where it has none."""
    return place if record.id is None else record.id


def name_of(record: Record, place: int) -> str:
    """Name a record in an error: by its place, and by its id where it has one."""
    return f"sample {place}" if record.id is None else f"sample {place} ({shown(record.id)})"


def read_pad_id(pad_id: object) -> int:
    """Read the token that fills rows up.

    Raises:
        PackingError: it is no token id.
    """
    if not is_whole_number(pad_id) or not 0 <= pad_id < _ID_LIMIT:
        raise PackingError(
            f"pad_id is {shown(pad_id)}, expected a token id from 0 to 2**63 - 1: pass the tokenizer's pad token"
        )
    return int(pad_id)
