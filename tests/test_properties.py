"""Properties of samples, over arrays of any length and content."""

import numpy as np
import pytest
from array_kinds import INT_KINDS
from hypothesis import assume, given
from hypothesis import strategies as st

from samplekit import Sample, SampleError, build_sample, check

lengths = st.integers(2, 40)
ids = st.integers(0, 2**40)
numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
logprobs = st.floats(-50, 0, width=32)
weights = st.sampled_from([0.0, 1.0, 0.5, -1.0, 3.0])


@st.composite
def full_arrays(draw):
    """Arrays that build_sample takes: at least one token is trained, none of the values is out of range."""
    length = draw(lengths)

    def values(of):
        return draw(st.lists(of, min_size=length, max_size=length))

    mask = values(weights)
    mask[draw(st.integers(1, length - 1))] = 1.0
    given_arrays = {"tokens": values(ids), "loss_mask": mask}
    for name, of in (("advantages", numbers), ("logprobs", logprobs), ("reference_logprobs", logprobs)):
        if draw(st.booleans()):
            given_arrays[name] = values(of)
    extra = {"more": values(numbers), "ids": values(ids)}
    return given_arrays | {"extra": {name: extra[name] for name in draw(st.sets(st.sampled_from(["more", "ids"])))}}


def cut(arrays, kept):
    """The same arrays, trimmed by hand."""
    shorter = {name: values[kept] for name, values in arrays.items() if name != "extra"}
    return shorter | {"extra": {name: values[kept] for name, values in arrays["extra"].items()}}


def build(arrays, **options):
    rest = {name: values for name, values in arrays.items() if name not in ("tokens", "loss_mask")}
    return build_sample(arrays["tokens"], arrays["loss_mask"], **rest, **options)


@given(full_arrays())
def test_lengths_always_agree(arrays):
    sample = build(arrays)
    expected = len(arrays["tokens"]) - 1
    assert sample.length == len(sample.model_input.tokens) == expected
    assert {len(tensor.data) for tensor in sample.loss_fn_inputs.values()} == {expected}
    assert len(sample.tokens) == len(sample.loss_mask) == expected + 1


@given(full_arrays())
def test_every_value_stays_with_its_token(arrays):
    sample = build(arrays)
    named = {"target_tokens": arrays["tokens"], "weights": arrays["loss_mask"]}
    named |= {name: arrays[name] for name in arrays if name not in ("tokens", "loss_mask", "extra")} | arrays["extra"]
    assert set(sample.loss_fn_inputs) == set(named)
    for name, tensor in sample.loss_fn_inputs.items():
        for position, value in enumerate(tensor.data):
            assert value == np.asarray(named[name][position + 1]).astype(tensor.data.dtype)
    assert sample.tokens.tolist() == arrays["tokens"]


@given(full_arrays(), st.integers(2, 45), st.sampled_from(["left", "right"]))
def test_build_then_trim_equals_trim_then_build(arrays, max_length, truncation):
    length = len(arrays["tokens"])
    kept = slice(0, max_length) if truncation == "right" else slice(max(0, length - max_length), length)
    trains = any(arrays["loss_mask"][kept][1:])
    if trains:
        found = build(arrays, max_length=max_length, truncation=truncation)
        by_hand = build(cut(arrays, kept))
        assert found == by_hand
        assert found.to_json() == by_hand.to_json()
    else:
        with pytest.raises(SampleError, match="loss_mask"):
            build(arrays, max_length=max_length, truncation=truncation)
        with pytest.raises(SampleError, match="loss_mask"):
            build(cut(arrays, kept))


@given(full_arrays(), st.integers(2, 45), st.integers(2, 45), st.sampled_from(["left", "right"]))
def test_cutting_twice_is_cutting_once_to_the_shorter_length(arrays, first, second, truncation):
    length = len(arrays["tokens"])
    kept = slice(0, first) if truncation == "right" else slice(max(0, length - first), length)
    shorter = min(first, second)
    last = slice(0, shorter) if truncation == "right" else slice(max(0, length - shorter), length)
    assume(any(arrays["loss_mask"][last][1:]))
    twice = build(cut(arrays, kept), max_length=second, truncation=truncation)
    assert twice == build(arrays, max_length=shorter, truncation=truncation)


@given(full_arrays())
def test_json_reads_back_bit_for_bit(arrays):
    sample = build(arrays)
    for read in (Sample.model_validate_json(sample.to_json()), Sample.from_wire(sample.to_wire())):
        assert read == sample
        for name, tensor in sample.loss_fn_inputs.items():
            assert read.loss_fn_inputs[name].data.tobytes() == tensor.data.tobytes()


@given(full_arrays(), st.sampled_from([tuple, np.array, lambda values: np.array(values, dtype=object)]))
def test_whatever_the_array_type_the_sample_is_equal(arrays, cast):
    other = {name: cast(values) for name, values in arrays.items() if name != "extra"}
    other["extra"] = {name: cast(values) for name, values in arrays["extra"].items()}
    assert build(other) == build(arrays)


@given(st.lists(st.integers(0, 100), min_size=2, max_size=20), st.sampled_from(sorted(INT_KINDS)))
def test_whatever_holds_the_tokens_the_sample_is_equal(tokens, kind):
    mask = [1] * len(tokens)
    assert build_sample(INT_KINDS[kind](tokens), mask) == build_sample(tokens, mask)


@given(full_arrays())
def test_whatever_is_built_has_no_error(arrays):
    assert check([build(arrays)], allow={"unknown_input"}).errors == []


@given(full_arrays(), st.data())
def test_one_value_too_few_or_too_many_is_always_refused(arrays, data):
    names = [name for name in arrays if name != "extra"]
    name = data.draw(st.sampled_from(names))
    longer = data.draw(st.booleans())
    arrays[name] = arrays[name] + arrays[name][-1:] if longer else arrays[name][:-1]
    with pytest.raises(SampleError):
        build(arrays)


@given(st.lists(logprobs, min_size=2, max_size=30), st.data())
def test_missing_logprobs_change_nothing_where_nothing_trains(values, data):
    length = len(values)
    mask = data.draw(st.lists(st.sampled_from([0, 1]), min_size=length, max_size=length))
    mask[-1] = 1
    missing = st.sampled_from([None, float("nan"), float("-inf"), float("inf"), 0.0])
    holes = [data.draw(missing) if trained == 0 else value for value, trained in zip(values, mask, strict=True)]
    zeros = [0.0 if trained == 0 else value for value, trained in zip(values, mask, strict=True)]
    assert build_sample(range(length), mask, logprobs=holes) == build_sample(range(length), mask, logprobs=zeros)
