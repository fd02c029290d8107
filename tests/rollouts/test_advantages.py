"""Advantages: the loop anyone would write agrees, whatever the order, the size and the number of the groups."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import samplekit as sk

SETTINGS = [
    {"scale": scale, "baseline": baseline, "ddof": ddof}
    for scale in ("std", "none")
    for baseline in ("mean", "leave_one_out")
    for ddof in (0, 1)
]


def plain_advantages(rewards, groups, *, scale, baseline, ddof, floor=1e-6):
    """The same, member by member, with exact means."""
    found = []
    for reward, group in zip(rewards, groups, strict=True):
        mine = [Fraction(other) for other, name in zip(rewards, groups, strict=True) if name == group]
        if max(mine) == min(mine):
            found.append(0.0)
            continue
        mean = sum(mine) / len(mine)
        others = (sum(mine) - Fraction(reward)) / (len(mine) - 1)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in mine) / (len(mine) - ddof))
        divisor = max(deviation, floor) if scale == "std" else 1.0
        found.append(float(Fraction(reward) - (mean if baseline == "mean" else others)) / divisor)
    return found


@st.composite
def interleaved(draw, values):
    """Rewards of one to five groups of two to nine, in any order."""
    names = draw(st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True))
    groups = [name for name in names for _ in range(draw(st.integers(2, 9)))]
    rewards = draw(st.lists(values, min_size=len(groups), max_size=len(groups)))
    return rewards, draw(st.permutations(groups))


tenths = st.integers(-50, 50).map(lambda number: number / 10)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@given(data=interleaved(tenths))
def test_the_plain_loop_agrees(settings, data):
    rewards, groups = data
    found = sk.group_advantages(rewards, groups, **settings)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, plain_advantages(rewards, groups, **settings), rtol=1e-9, atol=1e-12)


@given(data=interleaved(st.integers(0, 3)), offset=st.sampled_from([0, 1000, 2**30, -(2**40)]))
def test_a_reward_that_all_share_takes_no_digit_away(data, offset):
    rewards, groups = data
    plain = plain_advantages(rewards, groups, scale="std", baseline="mean", ddof=1)
    moved = sk.group_advantages([reward + offset for reward in rewards], groups)
    np.testing.assert_allclose(moved, plain, rtol=1e-9, atol=1e-12)


@given(data=interleaved(tenths))
def test_every_group_sums_to_zero(data):
    rewards, groups = data
    found = sk.group_advantages(rewards, groups)
    for name in set(groups):
        total = sum(value for value, group in zip(found, groups, strict=True) if group == name)
        assert abs(total) < 1e-12 * len(groups)


@given(data=interleaved(tenths), seed=st.integers(0, 99))
def test_order_changes_nothing_but_the_order(data, seed):
    rewards, groups = data
    order = np.random.default_rng(seed).permutation(len(rewards))
    found = sk.group_advantages(rewards, groups)
    moved = sk.group_advantages([rewards[index] for index in order], [groups[index] for index in order])
    np.testing.assert_allclose(moved, found[order], rtol=1e-12, atol=1e-14)


ROUNDED = {
    "0.95 in float32": [np.float32(0.95)] * 7,
    "0.95 as a double": [0.95] * 7,
    "0.95 through float32": [float(np.float32(0.95))] * 7,
    "a sum in two orders": [0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1, 0.6],
    "the next float32": [float(np.float32(0.95)), float(np.nextafter(np.float32(0.95), np.float32(1)))],
    "the next double": [0.7, np.nextafter(0.7, 1)],
    "the fourth next double": [0.7, 0.7 + 4 * 2.0**-53],
    "the fourth next float32": [float(np.float32(0.95)), float(np.float32(0.95)) + 4 * 2.0**-24],
    "a negative one": [-(0.1 + 0.2), -0.3],
    "a tensor": torch.full((7,), 0.95),
    "half precision": torch.full((5,), 0.1, dtype=torch.bfloat16),
    "float32 beside doubles": [0.95] * 3 + [float(np.float32(0.95))] * 4,
    "one float32 among doubles": [0.7, 0.7, float(np.float32(0.7)), 0.7],
    "a float32 sum beside doubles": [float(np.float32(0.1) + np.float32(0.2)), 0.1 + 0.2, 0.3],
    "zeros of both signs": [0.0, -0.0],
    "a sum that is nearly 0": [0.0, 0.1 + 0.2 - 0.3],
    "the same of three signs": [0.3 - 0.2 - 0.1, 0.0, 0.1 + 0.2 - 0.3],
    "the same in float32": np.array([0, np.float32(0.7) + np.float32(0.1) - np.float32(0.8)], np.float32),
    "what no square holds": [0.0, 1e-200],
    "denormal ones": [1e-310, 2e-310, 5e-310],
}


@pytest.mark.parametrize("rewards", ROUNDED.values(), ids=ROUNDED)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_rewards_that_are_equal_up_to_rounding_give_exactly_zero(rewards, settings):
    found = sk.group_advantages(rewards, **settings)
    assert found.tolist() == [0.0] * len(rewards)
    assert not np.signbit(found).any()


@pytest.mark.parametrize(
    "rewards",
    [
        [2**53 - 1, 2**53],
        [float(np.float32(0.95)), float(np.float32(0.95)) + 5 * 2.0**-24],
        [0.7, 0.7 + 5 * 2.0**-53],
        [0.7, 0.7001],
        [0.7, 0.700001],
        [1e8, 1e8 + 1],
        [2**24 - 1, 2**24],
        [1.0, 1.000001],
        [0.0, 1e-15],
        [1e-9, 2e-9],
        [0.0, float(np.float32(1e-6))],
        [1.0, 1.0 + 10 * 2.0**-23],
        [0.1, 0.1 + 1e-12],
        [1.0, 1.0 + 1e-12],
        [float(np.float32(0.95)), float(np.float32(0.95)) + 10 * 2.0**-24],
    ],
    ids=str,
)
def test_rewards_that_differ_by_more_are_told_apart(rewards):
    low, high = sk.group_advantages(rewards, scale="none")
    assert low < 0 < high
    assert high == -low == pytest.approx((rewards[1] - rewards[0]) / 2, rel=1e-9)


def test_the_floor_bounds_what_a_tiny_spread_is_blown_up_to():
    assert sk.group_advantages([0.0, 2e-9]).tolist() == pytest.approx([-1e-3, 1e-3])
    assert sk.group_advantages([0.0, 2e-9], floor=0).tolist() == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5)])
    assert sk.group_advantages([0.0, 2e-15], floor=0).tolist() == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5)])
    assert sk.group_advantages([0.0, 1e-200], floor=0).tolist() == [0, 0]
    assert sk.group_advantages([0.0, 2.0], floor=10).tolist() == pytest.approx([-0.1, 0.1])


KINDS = {
    "list": list, "tuple": tuple, "float32": lambda v: np.array(v, np.float32), "int": lambda v: np.array(v, np.int32),
    "bool": lambda v: np.array(v, bool), "tensor": torch.tensor, "bfloat16": lambda v: torch.tensor(v, dtype=torch.bfloat16),
    "0-d tensors": lambda v: [torch.tensor(x) for x in v], "scalars": lambda v: [np.float64(x) for x in v],
    "objects": lambda v: np.array(v, object), "iterator": iter,
}  # fmt: skip


@pytest.mark.parametrize("rewards", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("groups", [["p", "r"] * 2, ("p", "r") * 2, np.array([7, 3, 7, 3]), torch.tensor([7, 3, 7, 3]),
    [np.int64(1), "1"] * 2, [1, "1", 1, "1"], np.array(["p", "r"] * 2)], ids=str)  # fmt: skip
def test_rewards_and_ids_come_in_any_form(rewards, groups):
    found = sk.group_advantages(rewards([1, 0, 0, 1]), groups, scale="none")
    assert found.tolist() == [0.5, -0.5, -0.5, 0.5]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "1", "x", [1.0], 1e39, 10**400])
@pytest.mark.parametrize("index", [0, 3])
@pytest.mark.parametrize("cast", [list, tuple, np.array])
def test_a_reward_that_is_none_is_named_by_group_and_index(value, index, cast):
    rewards = [0.0, 1.0, 0.0, 1.0]
    rewards[index] = value
    if cast is np.array:
        rewards = np.array(rewards, dtype=np.float64 if isinstance(value, float) else object)
    with pytest.raises(sk.SampleError, match=rf"rewards\[{index}\] \(group '{'abab'[index]}'\) is"):
        sk.group_advantages(rewards, list("abab"))


@pytest.mark.parametrize("index", [0, 2, 6])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_single_completion_is_named_by_group_and_index(index, settings):
    groups = list("ababab")
    groups.insert(index, "alone")
    with pytest.raises(sk.SampleError, match=rf"rewards\[{index}\] \(group 'alone'\) is the only"):
        sk.group_advantages([float(number) for number in range(7)], groups, **settings)
    with pytest.raises(sk.SampleError, match=r"rewards\[0\] is the only"):
        sk.group_advantages([1.0], **settings)


@pytest.mark.parametrize(
    ("rewards", "groups", "words"),
    [
        ([1, 0], ["a"], r"groups holds 1 ids, rewards 2 values.*rewards\[1\]"),
        ([1, 0], ["a", "a", "b"], r"groups holds 3 ids, rewards 2 values.*groups\[2\] \(group 'b'\)"),
        ([], [], "rewards is empty"),
        ([1, 0], [], "groups holds 0 ids"),
    ],
)
def test_unequal_lengths_are_refused(rewards, groups, words):
    with pytest.raises(sk.AlignmentError, match=words):
        sk.group_advantages(rewards, groups)


@pytest.mark.parametrize("rewards", [np.ones((2, 3)), torch.ones(1, 2), np.float64(1.0), torch.tensor(1.0)], ids=str)
def test_rewards_of_another_shape_are_refused(rewards):
    with pytest.raises(sk.AlignmentError, match=r"rewards has shape \("):
        sk.group_advantages(rewards)


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (["a", None], r"groups\[1\] is None"), ([math.nan, math.nan], r"groups\[0\] is nan"), ([["a"], ["a"]], r"\[0\] is \['a'\]"),
        ([1, True], r"groups\[1\] is True"), ([1, 1.0], r"groups\[1\] is 1.0"), (np.array([True, True]), r"groups\[0\] is True"),
        (np.array([1.0, 1.0]), r"groups\[0\] is 1.0"), ([(1, "a")] * 2, r"groups\[0\] is \(1, 'a'\)"),
        ("ab", "groups is a str"), (5, "groups is 5"), ({"a": 1}, "groups is a dict"), ({"a", "b"}, "groups is a set"),
        (np.ma.array([1, 1], mask=[0, 1]), "groups holds a masked value at index 1"),
        ([2**63 - 1, 2**63], r"groups\[1\] is 9223372036854775808"), ([2**70] * 2, r"groups\[0\] is 1180591620717411303424"),
        (np.array([1, 2**63], np.uint64), r"groups\[1\] is 9223372036854775808"), ([-(2**63) - 1] * 2, r"groups\[0\] is -9223"),
        (["a", "a\ud800"], r"groups\[1\] is 'a\\ud800'.*UTF-8"), (["\ud83d", "\ude00"], r"groups\[0\] is '\\ud83d'.*UTF-8"),
    ],
)  # fmt: skip
def test_ids_that_are_none_are_refused(groups, words):
    with pytest.raises(sk.SampleError, match=words):
        sk.group_advantages([1.0, 0.0], groups)


@pytest.mark.parametrize(
    ("name", "value"),
    [("scale", "var"), ("scale", None), ("scale", True), ("baseline", "median"), ("baseline", None), ("ddof", 2),
     ("ddof", True), ("ddof", None), ("floor", -1), ("floor", math.nan), ("floor", math.inf), ("floor", None),
     ("scale", [])],
)  # fmt: skip
def test_settings_that_are_none_are_refused_by_name(name, value):
    with pytest.raises(sk.SampleError, match=rf"^{name} is "):
        sk.group_advantages([1.0, 0.0], **{name: value})


def test_a_hundred_thousand_groups_agree_with_one_group_at_a_time():
    generator = np.random.default_rng(0)
    rewards = generator.choice([0.0, 0.25, 1.0], (100_000, 8))
    groups = np.repeat(np.arange(100_000), 8)
    order = generator.permutation(rewards.size)
    found = np.empty(rewards.size)
    found[order] = sk.group_advantages(rewards.ravel()[order], groups[order])
    centered = rewards - rewards.mean(axis=1, keepdims=True)
    deviation = rewards.std(axis=1, ddof=1, keepdims=True)
    expected = np.where(deviation == 0, 0, centered / np.where(deviation == 0, 1, deviation))
    np.testing.assert_allclose(found.reshape(-1, 8), expected, rtol=1e-9, atol=1e-14)
    assert np.count_nonzero(found) < found.size
