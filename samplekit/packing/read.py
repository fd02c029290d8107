"""Whatever holds a sequence of tokens -> a Record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from samplekit.errors import PackingError, SampleError
from samplekit.packing.record import Record
from samplekit.packing.spellings import PER_TOKEN, read_documents, read_mask, refuse_unequal, without_padding
from samplekit.sample import Sample
from samplekit.sample.arrays import ids_array
from samplekit.sample.kinds import describe_kind, is_mapping, is_sequence

TOKENS_FIELDS: tuple[str, ...] = ("input_ids", "tokens", "token_ids", "ids")
_PER_TOKEN = ("advantages", "logprobs", "reference_logprobs")


def read_record(value: object, label: str, *, tokens_field: str = "auto", extra_fields: Iterable[str] = ()) -> Record:
    """Read a record: a Record as it is, a Sample, a mapping of arrays, or the tokens themselves.

    A mapping says what trains by ``loss_mask``, TRL's ``completion_mask`` or ``assistant_masks`` (where it has several,
    a token trains where all say so), or unshifted ``labels``; else every token does. ``seq_lengths``, ``position_ids``,
    ``positions``, ``document_ids`` or an ``attention_mask`` that numbers them tell the documents of a row that is
    packed already; what ``attention_mask`` leaves out at either end is left out. Of its other keys, advantages,
    logprobs, reference_logprobs and those asked for are read.

    Args:
        value: what to read.
        label: what errors call it, such as ``"records[3]"``.
        tokens_field: the mapping's key of the tokens; ``"auto"`` for the first of `TOKENS_FIELDS`.
        extra_fields: more of its keys to read, where it has them.

    Raises:
        PackingError: it is a list of documents, its attention_mask leaves out tokens inside, or its labels are not its
            own tokens.
        ValueError: a mapping lacks the tokens.
        TypeError: it holds no tokens.
        SampleError: its arrays are none; AlignmentError where they disagree about their length.
    """
    if isinstance(value, Record):
        return value
    try:
        if isinstance(value, Sample):
            return Record.from_sample(value)
        if is_mapping(value):
            return _from_mapping(value, label, tokens_field, extra_fields)
        if is_sequence(value) or hasattr(value, "__array__"):
            _refuse_documents(value, label)
            return Record(value)
    except SampleError as error:
        raise type(error)(f"{label}: {error}") from error
    raise TypeError(
        f"{label} is {describe_kind(value)}, expected a Record, a Sample, a mapping of arrays or token ids: other "
        "payloads pass through batch(), and are read from .records"
    )


def _from_mapping(found: Mapping[str, Any], label: str, tokens_field: str, extra_fields: Iterable[str]) -> Record:
    names = TOKENS_FIELDS if tokens_field == "auto" else (tokens_field,)
    key = next((name for name in names if name in found), None)
    if key is None:
        for value in found.values():
            _refuse_documents(value, label)
        raise ValueError(
            f"{label} holds no tokens under {' or '.join(map(repr, names))}, only {sorted(found)}: pass tokens_field"
        )
    _refuse_documents(found[key], label)
    tokens = ids_array(found[key], "tokens")
    known = {"tokens", "loss_mask", "id", "padding_length", "positions", key}
    wanted = [name for name in dict.fromkeys((*_PER_TOKEN, *extra_fields)) if found.get(name) is not None]
    arrays = {name: found[name] for name in wanted if name not in known}
    refuse_unequal(found, key, len(tokens), (*PER_TOKEN, *arrays))
    positions, padding = read_documents(found, key, len(tokens))
    record = Record(
        tokens,
        read_mask(found, tokens, label),
        id=found.get("id"),
        padding_length=padding,
        **(arrays if positions is None else {"positions": positions, **arrays}),
    )
    seen = found.get("attention_mask")
    return record if seen is None else without_padding(record, seen, label)


def _refuse_documents(value: Any, label: str) -> None:  # noqa: ANN401 - anything
    """Refuse several documents where one sequence is expected."""
    if not is_sequence(value) or not len(value):
        return
    first = value[0]
    if isinstance(first, Record | Sample) or is_mapping(first) or is_sequence(first) or np.ndim(first):
        raise PackingError(
            f"{label} is a list of {len(value)} documents, expected one sequence of tokens: join them into rows with "
            "samplekit.pack(documents, max_length, pad_id=...)"
        )
