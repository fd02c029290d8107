"""A row of several documents, one behind the other, filled up with padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

import numpy as np

from samplekit.errors import PackingError
from samplekit.packing.documents import running_positions
from samplekit.packing.record import Origin, Record, split, trusted_record
from samplekit.sample.arrays import AnyArray, ArrayT, FloatArray, IntArray, floats_array, freeze


@dataclass(frozen=True, eq=False, repr=False)
class PackedRecord(Record):
    """A row: documents, then padding. Made by `pack`.

    Its ``positions`` start again at 0 with every document and with the padding, which is one segment of its own. Where
    one document has no loss mask none has, and the row's is None; the padding's is 0.

    Attributes:
        seq_lens: tokens of every document, int64 (S,), padding not among them.
        ids: every document's id; its place in what was packed, where it had none.
        pad_id: what the padding is filled with.
        origins: every document's ``origin``.
    """

    seq_lens: IntArray
    ids: tuple[object, ...]
    pad_id: int
    origins: tuple[Origin | None, ...]

    def __init__(self) -> None:
        raise TypeError("a PackedRecord is made by samplekit.pack or a StreamingPacker, not by hand")

    @property
    def document_ids(self) -> IntArray:
        """Which document each token is of, int64 (W,): 1 for the first, 0 for padding."""
        numbers = np.zeros(self.length, np.int64)
        filled = self.length - self.padding_length
        numbers[:filled] = np.repeat(np.arange(1, len(self.seq_lens) + 1), self.seq_lens)
        return freeze(numbers)

    @property
    def document_lengths(self) -> IntArray:
        """As ``seq_lens``."""
        return self.seq_lens

    @property
    def documents(self) -> list[Record]:
        """The documents as records again, each with its id and arrays; views of the row, without its positions."""
        return split(self, self.seq_lens, self.ids, self.origins)


def join(records: Sequence[Record], ids: Sequence[object], max_length: int, pad_id: int) -> PackedRecord:
    """Lay records end to end and fill the row up to max_length; the records fit, and have the same arrays."""
    lengths = np.array([record.length for record in records])
    padding = max_length - int(lengths.sum())
    first = records[0]
    masks = None if first.loss_mask is None else [cast("FloatArray", record.loss_mask) for record in records]
    row = object.__new__(PackedRecord)
    fields = {
        "tokens": _filled([record.tokens for record in records], padding, pad_id),
        "loss_mask": None if masks is None else _filled(masks, padding, 0),
        "id": tuple(ids),
        "padding_length": padding,
        "per_token": MappingProxyType(
            {
                "positions": freeze(running_positions([*lengths.tolist(), padding])),
                **{
                    name: _filled([record.per_token[name] for record in records], padding, 0)
                    for name in first.per_token
                    if name != "positions"
                },
            }
        ),
        "seq_lens": freeze(lengths),
        "ids": tuple(ids),
        "pad_id": pad_id,
        "origin": None,
        "origins": tuple(record.origin for record in records),
    }
    for name, value in fields.items():
        object.__setattr__(row, name, value)
    return row


def agreed(records: Sequence[Record]) -> list[Record]:
    """Give records the same arrays, or say which one lacks what the first has.

    Where one array is whole numbers in some records and fractions in others, it becomes float32 in all.

    Raises:
        PackingError: a record has no loss mask, or no array of a name, that another one has.
    """
    for place, record in enumerate(records):
        refuse_unlike(records[0], record, place)
    names = list(records[0].per_token) if records else []
    mixed = {name for name in names if len({record.per_token[name].dtype for record in records}) > 1}
    return [with_floats(record, mixed) for record in records] if mixed else list(records)


def refuse_unlike(first: Record, record: Record, place: int) -> None:
    """Refuse a record that has other arrays than the first one.

    Raises:
        PackingError: only one of them has a loss mask, or an array of some name.
    """
    ours, theirs = (
        {name for name in [*found.per_token, "loss_mask" if found.loss_mask is not None else ""] if name}
        - {"positions"}
        for found in (first, record)
    )
    for name in sorted(ours ^ theirs):
        lacking, having = (place, 0) if name in ours else (0, place)
        raise PackingError(
            f"records[{lacking}] has no {name}, records[{having}] has one: give all of them one or none, for without a "
            "loss_mask every token trains, and other arrays have no value to stand in"
        )


def with_floats(record: Record, names: set[str]) -> Record:
    """Give the record with these arrays as float32."""
    if not names:
        return record
    arrays: dict[str, AnyArray] = {
        name: floats_array(values, name) if name in names else values for name, values in record.per_token.items()
    }
    return trusted_record(
        record.tokens,
        record.loss_mask,
        arrays,
        id=record.id,
        padding_length=record.padding_length,
        origin=record.origin,
    )


def _filled(parts: Sequence[ArrayT], padding: int, value: int) -> ArrayT:
    filling = cast("ArrayT", np.full(padding, value, parts[0].dtype))
    return freeze(cast("ArrayT", np.concatenate([*parts, filling])))
