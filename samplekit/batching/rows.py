"""The records of a batch, laid end to end: one array of each kind, and how wide each row is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from samplekit.batching.options import TrainingOptions
from samplekit.build import shift_rows
from samplekit.packing import PackedRecord, Record
from samplekit.packing.documents import running_positions
from samplekit.packing.record import trusted_record
from samplekit.sample.arrays import AnyArray, ArrayT, FloatArray, IntArray

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """Rows end to end, N values in all.

    Attributes:
        widths: tokens of every row, int64 (B,).
        padding_lengths: how many of the last of them are padding, int64 (B,).
        tokens: int64 (N,).
        loss_mask: float32 (N,), None where no record has one.
        positions: int64 (N,), None where no record has any.
        extras: the extra fields that were asked for, (N,) each.
    """

    widths: IntArray
    padding_lengths: IntArray
    tokens: IntArray
    loss_mask: FloatArray | None
    positions: IntArray | None
    extras: dict[str, AnyArray]

    @cached_property
    def padding(self) -> Flags:
        """Where padding stands: at the end of a row, told by its length and never by an id."""
        if not self.padding_lengths.any():
            return np.zeros(len(self.tokens), dtype=np.bool_)
        return np.repeat(np.tile([False, True], len(self.widths)), self.segments)

    @property
    def segments(self) -> IntArray:
        """The tokens of each row, then of its padding, int64 (2 * B,)."""
        return np.stack([self.widths - self.padding_lengths, self.padding_lengths], axis=1).reshape(-1)

    @cached_property
    def starts(self) -> Flags:
        """Where a segment starts: a row, a document (its positions start again) or the padding, which is one."""
        ends = np.cumsum(self.widths)
        starts = np.zeros(len(self.tokens), dtype=np.bool_)
        if self.positions is not None:
            starts = self.positions == 0
            starts |= self.positions < np.roll(self.positions, 1)  # the first, beside the last, is a row's start
            if self.padding_lengths.any():
                starts &= ~self.padding
        starts[ends - self.widths] = True
        starts[(ends - self.padding_lengths)[self.padding_lengths > 0]] = True
        return starts

    @cached_property
    def document_ids(self) -> IntArray:
        """Which document of its row each token is of, int64 (N,): 1 for the first, 0 for padding."""
        numbers = np.cumsum(self.starts, dtype=np.int64)
        before = numbers[np.cumsum(self.widths) - self.widths] - 1
        found: IntArray = np.where(self.padding, 0, numbers - np.repeat(before, self.widths))
        return found

    @property
    def num_documents(self) -> IntArray:
        """How many documents each row holds, int64 (B,); padding is none."""
        before = np.cumsum(self.widths) - self.widths
        segments: IntArray = np.add.reduceat(self.starts, before, dtype=np.int64)
        return segments - (self.padding_lengths > 0)

    def inputs(self, values: ArrayT, *, shifted: bool) -> ArrayT:
        """Give values as positions read them: all of them, or all but each row's last."""
        return shift_rows(values, self.widths, targets=False) if shifted else values

    def targets(self, values: ArrayT) -> ArrayT:
        """Give values as positions predict them: all but each row's first."""
        return shift_rows(values, self.widths, targets=True)


def lay_out(records: Sequence[Record], options: TrainingOptions, *, number: bool = False) -> Rows:
    """Lay records end to end, filled up as pad_to_multiple_of asks.

    Args:
        records: as many as there are rows.
        options: of them, those for padding, labels and extra fields are read.
        number: whether a record without positions gets those of one document, then padding.

    Raises:
        ValueError: a record lacks a field that others have, or that was asked for.
    """
    multiple = options.pad_to_multiple_of
    lost = 1 if options.return_labels else 0  # labels cost each row a position
    if multiple is not None and not options.flatten:
        records = [
            _padded(record, -(record.length - lost) % multiple, _pad_id(record, options.pad_id)) for record in records
        ]
    masks = _in_all("loss_mask", [record.loss_mask for record in records])
    rows = Rows(
        np.array([record.length for record in records], dtype=np.int64),
        np.array([record.padding_length for record in records], dtype=np.int64),
        _joined([record.tokens for record in records], np.int64),
        None if masks is None else _joined(masks, np.float32),
        _positions(records, number=number),
        {name: _extra(name, records) for name in options.extra_fields},
    )
    if multiple is None or not options.flatten or not records:
        return rows
    return filled_up(rows, -(len(rows.tokens) - lost * len(records)) % multiple, _pad_id(records[-1], options.pad_id))


def filled_up(rows: Rows, amount: int, pad_id: int) -> Rows:
    """Add padding behind the last row; what padding it has grows, and stays one segment."""
    if not amount:
        return rows
    before = int(rows.padding_lengths[-1])
    last = np.zeros(len(rows.widths), np.int64)
    last[-1] = amount
    zeros = np.zeros(amount, np.float32)
    return Rows(
        rows.widths + last,
        rows.padding_lengths + last,
        np.concatenate([rows.tokens, np.full(amount, pad_id)]),
        None if rows.loss_mask is None else np.concatenate([rows.loss_mask, zeros]),
        None if rows.positions is None else np.concatenate([rows.positions, np.arange(before, before + amount)]),
        {name: np.concatenate([values, zeros.astype(values.dtype)]) for name, values in rows.extras.items()},
    )


def _positions(records: Sequence[Record], *, number: bool) -> IntArray | None:
    given = [record.per_token.get("positions") for record in records]
    if number and any(values is not None for values in given):
        given = [
            running_positions(_segments([record])) if values is None else values
            for record, values in zip(records, given, strict=True)
        ]
    elif number and records:
        return running_positions(_segments(records))  # all at once: a batch may hold hundreds of short records
    found = _in_all("positions", given)
    return None if found is None else cast("IntArray", _joined(found, np.int64))


def _segments(records: Sequence[Record]) -> list[int]:
    """Give the tokens of each record, then of its padding."""
    return [size for record in records for size in (record.length - record.padding_length, record.padding_length)]


def _joined(parts: Sequence[AnyArray], dtype: Any) -> Any:  # noqa: ANN401 - arrays of that dtype
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def _in_all(name: str, values: Sequence[AnyArray | None]) -> list[AnyArray] | None:
    """Give a field's arrays, None where no record has it."""
    lacking = [place for place, value in enumerate(values) if value is None]
    if lacking and len(lacking) < len(values):
        raise ValueError(
            f"records[{lacking[0]}] has no {name!r}, which other records have: give all of them one or none"
        )
    return None if lacking or not values else cast("list[AnyArray]", list(values))


def _extra(name: str, records: Sequence[Record]) -> AnyArray:
    found: list[AnyArray] = []
    for place, record in enumerate(records):
        values = record.loss_mask if name == "loss_mask" else record.per_token.get(name)
        if name == "document_ids" and values is None and isinstance(record, PackedRecord):
            values = record.document_ids
        if values is None:
            raise ValueError(
                f"extra_fields names {name!r}, which records[{place}] lacks: it has {list(record.per_token)}"
            )
        found.append(values)
    if len({values.dtype for values in found}) > 1:  # whole in some records, fractions in others
        found = [values.astype(np.float32) for values in found]
    return cast("AnyArray", _joined(found, np.float32))


def _pad_id(record: Record, pad_id: int | None) -> int:
    if pad_id is not None:
        return pad_id
    return record.pad_id if isinstance(record, PackedRecord) else 0


def _padded(record: Record, amount: int, pad_id: int) -> Record:
    """Add padding to a record; what padding it has grows, and stays one segment."""
    if not amount:
        return record
    padding = record.padding_length + amount
    arrays = {
        name: np.concatenate([values, np.zeros(amount, values.dtype)]) for name, values in record.per_token.items()
    }
    if "positions" in arrays:
        arrays["positions"][-padding:] = np.arange(padding)
    tokens = np.concatenate([record.tokens, np.full(amount, pad_id)])
    mask = None if record.loss_mask is None else np.concatenate([record.loss_mask, np.zeros(amount, np.float32)])
    if isinstance(record, PackedRecord):
        arrays["document_ids"] = np.concatenate([record.document_ids, np.zeros(amount, np.int64)])
    return trusted_record(tokens, mask, arrays, id=record.id, padding_length=padding)
