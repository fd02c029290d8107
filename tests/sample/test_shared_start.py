"""Where two sequences of ids part."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplekit.sample.shared_start import shared_start

IDS = st.lists(st.integers(0, 2), max_size=6)


@pytest.mark.parametrize(
    ("left", "right", "shared"),
    [([1, 2, 3], [1, 9, 3], 1), ([1, 2], [1, 2, 3], 2), ([1, 2], [1, 2], 2), ([5], [6], 0), ([], [1], 0), ([], [], 0)],
)
def test_by_hand(left, right, shared):
    ids = [np.array(values, dtype=np.int64) for values in (left, right)]
    assert shared_start(*ids) == shared_start(*ids[::-1]) == shared


@given(IDS, IDS)
def test_what_is_shared_is_equal_and_what_follows_is_not(left, right):
    found = shared_start(np.array(left, dtype=np.int64), np.array(right, dtype=np.int64))
    assert left[:found] == right[:found]
    assert left[found : found + 1] != right[found : found + 1] or left == right
