"""A collator for Hugging Face's Trainer and TRL's SFTTrainer: documents end to end, or padded rows."""

# pyright: reportUnknownMemberType=false
# (torch annotates only part of what is used here)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from samplekit.batching.frameworks import hf_of, own_labels
from samplekit.batching.labels import ignored_label
from samplekit.batching.options import TrainingOptions
from samplekit.batching.rows import Rows, filled_up, lay_out
from samplekit.batching.training_arrays import refuse_ignored_id
from samplekit.errors import PackingError
from samplekit.packing import Oversize, Record, read_record
from samplekit.packing.lengths import OVERSIZE, whole_number
from samplekit.packing.pack import cut_record, read_pad_id
from samplekit.sample.kinds import shown
from samplekit.training.columns import read_together


class PackingCollator:
    """Collates what a dataset gives into what a transformers model is called with.

    Labels stand at their own token, for these models shift inside, and never at a document's first: so the trainer's
    count of labels that are not -100, by which it scales the loss under gradient accumulation, is the count of
    predictions that train. Padding is told by where it stands, so the pad token may be the end token.

    Args:
        max_length: most tokens of one item.
        pad_id: what padding is filled with.
        packed: True lays all items end to end, (1, N), with position_ids, cu_seq_lens_q/k and max_length_q/k and no
            attention_mask, for a 2-D one would let documents see each other. False gives rows (B, T), padded, with
            their attention_mask.
        ignore_index: the label of what does not train; trainers count on -100. Labels of a dataset ignore by -100,
            whatever this is.
        pad_to_multiple_of: makes N, or T, a multiple of it.
        oversize: what happens to longer items: ``"error"``, ``"truncate"`` or ``"truncate_left"``, which both cut
            padding first; a collator drops nothing.
        padding_side: where rows are padded, ``"right"`` or ``"left"``; `samplekit.unpack` reads either way back from
            the attention_mask.

    Raises:
        PackingError: an argument is not what it should be. SampleError: ignore_index is none.
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
        padding_side: Literal["right", "left"] = "right",
    ) -> None:
        if oversize not in OVERSIZE or oversize == "drop":
            raise PackingError(f"oversize is {shown(oversize)}, expected 'error', 'truncate' or 'truncate_left'")
        if padding_side not in ("right", "left"):
            raise PackingError(f"padding_side is {shown(padding_side)}, expected 'right' or 'left'")
        self.max_length = whole_number(max_length, "max_length")
        self.pad_id = read_pad_id(pad_id)
        self.packed = packed
        self.ignore_index = ignored_label(ignore_index)
        self.pad_to_multiple_of = None
        if pad_to_multiple_of is not None:
            self.pad_to_multiple_of = whole_number(pad_to_multiple_of, "pad_to_multiple_of")
        self.oversize: Oversize = oversize
        self.padding_side = padding_side

    def __call__(self, features: Sequence[Any]) -> dict[str, Any]:
        """Collate items: Records, packed rows, Samples, or mappings with ``input_ids``.

        Mappings are read in the spellings of datasets: what trains by ``loss_mask``, ``completion_mask``,
        ``assistant_masks`` or unshifted ``labels``, documents of a packed row by ``seq_lengths``, ``position_ids``,
        ``document_ids`` or an ``attention_mask`` that numbers them.

        Returns:
            Tensors by the names of the model's arguments.

        Raises:
            PackingError: an item is longer than max_length, or there is none; or some items have a mask or labels and
                others have none. ValueError: ignore_index is a token of the items.
        """
        if not features:
            raise PackingError("features is empty, expected at least one item: skip the batch")
        rows = read_together(features)
        if rows is None or rows.widths.max() > self.max_length:
            rows = self._one_by_one(features)
        return self._end_to_end(rows) if self.packed else self._padded(rows)

    def _one_by_one(self, features: Sequence[Any]) -> Rows:
        records = [self._fitted(read_record(item, f"features[{place}]"), place) for place, item in enumerate(features)]
        some_are_numbered = any("positions" in record.per_token for record in records)
        _refuse_some_masked(records)
        return lay_out(records, TrainingOptions(), number=some_are_numbered)

    def _fitted(self, record: Record, place: int) -> Record:
        if record.length <= self.max_length:
            return record
        if self.oversize == "error":
            raise PackingError(
                f"features[{place}] holds {record.length} tokens, max_length is {self.max_length}: cut or drop it when "
                "the dataset is made, raise max_length, or say oversize='truncate'"
            )
        without = max(record.length - record.padding_length, self.max_length)
        return cut_record(cut_record(record, without, "truncate"), self.max_length, self.oversize)

    def _end_to_end(self, rows: Rows) -> dict[str, Any]:
        rows = filled_up(rows, -len(rows.tokens) % (self.pad_to_multiple_of or 1), self.pad_id)
        return hf_of(rows, ignore_index=self.ignore_index, dtype=torch.int64)

    def _padded(self, rows: Rows) -> dict[str, torch.Tensor]:
        _refuse_documents(rows)
        refuse_ignored_id(rows, self.ignore_index)
        width = int(rows.widths.max())
        shape = (len(rows.widths), width + -width % (self.pad_to_multiple_of or 1))
        ids = np.full(shape, self.pad_id, np.int64)
        labels = np.full(shape, self.ignore_index, np.int64)
        attended = np.zeros(shape, np.int64)
        own_labels_of_all = own_labels(rows, self.ignore_index)
        ends = np.cumsum(rows.widths) - rows.padding_lengths
        for row, (end, size) in enumerate(
            zip(ends.tolist(), (rows.widths - rows.padding_lengths).tolist(), strict=True)
        ):
            places = slice(shape[1] - size, None) if self.padding_side == "left" else slice(0, size)
            ids[row, places] = rows.tokens[end - size : end]
            labels[row, places] = own_labels_of_all[end - size : end]
            attended[row, places] = 1
        found = {"input_ids": ids, "labels": labels, "attention_mask": attended}
        return {name: torch.from_numpy(values) for name, values in found.items()}


def _refuse_documents(rows: Rows) -> None:
    """Refuse rows of several documents, which a 2-D attention_mask does not keep apart."""
    several = np.flatnonzero(rows.num_documents > 1)
    if len(several):
        raise PackingError(
            f"features[{several[0]}] holds several documents, which see each other in a padded row: say packed=True, "
            "or pass the documents themselves"
        )


def _refuse_some_masked(records: Sequence[Record]) -> None:
    """Refuse a batch in which only some items say what trains: a mask that was forgotten would train all."""
    lacking = [place for place, record in enumerate(records) if record.loss_mask is None]
    if lacking and len(lacking) < len(records):
        having = next(place for place, record in enumerate(records) if record.loss_mask is not None)
        raise PackingError(
            f"features {shown(lacking)} have no mask or labels, features[{having}] has: give all items one or none, a "
            "mask of ones where the whole item trains"
        )
