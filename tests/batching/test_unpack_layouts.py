"""unpack reads values as the batch was laid out, padded further or not, and refuses what could be two things."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samplekit import AlignmentError, Record, SampleBatch, pack, unpack
from samplekit.training import unpack_tensors

LABELS = {"megatron": "labels", "torchtitan": "labels", "hf": "input_ids"}
DOCUMENTS = st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=6), min_size=1, max_size=9)


def rows_of(documents, width=8):
    return pack([Record(tokens) for tokens in documents], width, pad_id=0)


def plainly(rows, lost):
    """Every document's tokens without the first ones."""
    return [document.tokens.tolist()[lost:] for row in rows for document in row.documents]


@pytest.mark.parametrize("framework", LABELS)
@given(documents=DOCUMENTS, multiple=st.sampled_from([None, 1, 3, 8, 16]))
def test_what_a_preset_gives_comes_back_by_document(framework, documents, multiple):
    rows = rows_of(documents)
    batch = SampleBatch(rows)
    values = batch.to_framework(framework, pad_to_multiple_of=multiple, mask_boundaries=False)[LABELS[framework]]
    expected = plainly(rows, int(framework != "hf"))
    assert [part.tolist() for part in unpack(values, batch)] == expected
    assert [part.tolist() for part in unpack_tensors(values, batch)] == expected
    elsewhere = unpack(values, SampleBatch(rows), shifted=framework != "hf", pad_to_multiple_of=multiple)
    assert [part.tolist() for part in elsewhere] == expected


@pytest.mark.parametrize("flatten", [False, True])
@given(documents=DOCUMENTS, multiple=st.sampled_from([None, 3, 8]), labels=st.booleans())
def test_what_to_training_gives_comes_back_by_document(flatten, documents, multiple, labels):
    rows = rows_of(documents)
    batch = SampleBatch(rows)
    arrays = batch.to_training(return_labels=labels, pad_to_multiple_of=multiple, flatten=flatten)
    values = arrays["labels" if labels else "input_ids"]
    assert [part.tolist() for part in unpack(values, batch)] == plainly(rows, int(labels))


def test_the_case_of_the_field_padded_shifted_labels_of_a_preset():
    batch = SampleBatch(rows_of([[1, 11, 12, 2], [1, 21, 22, 2], [1, 31, 32, 33, 34, 2]]))
    labels = batch.to_framework("megatron", pad_to_multiple_of=8)["labels"]
    expected = [[31, 32, 33, 34, 2], [11, 12, 2], [21, 22, 2]]
    assert labels.shape == (1, 16)  # as many as there are tokens
    assert [part.tolist() for part in unpack(labels, batch)] == expected
    batch.to_framework("hf")  # now both kinds of values may be meant
    with pytest.raises(AlignmentError, match=r"shape \(1, 16\).*shifted=True"):
        unpack(labels, batch)
    told = unpack(labels, batch, shifted=True, pad_to_multiple_of=8)
    assert [part.tolist() for part in told] == expected


@pytest.mark.parametrize("longer", [5, 6, 20])
@pytest.mark.parametrize("cast", [np.array, torch.tensor, list])
def test_an_array_longer_than_the_batch_is_never_read(longer, cast):
    batch = SampleBatch([Record([1, 2]), Record([3, 4])])
    with pytest.raises(AlignmentError, match="per_token has shape"):
        unpack(cast([0.5] * longer), batch)
    with pytest.raises(AlignmentError, match="per_token has shape"):
        unpack(cast([0.5] * longer), {"attention_mask": [[1, 1], [1, 1]]})


def test_values_end_to_end_that_may_be_padded_in_two_ways_are_refused():
    batch = SampleBatch(rows_of([[1] * 7, [2] * 7], 7))
    with pytest.raises(AlignmentError, match="pass rows as"):
        unpack(np.zeros(16), batch, shifted=False, pad_to_multiple_of=8)
    parts = unpack(np.arange(16).reshape(2, 8), batch, shifted=False, pad_to_multiple_of=8)
    assert [part.tolist() for part in parts] == [list(range(7)), list(range(8, 15))]


def test_an_empty_batch_has_no_values():
    assert unpack([], SampleBatch([])) == []
    with pytest.raises(AlignmentError, match="per_token has shape"):
        unpack([1.0], SampleBatch([]))
