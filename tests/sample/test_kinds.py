"""What counts as a number in a setting."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from samplekit.sample.kinds import is_number, is_whole_number

WHOLE = [0, -3, 2**70, np.int64(2), np.uint8(2), np.int32(-1)]
FLOATS = [0.0, -1.5, 2.0, np.float32(0.5), np.float64(0.5), np.float16(1)]
NEITHER = [
    True,
    False,
    np.True_,
    None,
    "1",
    1j,
    [1],
    np.array(1),
    np.array([1]),
    torch.tensor(1),
    Decimal(1),
    Fraction(1),
]
NOT_FINITE = [math.nan, math.inf, -math.inf, np.float32("nan"), np.float64("inf"), 10**400]


@pytest.mark.parametrize("value", WHOLE)
def test_ints_of_python_and_numpy_are_whole_numbers_and_numbers(value):
    assert is_whole_number(value)
    assert is_number(value)


@pytest.mark.parametrize("value", FLOATS)
def test_floats_of_python_and_numpy_are_numbers_and_never_whole(value):
    assert is_number(value)
    assert not is_whole_number(value)


@pytest.mark.parametrize("value", NEITHER)
def test_bools_text_tensors_and_arrays_are_neither(value):
    assert not is_number(value)
    assert not is_whole_number(value)


@pytest.mark.parametrize("value", NOT_FINITE)
def test_what_is_not_finite_as_a_float_is_no_number(value):
    assert not is_number(value)
