"""Record: unshifted arrays, and the way from a sample and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplekit import AlignmentError, LossInputError, PackingError, Record, Sample, SampleError, build_sample, pack


def test_a_record_of_a_sample_joins_input_and_last_target():
    sample = build_sample([10, 11, 12, 13], [0, 0, 1, 0.5], advantages=2.0, logprobs=[0, 0, -0.5, -0.25])
    record = Record.from_sample(sample, id="a")
    assert record.tokens.tolist() == [10, 11, 12, 13]
    assert record.loss_mask.tolist() == [0, 0, 1, 0.5]
    assert record.per_token["advantages"].tolist() == [0, 0, 2, 2]
    assert record.per_token["logprobs"].tolist() == [0, 0, -0.5, -0.25]
    assert record.id == "a"


@given(st.lists(st.tuples(st.integers(0, 99), st.sampled_from([0, 0.5, 1])), min_size=2, max_size=20))
def test_a_sample_comes_back_from_its_record_alone_or_from_a_row(pairs):
    tokens, mask = zip(*pairs, strict=True)
    mask = (*mask[:-1], 1)
    sample = build_sample(tokens, mask, advantages=0.5, extra={"turn": [1] * len(tokens)})
    record = Record.from_sample(sample)
    assert record.to_sample().loss_fn_inputs.keys() == sample.loss_fn_inputs.keys()
    assert build_sample(record.tokens, record.loss_mask, advantages=0.5, extra={"turn": [1] * len(tokens)}) == sample
    (row,) = pack([record], 32, pad_id=0)
    assert row.documents[0].to_sample() == record.to_sample()


def test_a_target_that_is_not_the_next_token_is_refused_where_it_trains():
    wire = build_sample([1, 2, 3, 4], [0, 1, 0, 1]).to_wire()
    wire["loss_fn_inputs"]["target_tokens"]["data"][1] = 9  # weight 0: what stands there says nothing
    assert Record.from_sample(Sample.from_wire(wire)).tokens.tolist() == [1, 2, 3, 4]
    wire["loss_fn_inputs"]["target_tokens"]["data"][0] = 9
    with pytest.raises(SampleError, match=r"holds 9 at index 0, where the next input token is 2"):
        Record.from_sample(Sample.from_wire(wire))
    del wire["loss_fn_inputs"]["target_tokens"]
    with pytest.raises(LossInputError, match="no 'target_tokens'"):
        Record.from_sample(Sample.from_wire(wire))


def test_padding_and_rows_never_reach_a_sample():
    padded = Record([1, 2, 0], [0, 1, 0], padding_length=1)
    assert padded.to_sample().tokens.tolist() == [1, 2]
    (row,) = pack([Record([1, 2], [0, 1]), Record([3, 4], [0, 1])], 4, pad_id=0)
    with pytest.raises(PackingError, match="several documents"):
        row.to_sample()


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        (([1, 2], [1]), {}, AlignmentError, "loss_mask holds 1 values, tokens holds 2"),
        (([1, 2],), {"positions": [0, 1, 2]}, AlignmentError, "positions holds 3 values"),
        (([],), {}, AlignmentError, "tokens is empty"),
        (([[1]],), {}, AlignmentError, "tokens"),
        (([1, True],), {}, SampleError, "index 1"),
        (([1, 2],), {"logprobs": [0.0, float("nan")]}, SampleError, "logprobs.*index 1"),
        (([1, 2],), {"padding_length": 3}, SampleError, "padding_length is 3"),
        (([1, 2],), {"padding_length": -1}, SampleError, "padding_length is -1"),
        (([1, 2],), {"padding_length": True}, SampleError, "padding_length is True"),
    ],
)
def test_what_is_no_record_is_named(arguments, options, error, words):
    with pytest.raises(error, match=words):
        Record(*arguments, **options)


def test_arrays_are_read_only_and_not_shared_with_the_caller():
    tokens = np.array([1, 2])
    record = Record(tokens, [0, 1])
    tokens[0] = 9
    assert record.tokens.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        record.tokens[0] = 9
    assert repr(record) == "Record(2 tokens, 0 of them padding: tokens, loss_mask)"
