"""Packed rows through a model and back to documents, with gradients: for losses that count by sample."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch annotates only part of what is used here)

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from samplekit.batching import SampleBatch
from samplekit.batching.frameworks import hf_arrays
from samplekit.batching.unpack import value_ranges
from samplekit.errors import PackingError
from samplekit.training.chunks import gather_logprobs


def packed_logprobs(model: torch.nn.Module, batch: SampleBatch) -> list[torch.Tensor]:
    """Compute the logprob of every document's next tokens in one pass over the packed rows.

    Give the result to `compute_loss` with the documents' samples, ``[d.to_sample() for d in batch.documents]``: the
    loss is that of the same samples unpacked.

    Args:
        model: a causal language model of transformers.
        batch: packed rows, or records.

    Returns:
        One (T_i,) tensor a document, in the order of ``batch.documents``; gradients flow.

    Raises:
        PackingError: the batch is empty.
    """
    if not len(batch):
        raise PackingError("batch holds no records, expected at least one: skip it")
    arrays = hf_arrays(batch.rows, dtype=torch.int64)
    device = next(model.parameters()).device
    inputs = {name: _moved(value, device) for name, value in arrays.items() if name != "labels"}
    logits: torch.Tensor = model(**inputs).logits[0]
    targets = inputs["input_ids"][0].roll(
        -1
    )  # a document's last position predicts the next one's first: left out below
    return [part[: len(part) - 1] for part in unpack_tensors(gather_logprobs(logits, targets), batch, shifted=False)]


def unpack_tensors(
    per_token: torch.Tensor,
    batch: SampleBatch | Mapping[str, Any],
    *,
    shifted: bool | None = None,
    pad_to_multiple_of: int | None = None,
) -> list[torch.Tensor]:
    """Cut a tensor of a batch's values into one a document, as `samplekit.unpack` does; gradients flow.

    Args:
        per_token: (B, W) or (B, W - 1), or end to end.
        batch: the batch that the values are of, or what a collator gave for it, padded.
        shifted: as in `samplekit.unpack`, and so is pad_to_multiple_of.
        pad_to_multiple_of: see there.

    Raises:
        AlignmentError: the values have another shape.
    """
    ends, lost = value_ranges(per_token, batch, shifted=shifted, pad_to_multiple_of=pad_to_multiple_of)
    flat = per_token.reshape(-1)
    return [flat[start : stop - lost] for start, stop in ends.tolist()]


def _moved(value: Any, device: torch.device) -> Any:  # noqa: ANN401 - a tensor or an int
    return value.to(device) if isinstance(value, torch.Tensor) else value
