"""Batches: every sample once an epoch, in an order the seed decides, even in tokens, within the model's limits."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import samplekit as sk
from samplekit.client.batches import make_batches
from samplekit.wire.offers import Limits

LIMITS = Limits(64, 50)


def batches(samples, limits=LIMITS, *, batch_size=None, max_tokens=None, epochs=1, seed=0):
    made = make_batches(samples, limits, batch_size=batch_size, max_tokens=max_tokens, epochs=epochs, seed=seed)
    return list(made)


def some(lengths):
    return [sk.build_sample([index] * (length + 1), [1] * (length + 1)) for index, length in enumerate(lengths)]


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=60),
    st.one_of(st.none(), st.integers(1, 64)),
    st.one_of(st.none(), st.integers(50, 200)),
    st.integers(1, 3),
    st.integers(0, 5),
)
def test_every_sample_comes_once_an_epoch_within_all_limits(lengths, batch_size, max_tokens, epochs, seed):
    samples = some(lengths)
    made = batches(samples, batch_size=batch_size, max_tokens=max_tokens, epochs=epochs, seed=seed)
    for epoch in range(epochs):
        ids = Counter(id(item) for batch in made if batch.epoch == epoch for item in batch)
        assert ids == Counter(map(id, samples))
    for batch in made:
        assert 0 < len(batch) <= (batch_size or 32)
        assert batch.num_trained == sum(item.num_trained for item in batch)
        assert batch.num_tokens == sum(item.length for item in batch) <= (max_tokens or 10**9)
    again = batches(samples, batch_size=batch_size, max_tokens=max_tokens, epochs=epochs, seed=seed)
    assert [list(map(id, batch)) for batch in made] == [list(map(id, batch)) for batch in again]


def test_epochs_and_seeds_differ_in_order():
    samples = some([3] * 20)
    orders = [
        tuple(
            item.tokens[0] for batch in batches(samples, seed=seed, epochs=2) if batch.epoch == epoch for item in batch
        )
        for seed in (0, 1)
        for epoch in (0, 1)
    ]
    assert len(set(orders)) == 4


@pytest.fixture(scope="module")
def heavy_tailed():
    """640 samples, each of another length, a few of them a hundred times as long as most."""
    lengths = np.unique(np.random.default_rng(1).lognormal(5.5, 1.2, size=2000).astype(int).clip(8, 4096))
    return some(np.random.default_rng(2).permutation(lengths)[:640].tolist())


@pytest.mark.parametrize(("max_tokens", "batch_size"), [(None, 32), (None, 31), (8192, 32)])
def test_batches_are_even_in_tokens(heavy_tailed, max_tokens, batch_size):
    made = batches(heavy_tailed, None, batch_size=batch_size, max_tokens=max_tokens, epochs=2)
    for epoch in (0, 1):
        tokens = [batch.num_tokens for batch in made if batch.epoch == epoch]
        assert max(tokens) <= 1.02 * min(tokens)
        assert max_tokens is None or max(tokens) <= max_tokens
    if max_tokens is None:
        assert {len(batch) for batch in made} <= {batch_size - 1, batch_size}


def test_evening_out_leaves_to_chance_which_samples_meet(heavy_tailed):
    """Were batches made from lengths alone, the longest sample would meet the same ones in every epoch."""
    longest = max(heavy_tailed, key=lambda sample: sample.length)
    met = [{id(item) for item in batch} for batch in batches(heavy_tailed, None, epochs=9) if longest in batch]
    assert len(met) == 9
    shared = [len(one & other) - 1 for n, one in enumerate(met) for other in met[:n]]
    assert np.mean(shared) < 0.3 * 31


def test_batches_of_one_sample_and_a_lone_batch_are_left_as_they_are():
    samples = some([1, 50, 3])
    assert sorted(batch.num_tokens for batch in batches(samples, batch_size=1)) == [1, 3, 50]
    assert [batch.num_tokens for batch in batches(samples)] == [54]


def test_the_last_batch_is_not_a_rest():
    assert sorted(map(len, batches(some([3] * 33), batch_size=32))) == [16, 17]


def test_a_batch_is_a_list_that_counts():
    (batch,) = batches(some([3, 4]))
    assert isinstance(batch, list)
    assert batch.num_trained == 7


def test_the_models_batch_size_bounds_the_default():
    assert [len(batch) for batch in batches(some([3] * 8), Limits(4, 50))] == [4, 4]
    assert len(batches(some([3] * 33), None)) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 65}, "at most 64"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 9}, r"samples\[1\] has 10 positions, expected at most 9"),
        ({"epochs": 0}, "epochs"),
        ({"epochs": True}, "epochs is True"),
        ({"seed": "a"}, "seed is 'a'"),
        ({"limits": Limits(64, 9)}, r"samples\[1\].*max_seq_length"),
    ],
)
def test_settings_out_of_range_are_refused_at_once(options, words):
    limits = options.pop("limits", LIMITS)
    settings = {"batch_size": None, "max_tokens": None, "epochs": 1, "seed": 0, **options}
    with pytest.raises(sk.SampleError, match=words):
        make_batches(some([3, 10]), limits, **settings)


def test_numbers_of_numpy_are_numbers_and_a_generator_is_read_once():
    assert len(batches(some([3] * 4), batch_size=np.int64(2), epochs=np.int32(1))) == 2
    assert [len(batch) for batch in batches(iter(some([3] * 4)), batch_size=2)] == [2, 2]


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (some([3])[0], "samples is a Sample.*pass a list"),
        (5, "samples is 5"),
        ([some([3])[0], 7], r"samples\[1\] is 7"),
    ],
)
def test_what_is_no_list_of_samples_is_refused(samples, words):
    with pytest.raises(sk.SampleError, match=words):
        batches(samples)


def test_no_samples_are_refused():
    with pytest.raises(sk.SampleError, match="empty"):
        batches([])


def test_a_session_gives_batches_on_both_sides(side):
    session = side.session()
    assert [len(batch) for batch in session.batches(some([3] * 5), batch_size=2)] == [1, 2, 2]


def test_a_generator_is_taken_and_what_holds_no_samples_is_refused():
    samples = some([3] * 5)
    assert [len(batch) for batch in batches(item for item in samples)] == [5]
    for bad in ([None], (item for item in [None]), [samples]):
        with pytest.raises(sk.SampleError, match=r"samples\[0\] is .*, expected a Sample"):
            batches(bad)
