"""What callers hold besides lists of ints: arrays, tensors, labels of every kind; and numbers beyond all measure."""

import numpy as np
import pytest
import torch

from samplekit import PackingError, Record, StreamingPacker, balance, pack, plan_packing


def rows_of(plan):
    return [row.tolist() for row in plan]


@pytest.mark.parametrize(
    "labels",
    [
        [0, 1, 0, 1],
        (0, 1, 0, 1),
        np.array([0, 1, 0, 1]),
        np.array([0, 1, 0, 1], dtype=np.uint8),
        torch.tensor([0, 1, 0, 1]),
        ["b", "a", "b", "a"],
        np.array(["b", "a", "b", "a"]),
        [np.int64(7), np.int64(-7), np.int64(7), np.int64(-7)],
        [0, "0", 0, "0"],
        (label for label in "baba"),
    ],
    ids=lambda labels: f"{type(labels).__name__}",
)
def test_equal_labels_share_a_row_whatever_holds_them(labels):
    assert rows_of(plan_packing([1] * 4, 9, groups=labels)) == [[0, 2], [1, 3]]


def test_labels_part_only_what_is_kept():
    plan = plan_packing([1, 9, 1, 1], 3, groups=["a", "b", "c", "a"], oversize="drop")
    assert rows_of(plan) == [[0, 3], [2]]
    assert rows_of(plan_packing([9], 3, groups=["a"], oversize="drop")) == []


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 0, float("nan")], r"groups\[2\] is nan"),
        (np.array([0.0, np.nan, np.nan]), r"groups\[0\] is 0\.0"),
        ([0, None, 0], r"groups\[1\] is None"),
        ([0, True, 0], r"groups\[1\] is True"),
        ([[1], [1], [1]], r"groups\[0\] is \[1\]"),
        (torch.tensor([[0], [0], [0]]), r"groups\[0\] is \[0\]"),
        ([2**63, 0, 0], r"groups\[0\] is 9223372036854775808"),
        (5, "groups is 5, expected one label for each item"),
        ("aab", "groups is a str, expected one label for each item"),
        ({0, 1, 2}, "groups is a set, which has no order"),
        ([0, 0], "groups holds 2 labels, lengths holds 3"),
        ((label for label in "ab"), "groups holds 2 labels, lengths holds 3"),
    ],
)
def test_what_is_no_label_is_named(labels, words):
    with pytest.raises(PackingError, match=words):
        plan_packing([1] * 3, 9, groups=labels)


@pytest.mark.parametrize(
    "lengths", [np.array([4, 4], dtype=np.uint16), torch.tensor([4, 4]), range(4, 5), (4,), [np.int32(4)]]
)
def test_lengths_come_in_what_holds_whole_numbers(lengths):
    assert plan_packing(lengths, 8).num_tokens == 4 * len(lengths)


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        ([[1], [1, 2]], "lengths holds nested values.*one length for each item"),
        ([torch.tensor([1, 2]), torch.tensor([1])], "lengths"),
        (5, r"lengths has shape \(\)"),
        ([2**31], r"lengths\[0\] is 2147483648.*at most 2,147,483,647"),
        ([1, 2**62, 2**62], r"lengths\[1\] is 4611686018427387904"),
        ([1, 2**63], r"lengths\[1\] is 9223372036854775808.*at most"),
        ([1, 2**80], r"lengths\[1\] is 1208925819614629174706176.*at most"),
        (np.array([2**64 - 1], dtype=np.uint64), r"lengths\[0\] is 18446744073709551615.*at most"),
        ([1, -(2**80)], r"lengths\[1\] is -1208925819614629174706176"),
        ([1, "2"], r"lengths\[1\] is '2'"),
    ],
)
def test_what_is_no_length_is_named(lengths, words):
    with pytest.raises(PackingError, match=words):
        plan_packing(lengths, 2**31 - 1)


def test_the_longest_items_are_counted_exactly():
    plan = plan_packing([2**31 - 1] * 3 + [1], 2**31 - 1)
    assert (plan.num_rows, plan.num_tokens) == (4, 3 * (2**31 - 1) + 1)
    dropped = plan_packing([2**31 - 1] * 3, 2**31 - 2, oversize="drop")
    assert (dropped.num_dropped, dropped.utilization) == (3 * (2**31 - 1), 0.0)


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "4", None, 2**31, 2**63, pytest.param(10**5000, id="huge")])
def test_what_is_no_length_of_a_row_is_named(value):
    with pytest.raises(PackingError, match=r"max_length is .*expected a whole number from 1 to 2,147,483,647"):
        plan_packing([1], value)


@pytest.mark.parametrize("value", [2**27 + 1, 4_000_000_000])
def test_rows_that_would_fill_the_memory_are_not_made(value):
    for make in (lambda: pack([[1, 2]], value, pad_id=0), lambda: StreamingPacker(value, pad_id=0)):
        with pytest.raises(PackingError, match=f"max_length is {value}, expected a whole number from 1 to 134,217,728"):
            make()


@pytest.mark.parametrize("value", [-1, 1.5, "1", True, [1]])
def test_what_is_no_seed_is_named(value):
    for make in (lambda: plan_packing([1], 9, seed=value), lambda: pack([[1, 2]], 9, pad_id=0, seed=value)):
        with pytest.raises(PackingError, match=r"seed is .*expected a whole number of 0 or more"):
            make()


@pytest.mark.parametrize("value", [2**63, 99999999999999999999])
def test_a_pad_id_that_no_id_can_be_is_named(value):
    with pytest.raises(PackingError, match=f"pad_id is {value}"):
        pack([Record([1, 2])], 4, pad_id=value)


@pytest.mark.parametrize(
    ("workloads", "num_bins", "words"),
    [
        ([[1], [1, 2]], 1, "workloads holds nested values"),
        (3, 1, r"workloads has shape \(\)"),
        ([1], 10**12, "num_bins is 1000000000000, expected a whole number from 1 to 65,536"),
    ],
)
def test_what_cannot_be_balanced_is_named(workloads, num_bins, words):
    with pytest.raises(PackingError, match=words):
        balance(workloads, num_bins)


def test_workloads_come_as_tensors_with_gradients_too():
    assert balance(torch.tensor([3.0, 1.0], requires_grad=True), 2) == [[0], [1]]
