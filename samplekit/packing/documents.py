"""Where the documents of a row start: told by positions that start again, or by a number for each token."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from samplekit.errors import SampleError
from samplekit.packing.numbers_of_tokens import whole_numbers
from samplekit.sample.arrays import AnyArray, IntArray, freeze


def running_positions(lengths: npt.ArrayLike) -> IntArray:
    """Count from 0 in every segment, int64 (sum of lengths,)."""
    sizes = np.asarray(lengths, dtype=np.int64)
    counted: IntArray = np.arange(int(sizes.sum()))
    counted -= np.repeat(np.cumsum(sizes) - sizes, sizes)
    return counted


def starts_of(positions: IntArray) -> npt.NDArray[np.bool_]:
    """Say where a segment starts, (N,): at the first token, and where positions are 0 or fall."""
    starts: npt.NDArray[np.bool_] = positions == 0
    starts[1:] |= np.diff(positions) < 0
    starts[0] = True
    return starts


def lengths_of(positions: IntArray) -> IntArray:
    """Count the tokens of every segment, int64 (S,)."""
    return np.diff(np.append(np.flatnonzero(starts_of(positions)), len(positions)))


def numbered_lengths(numbers: IntArray) -> IntArray:
    """Count the tokens of every run of one number, int64 (S,)."""
    changes = np.flatnonzero(np.diff(numbers)) + 1
    return np.diff(np.concatenate([[0], changes, [len(numbers)]]))


def positions_read(values: object) -> IntArray:
    """Read where tokens stand in their documents.

    Raises:
        SampleError: one is no whole number of 0 or more; the message names its index.
    """
    found = whole_numbers(values, "positions")
    wrong: AnyArray = np.ones(len(found), np.bool_) if found.dtype.kind != "i" else found < 0
    if found.dtype.kind == "f" and (found % 1 != 0).any():
        wrong = found % 1 != 0
    if wrong.any():
        place = int(np.argmax(wrong))
        raise SampleError(
            f"positions holds {found[place]} at index {place}, expected whole numbers of 0 or more: count the tokens "
            "of each document from 0"
        )
    return found


def positions_of_numbers(numbers: AnyArray, name: str) -> IntArray:
    """Count the tokens of every document from 0, which one number in all of its tokens tells, (W,).

    Raises:
        SampleError: a number is none, or 0, which is padding, stands between documents.
    """
    if numbers.dtype.kind != "i" or numbers.min() < 0:
        wrong = numbers < 0 if numbers.dtype.kind == "i" else numbers % 1 != 0
        place = int(np.argmax(wrong))
        raise SampleError(
            f"{name} holds {numbers[place]} at index {place}, expected whole numbers of 0 or more: number the "
            "documents of a row from 1, and its padding 0"
        )
    filled = np.flatnonzero(numbers)
    inside = np.flatnonzero(numbers[filled[0] : filled[-1]] == 0) + filled[0] if len(filled) else filled
    if len(inside):
        raise SampleError(
            f"{name} holds 0, which is padding, at index {inside[0]}, between documents: padding stands at the ends of "
            "a row only"
        )
    return freeze(running_positions(numbered_lengths(numbers)))


def padding_of_numbers(numbers: IntArray) -> int:
    """Count the zeros at the end, which are padding.

    Raises:
        SampleError: there is nothing else.
    """
    filled = np.flatnonzero(numbers)
    if not len(filled):
        raise SampleError(
            "document_ids holds 0 only, which is padding, expected a document: number the documents of a row from 1"
        )
    return len(numbers) - int(filled[-1]) - 1


def refuse_other_starts(positions: IntArray, others: IntArray, name: str, other: str) -> None:
    """Refuse a row whose positions run on where a document starts by another array of it.

    Raises:
        SampleError: they do; the message names the index.
    """
    missed = np.flatnonzero(starts_of(others) & ~starts_of(positions))
    if len(missed):
        raise SampleError(
            f"{name} runs on at index {missed[0]}, where {other} starts a document: let positions start again at 0 "
            "there, or leave one of the two out"
        )


def agreeing_positions(arrays: Mapping[str, AnyArray], filled: int) -> IntArray:
    """Give positions that start again wherever the document's number changes: those given, or counted.

    Args:
        arrays: of a row, with ``document_ids``.
        filled: how many tokens stand before its padding.

    Raises:
        SampleError: document_ids are none, or positions run on where one starts.
    """
    counted = positions_of_numbers(arrays["document_ids"], "document_ids")
    given = arrays.get("positions")
    if given is None:
        return counted
    refuse_other_starts(given[:filled], counted[:filled], "positions", "document_ids")
    return given


def refuse_unread_starts(arrays: Mapping[str, AnyArray], filled: int) -> None:
    """Refuse other spellings of documents in a record that does not hold them apart: nothing reads them there.

    Args:
        arrays: of a record, by name.
        filled: how many tokens stand before its padding.

    Raises:
        SampleError: ``position_ids`` start again, or an ``attention_mask`` numbers documents, where positions run on.
    """
    positions = arrays.get("positions", np.arange(filled))[:filled]
    for name in ("position_ids", "attention_mask"):
        values = arrays.get(name)
        if values is None or not filled or (name == "attention_mask" and values.max() <= 1):
            continue
        told = positions_read(values) if name == "position_ids" else positions_of_numbers(values, name)
        refuse_other_starts(positions, told[:filled], "positions", name)
