"""plan_packing: every item once, no row too full, first-fit-decreasing bin for bin, and never worse than it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplekit import PackingError, plan_packing

STRATEGIES = ("best", "ffd", "first_fit", "next_fit")
CASES = st.integers(1, 70).flatmap(
    lambda room: st.tuples(st.just(room), st.lists(st.integers(1, room), max_size=60), st.integers(1, 9))
)


def naive_first_fit_decreasing(lengths, room, slots):
    """The definition: longest first (ties in the order given), each into the first row it fits."""
    rows = []
    for item in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        for row in rows:
            if sum(lengths[other] for other in row) + lengths[item] <= room and len(row) < slots:
                row.append(item)
                break
        else:
            rows.append([item])
    return rows


def rows_of(plan):
    return [row.tolist() for row in plan]


@pytest.mark.parametrize("seed", range(10))
def test_ffd_is_first_fit_decreasing_bin_for_bin_on_a_thousand_cases(seed):
    rng = np.random.default_rng(seed)
    for _ in range(100):
        room = int(rng.integers(1, 80))
        lengths = rng.integers(1, room + 1, int(rng.integers(1, 50)))
        slots = int(rng.integers(1, 6)) if rng.random() < 0.3 else len(lengths)
        plan = plan_packing(lengths, room, strategy="ffd", max_items=slots)
        assert sorted(rows_of(plan)) == sorted(naive_first_fit_decreasing(lengths.tolist(), room, slots))


@given(CASES, st.sampled_from(STRATEGIES), st.one_of(st.none(), st.integers(0, 5)))
def test_every_item_stands_in_one_row_and_no_row_is_too_full(case, strategy, seed):
    room, lengths, slots = case
    plan = plan_packing(lengths, room, strategy=strategy, max_items=slots, seed=seed)
    rows = rows_of(plan)
    assert sorted(item for row in rows for item in row) == list(range(len(lengths)))
    assert all(row and len(row) <= slots and sum(lengths[item] for item in row) <= room for row in rows)
    assert len(rows) == plan.num_rows == len(plan) >= plan.lower_bound
    assert plan.num_tokens == sum(lengths)
    assert plan.utilization == (sum(lengths) / (len(rows) * room) if rows else 0.0)


@given(CASES)
def test_best_never_takes_more_rows_than_ffd(case):
    room, lengths, slots = case
    best = plan_packing(lengths, room, max_items=slots)
    assert best.num_rows <= plan_packing(lengths, room, strategy="ffd", max_items=slots).num_rows


def test_best_closes_rows_that_ffd_leaves_open():
    lengths = [6, 5, 5, 4, 4, 3, 3]  # ffd: {6, 4} {5, 5} {4, 3, 3}; a row of 10 holds all of it in 3
    assert plan_packing(lengths, 10).num_rows == 3
    lengths = [7, 6, 4, 3, 3, 2, 2, 3]  # {7, 3} {6, 4} {3, 3, 2, 2}
    assert plan_packing(lengths, 10).utilization == 1.0
    lengths = [44, 24, 24, 22, 21, 17, 8, 8, 6, 6] * 40
    best, ffd = (plan_packing(lengths, 60, strategy=name).num_rows for name in ("best", "ffd"))
    assert best < ffd


def test_the_worked_example():
    plan = plan_packing([700, 500, 450, 300, 150], 1024)
    assert {frozenset(row) for row in rows_of(plan)} == {frozenset({0, 3}), frozenset({1, 2}), frozenset({4})}
    assert f"{2100 / (5 * 1024):.1%} -> {plan.utilization:.1%}" == "41.0% -> 68.4%"


def test_next_fit_keeps_the_order_and_first_fit_looks_back():
    lengths = [6, 5, 4, 5, 1]
    assert rows_of(plan_packing(lengths, 10, strategy="next_fit")) == [[0], [1, 2], [3, 4]]
    assert rows_of(plan_packing(lengths, 10, strategy="first_fit")) == [[0, 2], [1, 3], [4]]


def test_a_seed_shuffles_the_rows_and_not_what_shares_them():
    lengths = np.random.default_rng(0).integers(1, 100, 500)
    plain, one, again, other = (plan_packing(lengths, 128, seed=seed) for seed in (None, 3, 3, 4))
    assert rows_of(one) == rows_of(again)
    assert rows_of(one) != rows_of(plain)
    assert rows_of(one) != rows_of(other)
    assert sorted(rows_of(one)) == sorted(rows_of(plain))


@given(CASES, st.sampled_from(STRATEGIES), st.data())
def test_items_of_different_groups_never_share_a_row(case, strategy, data):
    room, lengths, _ = case
    groups = data.draw(st.lists(st.sampled_from("abc"), min_size=len(lengths), max_size=len(lengths)))
    plan = plan_packing(lengths, room, strategy=strategy, groups=groups)
    assert all(len({groups[item] for item in row}) == 1 for row in rows_of(plan))
    assert sorted(plan.order.tolist()) == list(range(len(lengths)))


@given(CASES, st.integers(1, 70), st.sampled_from(["drop", "truncate", "truncate_left"]))
def test_tokens_in_are_tokens_out_and_tokens_reported(case, room, oversize):
    _, lengths, _ = case
    plan = plan_packing(lengths, room, oversize=oversize)
    assert sum(lengths) == plan.num_tokens + plan.num_dropped + plan.num_truncated
    longer = [length for length in lengths if length > room]
    if oversize == "drop":
        assert (plan.num_dropped, plan.num_dropped_items, plan.num_truncated) == (sum(longer), len(longer), 0)
    else:
        assert (plan.num_truncated, plan.num_truncated_items) == (sum(longer) - room * len(longer), len(longer))
        assert plan.num_dropped == 0


@pytest.mark.parametrize("room", [8, 9, 16, 17, 4097, 65_536, 70_001, 300_000, 5_000_000])
def test_rows_of_any_width_take_two_halves(room):
    """A width that is no power of two (packing-04), beyond 16 bits, beyond the bits of the completing passes."""
    assert rows_of(plan_packing([4, 4], 9)) == rows_of(plan_packing([4, 4], 8)) == [[0, 1]]
    half = room // 2
    assert rows_of(plan_packing([half, room, half], room)) == [[1], [0, 2]]


def test_one_token_items_fill_rows_exactly():
    plan = plan_packing([1] * 1000, 8)
    assert plan.num_rows == 125
    assert plan.utilization == 1.0


def test_nothing_gives_no_row():
    plan = plan_packing([], 8)
    assert (plan.num_rows, plan.utilization, plan.lower_bound) == (0, 0.0, 0)


def test_the_lower_bound_counts_what_cannot_share_a_row():
    assert plan_packing([5, 5, 5], 9).lower_bound == 3
    assert plan_packing([1, 1, 1], 9, max_items=1).lower_bound == 3
    assert plan_packing([4, 4, 4], 9).lower_bound == 2


@pytest.mark.parametrize(
    ("draw", "least"),
    [
        (lambda rng: rng.lognormal(np.log(600), 0.8, 100_000), 0.9999),
        (lambda rng: rng.lognormal(np.log(1500), 0.6, 100_000), 0.999),
        (lambda rng: (found := rng.normal(1500, 500, 110_000))[found >= 600][:100_000], 0.99),
    ],
    ids=["many short", "few long", "two or three a row"],
)
def test_best_fills_rows_of_common_lengths(draw, least):
    lengths = np.clip(draw(np.random.default_rng(0)).astype(int), 1, 4096)
    assert len(lengths) == 100_000
    assert plan_packing(lengths, 4096).utilization >= least


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (([5, 2], 4), {}, "sample 0 holds 5 tokens.*max_length=4"),
        (([2, 0], 4), {}, r"lengths\[1\] is 0"),
        (([2, -1], 4), {}, r"lengths\[1\] is -1"),
        (([2, True], 4), {}, r"lengths\[1\] is True"),
        (([2, 1.5], 4), {}, r"lengths\[1\] is 1\.5"),
        (([[2]], 4), {}, "one dimension"),
        (([2], 0), {}, "max_length is 0"),
        (([2], 4.0), {}, "max_length is 4.0"),
        (([2], True), {}, "max_length is True"),
        (([2], 4), {"strategy": "bfd"}, "strategy is 'bfd'"),
        (([2], 4), {"oversize": "split"}, "oversize is 'split'"),
        (([2], 4), {"max_items": 0}, "max_items is 0"),
        (([2, 2], 4), {"groups": ["a"]}, "groups holds 1 labels, lengths holds 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_named(arguments, options, words):
    with pytest.raises(PackingError, match=words):
        plan_packing(*arguments, **options)
