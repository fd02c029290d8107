"""batch and unpack: records in groups, untouched, and values on their way back."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samplekit import FLUSH, AlignmentError, PackingError, Record, SampleBatch, batch, pack, unpack


def sizes(stream, size, **options):
    return [len(found) for found in batch(stream, size, **options)]


def test_short_batches_are_left_out_unless_asked_for():
    assert sizes(range(7), 3) == [3, 3]
    assert sizes(range(7), 3, drop_last=False) == [3, 3, 1]
    assert sizes([], 3, drop_last=False) == []


def test_a_flush_ends_the_current_batch():
    stream = [1, 2, FLUSH, 3, 4, 5, 6, FLUSH, FLUSH, 7]
    assert sizes(stream, 3) == [3]
    assert [found.records for found in batch(stream, 3, drop_last=False)] == [[1, 2], [3, 4, 5], [6], [7]]
    assert pickle.loads(pickle.dumps(FLUSH)) is FLUSH
    assert repr(FLUSH) == "FLUSH"


def test_payloads_of_any_kind_pass_through_untouched():
    payloads = [object(), {"image": b"x"}, "text"]
    (found,) = batch(payloads, 3)
    assert all(one is other for one, other in zip(found.records, payloads, strict=True))


def test_ids_are_the_records_own_or_their_place_in_the_stream():
    first, second = batch([Record([1]), Record([2], id="b"), FLUSH, Record([3])], 2, drop_last=False)
    assert first.to_training()["ids"] == [0, "b"]
    assert second.to_training()["ids"] == [2]


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(9, 30), st.one_of(st.none(), st.integers(1, 4)))
def test_max_tokens_holds_in_every_batch_and_loses_nothing(lengths, limit, size):
    records = [Record([1] * length) for length in lengths]
    found = list(batch(records, size, max_tokens=limit, drop_last=False))
    assert [record for group in found for record in group.records] == records
    for group, after in zip(found, [*found[1:], None], strict=False):
        total = sum(record.length for record in group.records)
        assert total <= limit
        assert size is None or len(group) <= size
        if after is not None:  # it ended for a reason
            assert len(group) == size or total + after.records[0].length > limit


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (([[1]], 0), {}, "microbatch_size is 0"),
        (([[1]], None), {}, "both None"),
        (([[1]], 1), {"max_tokens": -1}, "max_tokens is -1"),
    ],
)
def test_what_ends_no_batch_is_refused_at_once(arguments, options, words):
    with pytest.raises(PackingError, match=words):
        batch(*arguments, **options)


def test_a_record_beyond_max_tokens_is_named():
    with pytest.raises(PackingError, match=r"records\[1\] holds 3 tokens, max_tokens=2"):
        list(batch([[1], [1, 2, 3]], None, max_tokens=2))


DOCUMENTS = st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=6), min_size=1, max_size=12)
FORMS = {
    "rows": lambda values: values,
    "one vector": lambda values: values.reshape(-1),
    "one row": lambda values: values.reshape(1, -1),
    "lists": lambda values: values.tolist(),
    "tensor": torch.from_numpy,
    "list of tensors": lambda values: list(torch.from_numpy(values)),
}


@pytest.mark.parametrize("form", FORMS)
@given(documents=DOCUMENTS)
def test_values_of_tokens_come_back_by_document(form, documents):
    """shift-04 and its class: what was put in comes out, however long rows and their padding are."""
    found = SampleBatch(pack([Record(tokens) for tokens in documents], 7, pad_id=0))
    values = FORMS[form](found.to_training()["input_ids"])
    returned = unpack(values, found)
    assert [part.tolist() for part in returned] == [document.tokens.tolist() for document in found.documents]
    assert sorted(part.tolist() for part in returned) == sorted(documents)
    assert all(isinstance(part, np.ndarray) for part in returned)


@pytest.mark.parametrize("form", FORMS)
@given(documents=DOCUMENTS)
def test_values_of_positions_lose_the_one_that_predicts_another_document(form, documents):
    found = SampleBatch(pack([Record(tokens) for tokens in documents], 7, pad_id=0))
    values = FORMS[form](found.to_training(return_labels=True)["labels"])
    returned = unpack(values, found)
    assert [part.tolist() for part in returned] == [document.tokens[1:].tolist() for document in found.documents]


def test_the_case_of_the_field_comes_back_whole():
    padded = SampleBatch([Record([1, 2, 0, 0], padding_length=2), Record([1, 2, 3, 4])])
    returned = unpack([[-0.1, -0.2, 9.0, 9.0], [-1.0, -2.0, -3.0, -4.0]], padded)
    assert [part.tolist() for part in returned] == [[-0.1, -0.2], [-1, -2, -3, -4]]


def test_padding_added_behind_is_left_out_where_it_is_told_and_other_shapes_are_refused():
    found = SampleBatch([Record([1, 2]), Record([3, 4])])
    assert [part.tolist() for part in unpack([1, 2, 3, 4, 0, 0], found, shifted=False, pad_to_multiple_of=6)] == [
        [1, 2],
        [3, 4],
    ]
    for values in (
        [1, 2, 3, 4, 0, 0],
        np.arange(20.0),
        [1, 2, 3],
        [[1, 2, 3], [1, 2, 3]],
        np.zeros((3, 2)),
        np.zeros((2, 2, 5)),
    ):
        with pytest.raises(AlignmentError, match="per_token has shape"):
            unpack(values, found)


def test_tensors_with_gradients_and_bfloat16_are_read():
    found = SampleBatch([Record([1, 2])])
    assert unpack(torch.ones(1, 2, requires_grad=True), found)[0].tolist() == [1, 1]
    assert unpack(torch.ones(1, 2, dtype=torch.bfloat16), found)[0].tolist() == [1, 1]
