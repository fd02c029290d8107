"""Ids and log-probabilities of sampled tokens, as records hold them -> arrays, or an error that names the value."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from samplekit.errors import SampleError
from samplekit.sample.arrays import FloatArray, IntArray, floats_array, freeze, ids_array
from samplekit.sample.kinds import LOGPROB_LIMIT, is_sequence

STAND_IN = -9999.0  # what OpenAI and vLLM write for a logprob that they do not know or that is -inf
_DIGITS = 19  # of 2**63 - 1


def sampled_ids(values: object, name: str, *, may_be_empty: bool = False) -> IntArray:
    """Read token ids, int64 (T,), read-only; decimal strings, as the service may send int64, become ints.

    Raises:
        SampleError: a value is no token id; the message names its index.
        AlignmentError: there is none and there must be one, or more than one dimension.
    """
    if may_be_empty and is_empty(values):
        return freeze(np.zeros(0, dtype=np.int64))
    return ids_array(_from_decimal(values, name), name)


def sampled_logprobs(values: object, name: str, *, start: int = 0, may_be_empty: bool = False) -> FloatArray:
    """Read log-probabilities in nats, float32 (T,), read-only.

    Args:
        values: shape (T,). Up to 0.001 above 0 is taken as a sampler's rounding, and kept as it is.
        name: what they are called in errors.
        start: how many values at the start are placeholders, which may be any finite number.
        may_be_empty: there may be none.

    Raises:
        SampleError: one is no finite number, a bool, above 0.001, or -9999 or less, which stands for one that the
            sampler does not tell; the message names its index.
        AlignmentError: there is none and there must be one, or more than one dimension.
    """
    if may_be_empty and is_empty(values):
        return freeze(np.zeros(0, dtype=np.float32))
    numbers = floats_array(values, name)
    _refuse_bools(values, numbers, name)
    wrong = np.flatnonzero((numbers[start:] > LOGPROB_LIMIT) | (numbers[start:] <= STAND_IN))
    if len(wrong):
        index = int(wrong[0]) + start
        advice = "expected at most 0: give log-probabilities in nats"
        if numbers[index] <= STAND_IN:
            advice = "which stands for an unknown one, expected the token's own: sample it again, or leave it out"
        raise SampleError(f"{name}[{index}] is {numbers[index]}, {advice}")
    return numbers


def is_empty(values: object) -> bool:
    """Tell whether a sequence or an array holds nothing."""
    shape = getattr(values, "shape", None)
    if isinstance(shape, tuple):
        return tuple(cast("Any", shape)) == (0,)
    return is_sequence(values) and not values


def _refuse_bools(values: object, numbers: FloatArray, name: str) -> None:
    """Refuse bools, which read as 1.0 and 0.0: they are a mask that took the place of logprobs."""
    given = cast("Any", values)
    dtype = str(getattr(given, "dtype", "object"))
    places = () if "float" in dtype else np.flatnonzero((numbers == 0) | (numbers == 1))
    for index in map(int, places):
        item: Any = given[index]
        if "bool" in dtype or "bool" in str(getattr(item, "dtype", "")) or isinstance(item, bool):
            raise SampleError(f"{name}[{index}] is a bool, expected a log-probability in nats: is it a mask?")


def _from_decimal(values: object, name: str) -> object:
    """Turn a sequence that holds decimal strings into ints; leave everything else as it is."""
    if not isinstance(values, list | tuple) or not any(isinstance(item, str) for item in values):  # pyright: ignore[reportUnknownVariableType]
        return values  # pyright: ignore[reportUnknownVariableType]
    return [_whole(item, f"{name}[{index}]") for index, item in enumerate(cast("list[Any]", values))]


def _whole(item: object, place: str) -> object:
    if not (isinstance(item, str) and item.isascii() and item.isdecimal()):
        return item
    if len(item) > _DIGITS:
        raise SampleError(
            f"{place} has {len(item)} digits, expected a token id from 0 to 2**63 - 1: look at its source"
        )
    return int(item)
