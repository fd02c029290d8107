"""A collator for Hugging Face's Trainer and TRL's SFTTrainer: documents end to end, or padded rows."""

# pyright: reportUnknownMemberType=false
# (torch annotates only part of what is used here)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from samplekit.batching.frameworks import hf_arrays
from samplekit.errors import PackingError
from samplekit.packing import Oversize, Record, read_record
from samplekit.packing.lengths import OVERSIZE, whole_number
from samplekit.packing.pack import cut_record
from samplekit.packing.packed import running_positions
from samplekit.packing.record import trusted_record
from samplekit.sample.kinds import is_mapping

_MASKS = ("loss_mask", "completion_mask", "assistant_masks")


class PackingCollator:
    """Collates what a dataset gives into what a transformers model is called with.

    Labels stand at their own token, for these models shift inside, and never at a document's first: so the trainer's
    count of labels that are not -100, by which it scales the loss under gradient accumulation, is the count of
    predictions that train. Padding is told by where it stands, so the pad token may be the end token.

    Args:
        max_length: most tokens of one item.
        pad_id: what padding is filled with.
        packed: True lays all items end to end, (1, N), with position_ids, cu_seq_lens_q/k and max_length_q/k and no
            attention_mask, for a 2-D one would let documents see each other. False gives rows (B, T) padded on the
            right, with their attention_mask.
        ignore_index: the label of what does not train; trainers count on -100.
        pad_to_multiple_of: makes N, or T, a multiple of it.
        oversize: what happens to longer items: ``"error"``, ``"truncate"`` or ``"truncate_left"``; a collator drops
            nothing.

    Raises:
        PackingError: an argument is not what it should be.
    """

    def __init__(
        self,
        max_length: int,
        *,
        pad_id: int,
        packed: bool = True,
        ignore_index: int = -100,
        pad_to_multiple_of: int | None = None,
        oversize: Oversize = "error",
    ) -> None:
        if oversize not in OVERSIZE or oversize == "drop":
            raise PackingError(f"oversize is {oversize!r}, expected 'error', 'truncate' or 'truncate_left'")
        self.max_length = whole_number(max_length, "max_length")
        self.pad_id = whole_number(pad_id, "pad_id") if pad_id != 0 else 0
        self.packed = packed
        self.ignore_index = ignore_index
        self.pad_to_multiple_of = None
        if pad_to_multiple_of is not None:
            self.pad_to_multiple_of = whole_number(pad_to_multiple_of, "pad_to_multiple_of")
        self.oversize: Oversize = oversize

    def __call__(self, features: Sequence[Any]) -> dict[str, Any]:
        """Collate items: Records, packed rows, Samples, or mappings with ``input_ids``.

        A mapping says what trains by ``loss_mask``, TRL's ``completion_mask`` or ``assistant_masks`` (where it has
        several, a token trains where all say so), or unshifted ``labels``; else every token does. ``seq_lengths`` (or
        ``position_ids``) tell the documents of one that is packed already.

        Returns:
            Tensors by the names of the model's arguments.

        Raises:
            PackingError: an item is longer than max_length, or there is none.
        """
        if not features:
            raise PackingError("features is empty, expected at least one item: skip the batch")
        records = [self._fitted(_read(item, place), place) for place, item in enumerate(features)]
        if not self.packed:
            return self._padded(records)
        return hf_arrays(
            _all_masked(records),
            pad_to_multiple_of=self.pad_to_multiple_of,
            pad_id=self.pad_id,
            ignore_index=self.ignore_index,
            dtype=torch.int64,
        )

    def _fitted(self, record: Record, place: int) -> Record:
        if record.length <= self.max_length:
            return record
        if self.oversize == "error":
            raise PackingError(
                f"features[{place}] holds {record.length} tokens, max_length is {self.max_length}: cut or drop it when "
                "the dataset is made, raise max_length, or say oversize='truncate'"
            )
        return cut_record(record, self.max_length, self.oversize)

    def _padded(self, records: Sequence[Record]) -> dict[str, torch.Tensor]:
        width = max(record.length for record in records)
        width += -width % (self.pad_to_multiple_of or 1)
        shape = (len(records), width)
        ids = np.full(shape, self.pad_id, np.int64)
        trains = np.zeros(shape, np.float32)
        attended = np.zeros(shape, np.int64)
        for row, record in enumerate(records):
            end = record.length - record.padding_length
            ids[row, :end] = record.tokens[:end]
            trains[row, :end] = 1 if record.loss_mask is None else record.loss_mask[:end]
            attended[row, :end] = 1
        trains[:, 0] = 0  # no position predicts a row's first token
        labels = np.where(trains != 0, ids, self.ignore_index)
        found = {"input_ids": ids, "labels": labels, "attention_mask": attended}
        return {name: torch.from_numpy(values) for name, values in found.items()}


def _all_masked(records: Sequence[Record]) -> list[Record]:
    """Give every record a mask where one has: a batch may mix rows that train whole with others."""
    if all(record.loss_mask is None for record in records):
        return list(records)
    return [
        record
        if record.loss_mask is not None
        else trusted_record(
            record.tokens,
            np.ones(record.length, np.float32),
            record.per_token,
            id=record.id,
            padding_length=record.padding_length,
        )
        for record in records
    ]


def _read(item: object, place: int) -> Record:
    """Read one item of a dataset."""
    label = f"features[{place}]"
    if not is_mapping(item) or "input_ids" not in item:
        return read_record(item, label)
    positions = _positions(item)
    record = Record(
        item["input_ids"],
        _mask(item),
        padding_length=item.get("padding_length", 0),
        **({} if positions is None else {"positions": positions}),
    )
    if "attention_mask" not in item:
        return record
    seen = np.asarray(item["attention_mask"]) != 0
    return record if bool(seen.all()) else _seen(record, seen, label)


def _seen(record: Record, seen: Any, label: str) -> Record:  # noqa: ANN401 - bools, one a token
    """Leave padding out that a dataset has put at either end."""
    places = np.flatnonzero(seen)
    if len(seen) != record.length or not len(places) or places[-1] - places[0] + 1 != len(places):
        raise PackingError(
            f"{label}['attention_mask'] leaves out tokens inside, or has another length than the tokens: only padding "
            "at the ends can be left out"
        )
    kept = slice(int(places[0]), int(places[-1]) + 1)
    mask = None if record.loss_mask is None else record.loss_mask[kept]
    arrays = {name: values[kept] for name, values in record.per_token.items()}
    return trusted_record(record.tokens[kept], mask, arrays, id=record.id)


def _mask(item: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an array, or None
    """Say what trains: where every mask says so and no label is ignored."""
    found = [np.asarray(item[name]) for name in _MASKS if item.get(name) is not None]
    if item.get("labels") is not None:
        found.append(np.asarray(item["labels"]) != -100)
    if len(found) < 2:
        return found[0] if found else None
    mask: Any = np.logical_and.reduce([values != 0 for values in found])
    return np.where(mask, found[0], 0)


def _positions(item: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an array, or None
    if item.get("seq_lengths") is not None:
        return running_positions(item["seq_lengths"])
    for name in ("position_ids", "positions"):
        if item.get(name) is not None:
            return item[name]
    return None
