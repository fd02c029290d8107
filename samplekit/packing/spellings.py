"""What trains, what is a document and what is padding, in the spellings of datasets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np

from samplekit.build import refuse_labels
from samplekit.errors import AlignmentError, PackingError, SampleError
from samplekit.packing.documents import (
    padding_of_numbers,
    positions_of_numbers,
    positions_read,
    refuse_other_starts,
    running_positions,
)
from samplekit.packing.numbers_of_tokens import labels_array, whole_numbers
from samplekit.packing.record import Record, trusted_record
from samplekit.sample.arrays import AnyArray, FloatArray, IntArray, floats_array, ids_array

MASKS = ("loss_mask", "completion_mask", "assistant_masks")
PER_TOKEN = (*MASKS, "labels", "attention_mask", "positions", "position_ids", "document_ids")
IGNORED = -100  # the label of what does not train in every dataset


def refuse_unequal(found: Mapping[str, Any], key: str, length: int, names: Iterable[str]) -> None:
    """Refuse an array that is not as long as the tokens.

    Args:
        found: the row.
        key: of its tokens.
        length: how many there are.
        names: of the arrays.

    Raises:
        AlignmentError: one is longer or shorter; the message names it.
    """
    for name in names:
        values = found.get(name)
        if values is None or not hasattr(values, "__len__") or getattr(values, "ndim", 1) != 1:
            continue  # whoever reads it says what it is
        if len(values) != length:
            hint = "give one value for each token"
            if len(values) > length:
                hint += (
                    "; where a trainer cuts input_ids and labels only, as TRL's SFTConfig(max_length=1024) does by "
                    "default, pass it max_length=None"
                )
            raise AlignmentError(f"{name} holds {len(values)} values, {key} holds {length} tokens: {hint}")


def read_documents(found: Mapping[str, Any], key: str, length: int) -> tuple[IntArray | None, int]:
    """Say where tokens stand in their documents, and how many of the last are padding.

    What tells: ``positions`` or ``position_ids``, ``seq_lengths``, ``document_ids``, or an ``attention_mask`` that
    numbers the documents. Where there are several of these, every document must start again in the positions.

    Args:
        found: the row.
        key: of its tokens.
        length: how many there are.

    Returns:
        Positions, int64 (W,), or None where nothing tells; and the padding that the row says it has.

    Raises:
        SampleError: one of them is none, or positions run on where another one starts a document.
    """
    padding = 0
    told: dict[str, IntArray] = {}
    if found.get("document_ids") is not None:
        numbers = whole_numbers(found["document_ids"], "document_ids")
        told["document_ids"] = positions_of_numbers(numbers, "document_ids")
        padding = padding_of_numbers(cast("IntArray", numbers))
    if found.get("seq_lengths") is not None:
        lengths, padding = _lengths(found["seq_lengths"], key, length)
        told["seq_lengths"] = running_positions([*lengths.tolist(), padding])
    seen = _numbered(found.get("attention_mask"))
    if seen is not None:
        told["attention_mask"] = positions_of_numbers(seen, "attention_mask")
    if found.get("padding_length") is not None:
        padding = _plain_number(found["padding_length"])
    name = next((name for name in ("positions", "position_ids") if found.get(name) is not None), None)
    if name is not None:
        told = {name: positions_read(found[name]), **told}
    elif not told:
        return None, padding
    (first, positions), *others = told.items()
    filled = slice(0, length - padding) if isinstance(padding, int) else slice(None)
    for other, counted in others:
        refuse_other_starts(positions[filled], counted[filled], first, other)
    return positions, padding


def _lengths(given: object, key: str, length: int) -> tuple[IntArray, int]:
    """Read the documents' lengths, and count the tokens behind them."""
    lengths = ids_array(given, "seq_lengths")
    behind = length - int(lengths.sum())
    if behind < 0:
        raise AlignmentError(
            f"seq_lengths counts {int(lengths.sum())} tokens, {key} holds {length}: give the lengths of this row's "
            "documents"
        )
    return lengths, behind


def _plain_number(value: Any) -> Any:  # noqa: ANN401 - a whole number, which Record checks
    """Take a number out of a 0-d tensor, as datasets give it in torch's format."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "detach") else value


def attention_array(values: object) -> FloatArray:
    """Read an attention_mask: 0 where there is padding, else 1, or the document's number.

    Raises:
        AlignmentError: it is empty or not 1-D. SampleError: a value is something else.
    """
    seen = floats_array(values, "attention_mask")
    wrong = (seen < 0) | (seen % 1 != 0)
    if wrong.any():
        place = int(np.argmax(wrong))
        raise SampleError(
            f"attention_mask holds {seen[place]} at index {place}, expected 0 for padding, else 1 or the document's "
            "number: pass the tokenizer's own"
        )
    return seen


def _numbered(attention_mask: object) -> IntArray | None:
    """Give the numbers of documents that an attention_mask may hold, (W,); None where it holds 0 and 1 only."""
    if attention_mask is None:
        return None
    seen = attention_array(attention_mask)
    return seen.astype(np.int64) if seen.max() > 1 else None


def read_mask(found: Mapping[str, Any], tokens: IntArray, label: str) -> AnyArray | None:
    """Say what trains: where every mask says so and no label is ignored; None where there is neither.

    Raises:
        PackingError: a label is another id than its token. SampleError: a mask holds no numbers, or labels.
    """
    masks: list[AnyArray] = [_mask(found[name], name) for name in MASKS if found.get(name) is not None]
    if found.get("labels") is not None:
        masks.append(_labelled(labels_array(found["labels"]), tokens, label))
    if len(masks) < 2:
        return masks[0] if masks else None
    trains = np.logical_and.reduce([values != 0 for values in masks])
    return np.where(trains, masks[0], 0)


def _mask(values: object, name: str) -> FloatArray:
    mask = floats_array(values, name)
    try:
        refuse_labels(mask)
    except SampleError as error:
        raise error.reworded(error.message.replace("loss_mask", name)) from error
    return mask


def _labelled(labels: IntArray, tokens: IntArray, label: str) -> AnyArray:
    """Tell where labels are not ignored; each must be its own token's id, for it is shifted later."""
    trains = labels != IGNORED
    strayed = np.flatnonzero(trains & (labels != tokens))
    if len(strayed):
        place = int(strayed[0])
        raise PackingError(
            f"{label}['labels'] holds {labels[place]} at index {place}, where the token is {tokens[place]}: expected "
            "each token's own id or -100, for labels are shifted later"
        )
    return cast("AnyArray", trains)


def without_padding(record: Record, attention_mask: object, label: str) -> Record:
    """Leave out the padding that a dataset has put at either end.

    Raises:
        PackingError: the mask leaves out tokens inside, or all of them. SampleError: it is no such mask.
    """
    seen = attention_array(attention_mask) != 0
    if bool(seen.all()):
        return record
    places = np.flatnonzero(seen)
    if not len(places) or places[-1] - places[0] + 1 != len(places):
        raise PackingError(
            f"{label}['attention_mask'] leaves out all tokens or some inside: only padding at the ends can be left out"
        )
    kept = slice(int(places[0]), int(places[-1]) + 1)
    mask = None if record.loss_mask is None else record.loss_mask[kept]
    arrays = {name: values[kept] for name, values in record.per_token.items()}
    behind = record.length - int(places[-1]) - 1
    padding = max(record.padding_length - behind, 0)
    return trusted_record(record.tokens[kept], mask, arrays, id=record.id, padding_length=padding)
