"""balance: work spread over ranks or micro-batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplekit import PackingError, balance

LOADS = st.lists(st.integers(0, 100), max_size=40)


def test_the_heaviest_comes_first_and_goes_to_the_lightest_bin():
    # 9 | 5; 4 -> 5 + 4; 3 -> 9 + 3 (a tie goes to the first bin); 3 -> 9 + 3
    assert balance([9, 5, 4, 3, 3], 2) == [[0, 3], [1, 2, 4]]


@given(LOADS, st.integers(1, 6))
def test_every_item_stands_in_one_bin_and_no_bin_is_far_above_the_mean(loads, num_bins):
    bins = balance(loads, num_bins)
    assert len(bins) == num_bins
    assert sorted(item for found in bins for item in found) == list(range(len(loads)))
    heaviest = max(sum(loads[item] for item in found) for found in bins)
    assert heaviest <= sum(loads) / num_bins + max(loads, default=0)


@given(LOADS, st.integers(1, 6))
def test_bins_of_equal_size_differ_by_one_item_at_most(loads, num_bins):
    bins = balance(loads, num_bins, equal_size=True)
    assert sorted(item for found in bins for item in found) == list(range(len(loads)))
    sizes = sorted(len(found) for found in bins)
    assert sizes[-1] - sizes[0] <= 1
    assert sizes.count(len(loads) // num_bins) >= num_bins - len(loads) % num_bins


def test_equal_sizes_part_the_heavy_ones():
    loads = [8, 8, 1, 1, 1, 1]
    assert [sum(loads[item] for item in found) for found in balance(loads, 2, equal_size=True)] == [10, 10]


@pytest.mark.parametrize(
    ("loads", "num_bins", "words"),
    [
        ([1, -1], 2, r"workloads\[1\] is -1"),
        ([1, float("nan")], 2, r"workloads\[1\] is nan"),
        ([float("inf")], 2, r"workloads\[0\] is inf"),
        ([[1]], 2, "one dimension"),
        (["1"], 2, "numbers"),
        ([1], 0, "num_bins is 0"),
        ([1], 1.0, "num_bins is 1.0"),
    ],
)
def test_what_is_no_workload_is_named(loads, num_bins, words):
    with pytest.raises(PackingError, match=words):
        balance(loads, num_bins)
