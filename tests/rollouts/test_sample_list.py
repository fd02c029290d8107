"""What is missing from a list of samples stays counted when lists are joined and samples are changed."""

import copy
import pickle
from functools import reduce
from operator import add

import numpy as np
import pytest
from rollout_doubles import group

import samplekit as sk


def lists():
    """One of two samples and a degenerate group of two; one of three samples and an overlong completion."""
    first = sk.build_grpo_samples([group([1.0, 0.0], id="a"), group([1.0, 1.0], id="b")])
    second = sk.build_grpo_samples(
        [group([1.0, 0.0, 0.5, 2.0], stops=["stop"] * 3 + ["length"], id="c")], overlong="mask"
    )
    assert (len(first), len(second)) == (2, 3)
    return first, second


def test_joined_lists_count_what_both_miss():
    first, second = lists()
    both = first + second
    assert isinstance(both, sk.SampleList)
    assert (len(both), both.dropped) == (5, {"degenerate": 2, "overlong": 1})
    assert list(both) == [*first, *second]
    assert (len(first), first.dropped) == (2, {"degenerate": 2})
    grown = first
    grown += second
    assert grown is first
    assert (len(grown), grown.dropped) == (5, {"degenerate": 2, "overlong": 1})


def test_plain_lists_join_on_either_side():
    first, second = lists()
    for both in (first + list(second), list(second) + first, reduce(add, [first, list(second)], [])):
        assert isinstance(both, sk.SampleList)
        assert (len(both), both.dropped) == (5, {"degenerate": 2})
    assert reduce(add, lists(), []).dropped == {"degenerate": 2, "overlong": 1}
    assert list(list(second) + first) == [*second, *first]


@pytest.mark.parametrize("other", [None, 3, (), {}])
def test_what_is_no_list_joins_nothing(other):
    first, _ = lists()
    with pytest.raises(TypeError):
        _ = first + other
    assert first.dropped == {"degenerate": 2}


@pytest.mark.parametrize("form", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_count_the_same(form):
    first, _ = lists()
    assert form(first) == first
    assert form(first).dropped == {"degenerate": 2}


@pytest.mark.parametrize("form", [list, iter, np.array])
def test_a_mapped_list_is_as_long_and_misses_the_same(form):
    first, _ = lists()
    rows = [[-1.0] * sample.length for sample in first]
    found = first.map(sk.Sample.with_reference_logprobs, form(rows))
    assert found.dropped == {"degenerate": 2}
    assert [item.loss_fn_inputs["reference_logprobs"].data.tolist() for item in found] == [[0.0, -1.0, -1.0]] * 2
    assert [item.info for item in found] == [item.info for item in first]
    assert first.map(lambda sample: sample) == first


def test_a_map_that_is_none_is_refused():
    first, _ = lists()
    with pytest.raises(sk.AlignmentError, match=r"columns\[1\] holds 1 values, expected one for each of 2 samples"):
        first.map(lambda sample, *_: sample, [1, 2], [1])
    with pytest.raises(sk.SampleError, match=r"fn gives None of samples\[0\], expected a Sample"):
        first.map(lambda sample: None)
    with pytest.raises(sk.SampleError, match=r"columns\[0\] is 3"):
        first.map(lambda sample, _: sample, 3)
