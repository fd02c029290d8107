"""Rows -> labels, masks, positions and boundaries, in the order in which one depends on the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from samplekit.batching.boundaries import boundaries, seq_lens_of
from samplekit.batching.options import TrainingOptions
from samplekit.batching.output import Output, output_for
from samplekit.batching.rows import Flags, Rows, lay_out
from samplekit.packing import Record
from samplekit.packing.documents import running_positions
from samplekit.sample.arrays import AnyArray, FloatArray, IntArray


class Labels(NamedTuple):
    """What positions are to predict: ids or ignore_index, int64 (N,); and how much each counts, float32 (N,)."""

    ids: IntArray
    weights: FloatArray

    @property
    def num_valid(self) -> int:
        """How many labels are not ignored."""
        return int(np.count_nonzero(self.weights))


def training_arrays(
    records: Sequence[Record], ids: Sequence[object], options: TrainingOptions, *, number: bool = False
) -> dict[str, Any]:
    """Make what `SampleBatch.to_training` gives; `number` is that of `lay_out`.

    Raises:
        ValueError: a record lacks a field, or the options do not suit the records.
    """
    rows = lay_out(records, options, number=number)
    shifted = options.return_labels
    widths = rows.widths - shifted
    output = output_for(options, widths)
    labels = _labels(rows, options) if shifted else None
    found: dict[str, Any] = {"ids": list(ids), "texts": [""] * len(ids)}
    if options.return_padding_mask:
        found["padding_mask"] = output.shaped(rows.inputs(rows.padding, shifted=shifted))
    found["input_ids"] = output.whole(rows.inputs(rows.tokens, shifted=shifted), "input_ids")
    if labels is not None:
        found["labels"] = output.whole(labels.ids, "labels")
    for name, values in rows.extras.items():
        found[name] = output.number(rows.inputs(values, shifted=shifted), name)
    found |= _positions(rows, widths, options, output)
    if labels is not None and options.return_loss_mask:
        found["loss_mask"] = output.shaped(labels.weights)
    if labels is None and rows.loss_mask is not None:
        found["loss_mask"] = output.shaped(rows.loss_mask)
    if labels is not None and options.return_num_valid_tokens:
        found["num_valid_tokens"] = labels.num_valid
    found |= _segments(rows, widths, options, output)
    return options.named(found)


def _labels(rows: Rows, options: TrainingOptions) -> Labels:
    """Decide which of the next tokens train: padding, the loss mask, the end token's and the boundary rule."""
    ids = rows.targets(rows.tokens)
    ignored: Flags = rows.targets(rows.padding)
    weights: FloatArray = np.ones(len(ids), np.float32) if rows.loss_mask is None else rows.targets(rows.loss_mask)
    if options.eos_mask_loss:
        ignored = ignored | (rows.inputs(rows.tokens, shifted=True) == options.eos_token_id)
    if options.mask_boundaries:
        ignored = ignored | rows.targets(rows.starts)
    weights = np.where(ignored, np.float32(0), weights)
    refuse_ignored_id(rows, options.ignore_index)
    return Labels(np.where(weights != 0, ids, options.ignore_index), weights)


def refuse_ignored_id(rows: Rows, ignore_index: int) -> None:
    """Refuse an ignore_index that is a token of the batch.

    Raises:
        ValueError: it is one, so that labels that train would be ignored.
    """
    if ignore_index >= 0 and (ignored := (rows.tokens == ignore_index) & ~rows.padding).any():
        raise ValueError(
            f"ignore_index is {ignore_index}, which is also token {int(np.argmax(ignored))} of the batch: choose a "
            "number that is no token id, such as -100"
        )


def _positions(rows: Rows, widths: IntArray, options: TrainingOptions, output: Output) -> dict[str, Any]:
    values: AnyArray | None = rows.positions
    if options.position_mode == "sequence":
        values = running_positions(widths.tolist())
    elif values is not None:
        values = rows.inputs(values, shifted=options.return_labels)
    elif not len(widths):
        values = np.zeros(0, np.int64)
    return {} if values is None else {"positions": output.whole(values, "positions")}


def _segments(rows: Rows, widths: IntArray, options: TrainingOptions, output: Output) -> dict[str, Any]:
    """Say where documents start and end, from the positions that the records came with."""
    found: dict[str, Any] = {}
    if options.return_cu_seqlens:
        if rows.positions is None and len(widths):
            raise ValueError(
                "return_cu_seqlens requires records with 'positions', which start again at 0 with every document: pack "
                "gives them"
            )
        ends = boundaries(rows.inputs(rows.starts, shifted=options.return_labels), widths, flatten=options.flatten)
        found["cu_seqlens"] = output.as_given(ends.cu_seqlens)
        found["max_seqlen"] = ends.max_seqlen if options.flatten else output.as_given(ends.max_seqlens)
    if not (options.return_document_ids or options.return_seq_lens):
        return found
    numbers = rows.inputs(rows.document_ids, shifted=options.return_labels)
    if options.return_document_ids:
        found["document_ids"] = output.whole(numbers, "document_ids")
    if options.return_seq_lens:
        found["seq_lens"] = output.as_given(seq_lens_of(numbers, widths, flatten=options.flatten))
    return found
