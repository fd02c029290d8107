"""Presets: the same rows under the names, shapes and conventions of a framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from samplekit.batching.boundaries import boundaries
from samplekit.batching.options import TrainingOptions
from samplekit.batching.output import output_for, torch_module
from samplekit.batching.rows import Rows, lay_out
from samplekit.batching.training_arrays import refuse_ignored_id, training_arrays
from samplekit.packing import Record
from samplekit.packing.documents import running_positions
from samplekit.sample.arrays import IntArray

_NO_NAMES = ("ids", "texts")


def framework_arrays(
    rows: Sequence[Record],
    ids: Sequence[object],
    framework: str,
    mask_boundaries: bool,
    pad_to_multiple_of: int | None,
    dtype: Any,  # noqa: ANN401 - a dtype of numpy or torch
) -> dict[str, Any]:
    """Make what `SampleBatch.to_framework` gives."""
    makers: dict[str, Callable[..., dict[str, Any]]] = {
        "hf": hf_arrays,
        "megatron": _megatron,
        "torchtitan": _torchtitan,
    }
    if framework not in makers:
        raise ValueError(f"framework is {framework!r}, expected one of {', '.join(makers)}: choose one")
    chosen = torch_module().int64 if isinstance(dtype, str) and dtype == "torch" else dtype
    return makers[framework](
        rows,
        ids,
        mask_boundaries=mask_boundaries,
        pad_to_multiple_of=pad_to_multiple_of,
        dtype=chosen,
    )


def hf_arrays(
    rows: Sequence[Record],
    ids: Sequence[object] = (),
    *,
    mask_boundaries: bool = True,
    pad_to_multiple_of: int | None = None,
    pad_id: int | None = None,
    ignore_index: int = -100,
    dtype: Any = "auto",  # noqa: ANN401 - a dtype of numpy or torch
) -> dict[str, Any]:
    """Give rows end to end as transformers models are called: (1, N), labels at their own token.

    transformers finds documents by their positions, and its flash attention by cu_seq_lens; either only while there is
    no attention_mask. With a cache, which a model in eval mode makes by default, it does not look for them at all.
    """
    del ids
    options = TrainingOptions(
        flatten=True, pad_to_multiple_of=pad_to_multiple_of, pad_id=pad_id, ignore_index=ignore_index, dtype=dtype
    )
    some_are_numbered = any("positions" in row.per_token for row in rows)
    laid = lay_out(rows, options, number=some_are_numbered)
    return hf_of(laid, mask_boundaries=mask_boundaries, ignore_index=ignore_index, dtype=dtype)


def hf_of(
    laid: Rows,
    *,
    mask_boundaries: bool = True,
    ignore_index: int = -100,
    dtype: Any = "auto",  # noqa: ANN401 - a dtype of numpy or torch
) -> dict[str, Any]:
    """Give rows that are laid out as `hf_arrays` does; without positions, each is one document and then padding."""
    refuse_ignored_id(laid, ignore_index)
    one_row = output_for(TrainingOptions(dtype=dtype), np.array([len(laid.tokens)]))
    ends = boundaries(laid.starts, laid.widths, flatten=True)
    cu_seqlens = one_row.as_given(ends.cu_seqlens)
    positions = running_positions(laid.segments) if laid.positions is None else laid.positions
    return {
        "input_ids": one_row.whole(laid.tokens, "input_ids"),
        "labels": one_row.whole(own_labels(laid, ignore_index, mask_boundaries=mask_boundaries), "labels"),
        "position_ids": one_row.whole(positions, "position_ids"),
        "cu_seq_lens_q": cu_seqlens,
        "cu_seq_lens_k": cu_seqlens,
        "max_length_q": ends.max_seqlen,
        "max_length_k": ends.max_seqlen,
        "use_cache": False,
    }


def own_labels(laid: Rows, ignore_index: int, *, mask_boundaries: bool = True) -> IntArray:
    """Give each token as its own label where it trains, for models that shift inside; a row's first never does."""
    ignored = laid.padding.copy()
    ignored[np.cumsum(laid.widths) - laid.widths] = True
    if laid.loss_mask is not None:
        ignored |= laid.loss_mask == 0
    if mask_boundaries:
        ignored |= laid.starts
    return np.where(ignored, ignore_index, laid.tokens)


def _megatron(rows: Sequence[Record], ids: Sequence[object], **options: Any) -> dict[str, Any]:  # noqa: ANN401
    """Give rows end to end in Megatron's packed ("thd") form: (1, N), labels shifted, weights in loss_mask."""
    found = training_arrays(
        rows,
        ids,
        TrainingOptions(
            return_labels=True, return_loss_mask=True, return_cu_seqlens=True, flatten=True, exclude_fields=_NO_NAMES,
            rename_fields={"input_ids": "tokens", "positions": "position_ids"}, **options,
        ),
        number=True,
    )  # fmt: skip
    for name in ("tokens", "labels", "loss_mask", "position_ids"):
        found[name] = found[name][None] if hasattr(found[name], "shape") else [found[name]]
    return found


def _torchtitan(rows: Sequence[Record], ids: Sequence[object], **options: Any) -> dict[str, Any]:  # noqa: ANN401
    """Give rows (B, S) under torchtitan's names, with document_ids for a mask of blocks."""
    return training_arrays(
        rows,
        ids,
        TrainingOptions(
            return_labels=True, return_document_ids=True, exclude_fields=_NO_NAMES,
            rename_fields={"input_ids": "input"}, **options,
        ),
        number=True,
    )  # fmt: skip
