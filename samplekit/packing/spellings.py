"""What trains, what is a document and what is padding, in the spellings of datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from samplekit.errors import AlignmentError, PackingError
from samplekit.packing.packed import running_positions
from samplekit.packing.record import Record, trusted_record
from samplekit.sample.arrays import AnyArray, IntArray, ids_array

MASKS = ("loss_mask", "completion_mask", "assistant_masks")
IGNORED = -100  # the label of what does not train in every dataset


def read_positions(found: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401 - an array, or None
    """Say where tokens stand in their documents: the row's own positions, or counted from its ``seq_lengths``.

    Args:
        found: the row.
        key: of its tokens.
    """
    given = (found[name] for name in ("positions", "position_ids") if found.get(name) is not None)
    positions = next(given, None)
    if positions is not None or found.get("seq_lengths") is None:
        return positions
    lengths, behind = _documents(found, key)
    return running_positions([*lengths.tolist(), behind])


def read_padding(found: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401 - a whole number, which Record checks
    """Count the padding at the end of a row, where the row says what it is."""
    if found.get("padding_length") is not None:
        return found["padding_length"]
    if found.get("seq_lengths") is not None:
        return _documents(found, key)[1]
    if found.get("document_ids") is None:
        return 0
    numbers = ids_array(found["document_ids"], "document_ids")
    if len(numbers) != np.size(found[key]):
        raise AlignmentError(
            f"document_ids holds {len(numbers)} values, there are {np.size(found[key])} tokens: give one for each token"
        )
    filled = np.flatnonzero(numbers)
    return len(numbers) - int(filled[-1]) - 1 if len(filled) else len(numbers)


def _documents(found: Mapping[str, Any], key: str) -> tuple[IntArray, int]:
    """Read the documents' lengths, and count the tokens behind them."""
    lengths = ids_array(found["seq_lengths"], "seq_lengths")
    behind = np.size(found[key]) - int(lengths.sum())
    if behind < 0:
        raise AlignmentError(
            f"seq_lengths counts {int(lengths.sum())} tokens, there are {np.size(found[key])}: give the lengths of "
            "this row's documents"
        )
    return lengths, behind


def read_mask(found: Mapping[str, Any], key: str, label: str) -> Any:  # noqa: ANN401 - an array, or None
    """Say what trains: where every mask says so and no label is ignored; None where there is neither.

    Raises:
        PackingError: a label is another id than its token. AlignmentError: arrays disagree about their length.
    """
    masks: list[Any] = [found[name] for name in MASKS if found.get(name) is not None]
    if found.get("labels") is not None:
        masks.append(_labelled(np.asarray(found["labels"]), np.asarray(found[key]), label))
    if len(masks) < 2:
        return masks[0] if masks else None
    arrays = [np.asarray(values) for values in masks]
    if len({values.shape for values in arrays}) > 1:
        raise AlignmentError("masks and labels differ in length: give one value for each token")
    trains = np.logical_and.reduce([values != 0 for values in arrays])
    return np.where(trains, arrays[0], 0)


def _labelled(labels: AnyArray, tokens: AnyArray, label: str) -> AnyArray:
    """Tell where labels are not ignored; each must be its own token's id, for it is shifted later."""
    if labels.shape != tokens.shape:
        raise AlignmentError(
            f"labels has shape {labels.shape}, the tokens have {tokens.shape}: give one label for each token"
        )
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
        PackingError: the mask leaves out tokens inside, all of them, or has another length than the tokens.
    """
    seen = np.asarray(attention_mask) != 0
    if seen.shape == (record.length,) and bool(seen.all()):
        return record
    places = np.flatnonzero(seen)
    if seen.shape != (record.length,) or not len(places) or places[-1] - places[0] + 1 != len(places):
        raise PackingError(
            f"{label}['attention_mask'] leaves out all tokens or some inside, or has another length than the tokens: "
            "only padding at the ends can be left out"
        )
    kept = slice(int(places[0]), int(places[-1]) + 1)
    mask = None if record.loss_mask is None else record.loss_mask[kept]
    arrays = {name: values[kept] for name, values in record.per_token.items()}
    behind = record.length - int(places[-1]) - 1
    padding = max(record.padding_length - behind, 0)
    return trusted_record(record.tokens[kept], mask, arrays, id=record.id, padding_length=padding)
