"""The way back: values of a batch's tokens or positions, cut into those of each document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from samplekit.batching.batch import SampleBatch
from samplekit.batching.layouts import Layout, layout_of, plain_layouts
from samplekit.errors import AlignmentError
from samplekit.packing.lengths import whole_number
from samplekit.sample.arrays import AnyArray, IntArray
from samplekit.sample.kinds import is_mapping


def unpack(
    per_token: Any,  # noqa: ANN401 - arrays, tensors or lists
    batch: SampleBatch | Mapping[str, Any],
    *,
    shifted: bool | None = None,
    pad_to_multiple_of: int | None = None,
) -> list[AnyArray]:
    """Cut values of a batch into one array a document, in the order of ``batch.documents``; padding is left out.

    Where a value stands decides which document it is of, never a count from one end: padding may stand at either.

        >>> from samplekit import Record, pack
        >>> rows = SampleBatch(pack([Record([1, 11, 2]), Record([1, 2])], 6, pad_id=0))
        >>> [values.tolist() for values in unpack([[0.5, 1.5, 2.5, 3.5, 4.5, 9.0]], rows)]
        [[0.5, 1.5, 2.5], [3.5, 4.5]]

    Args:
        per_token: (B, W), one value a token; or (B, W - 1), one value a position that predicts the next token, as with
            labels; or either end to end, (N,) or (1, N). Tensors are detached.
        batch: the batch that the values are of; or what a collator gave for it, padded on either side, whose
            ``attention_mask`` says where each row's values stand.
        shifted: whether the values are of positions. None tells it by their shape, and where both kinds have it, by
            a layout in which the batch has given its arrays.
        pad_to_multiple_of: as `SampleBatch.to_training`, `SampleBatch.to_framework` or the collator was told, where the
            batch was asked for its arrays elsewhere: a batch knows what it gave.

    Returns:
        For values of tokens, as many as the document has; for values of positions, one fewer: the last position of a
        document predicts nothing of it. So logprobs of positions are what `samplekit.training.compute_loss` takes.

    Raises:
        AlignmentError: the values have another shape, or one that two layouts have; or the attention_mask leaves out
            tokens inside.
    """
    ends, lost = value_ranges(per_token, batch, shifted=shifted, pad_to_multiple_of=pad_to_multiple_of)
    flat = _flat(per_token)
    return [flat[start : stop - lost] for start, stop in ends.tolist()]


def value_ranges(
    per_token: Any,  # noqa: ANN401 - as in unpack
    batch: SampleBatch | Mapping[str, Any],
    *,
    shifted: bool | None = None,
    pad_to_multiple_of: int | None = None,
) -> tuple[IntArray, int]:
    """Say where the values of each document stand, end to end: int64 (S, 2); and how many the last position loses.

    Raises:
        AlignmentError: the values have another shape than the batch.
    """
    multiple = None if pad_to_multiple_of is None else whole_number(pad_to_multiple_of, "pad_to_multiple_of")
    if is_mapping(batch):
        return _attended_ranges(_shape(per_token), batch, plain_layouts(shifted, None))
    held = cast("SampleBatch", batch)
    rows = held.rows
    widths = np.array([row.length for row in rows], dtype=np.int64)
    told = shifted is not None or multiple is not None
    possible = plain_layouts(shifted, multiple)
    layout = layout_of(_shape(per_token), widths, possible, () if told else held.layouts)
    sizes = layout.sizes(widths)
    spans: list[tuple[int, int]] = []
    for base, row in zip((np.cumsum(sizes) - sizes).tolist(), rows, strict=True):
        lengths = row.document_lengths
        ends = base + np.cumsum(lengths)
        spans += zip((ends - lengths).tolist(), ends.tolist(), strict=True)
    return np.array(spans, dtype=np.int64).reshape(-1, 2), int(layout.shifted)


def _attended_ranges(
    shape: tuple[Any, ...], collated: Mapping[str, Any], possible: Sequence[Layout]
) -> tuple[IntArray, int]:
    """Do the same for rows that a collator has padded."""
    if "attention_mask" not in collated:
        raise AlignmentError(
            f"batch holds {sorted(collated)}, expected an attention_mask, which says where rows are padded: pass the "
            "SampleBatch of rows that have none, with pad_to_multiple_of as they were padded"
        )
    seen = _plain(collated["attention_mask"]).astype(np.bool_)
    if seen.ndim != 2:
        raise AlignmentError(f"attention_mask has shape {seen.shape}, expected rows (B, T): pass the collator's own")
    firsts: IntArray = seen.argmax(axis=1)
    sizes: IntArray = seen.sum(axis=1)
    columns = np.arange(int(seen.shape[1]), dtype=np.int64)
    runs = (columns >= firsts[:, None]) & (columns < (firsts + sizes)[:, None])
    if not np.array_equal(runs, seen):
        raise AlignmentError("attention_mask leaves out tokens inside a row, expected padding at its ends only")
    lost = int(layout_of(shape, np.full(len(seen), seen.shape[1], dtype=np.int64), possible).shifted)
    starts = np.arange(len(seen)) * (seen.shape[1] - lost) + firsts
    return np.stack([starts, starts + sizes], axis=1), lost


def _shape(per_token: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as in unpack
    if hasattr(per_token, "shape"):
        return tuple(per_token.shape)
    if len(per_token) and (isinstance(per_token[0], Sequence) or hasattr(per_token[0], "shape")):
        lengths = [len(part) for part in per_token]
        return len(lengths), lengths[0] if len(set(lengths)) == 1 else tuple(lengths)
    return (len(per_token),)


def _flat(per_token: Any) -> AnyArray:  # noqa: ANN401 - as in unpack
    if isinstance(per_token, list | tuple):
        parts = [_plain(part) for part in cast("list[Any]", per_token)]
        return np.concatenate(parts) if parts and parts[0].ndim else np.array(parts)
    return _plain(per_token).reshape(-1)


def _plain(values: Any) -> AnyArray:  # noqa: ANN401 - as in unpack
    """Read one array; a tensor that tracks gradients is detached, and bfloat16 widened."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if "bfloat16" in str(values.dtype) else values
    return np.asarray(values)
