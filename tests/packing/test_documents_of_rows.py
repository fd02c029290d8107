"""Rows that come from elsewhere: their documents come apart, whichever spelling tells them."""

import numpy as np
import pytest
import torch

import samplekit as sk
from samplekit import PackingError, Record, SampleBatch, SampleError, pack, unpack

ROW = {
    "positions": [0, 1, 0, 1, 2, 0],
    "position_ids": [0, 1, 0, 1, 2, 0],
    "seq_lengths": [2, 3],
    "document_ids": [1, 1, 2, 2, 2, 0],
    "attention_mask": [1, 1, 2, 2, 2, 0],
}
TELLING = [("seq_lengths",), ("document_ids",), ("attention_mask",), ("positions", "document_ids"), tuple(ROW)]
KINDS = {"list": list, "numpy": np.array, "tensor": torch.tensor, "tuple": tuple}


def row_of(names, cast=list):
    arrays = {"input_ids": [5, 6, 7, 8, 9, 3], "loss_mask": [0, 1, 0, 1, 1, 0], **{name: ROW[name] for name in names}}
    return {name: cast(values) for name, values in arrays.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("names", TELLING)
def test_every_spelling_in_every_kind_tells_documents_and_padding(names, kind):
    batch = SampleBatch([row_of(names, KINDS[kind]), row_of(names, KINDS[kind])])
    assert [document.tokens.tolist() for document in batch.documents] == [[5, 6], [7, 8, 9]] * 2
    assert [document.loss_mask.tolist() for document in batch.documents] == [[0, 1], [0, 1, 1]] * 2
    flat = batch.to_training(flatten=True, return_labels=True, mask_boundaries=True)["labels"]
    assert flat[flat != -100].tolist() == [6, 8, 9] * 2
    values = batch.to_training(dtype=None)["input_ids"]
    assert [part.tolist() for part in unpack(values, batch)] == [[5, 6], [7, 8, 9]] * 2


@pytest.mark.parametrize(
    "given", [{"positions": ROW["positions"], "padding_length": 1}, {"document_ids": ROW["document_ids"]}]
)
def test_a_record_comes_apart_by_the_same_arrays(given):
    record = Record([5, 6, 7, 8, 9, 3], **given)
    assert record.padding_length == 1
    assert [document.tokens.tolist() for document in record.documents] == [[5, 6], [7, 8, 9]]
    assert all(not document.per_token for document in record.documents)
    with pytest.raises(PackingError, match="several documents"):
        record.to_sample()
    with pytest.raises(PackingError, match=r"tokens of padding|several documents"):
        pack([record], 8, pad_id=0)


def test_documents_numbered_from_0_come_apart_as_well():
    assert [one.tokens.tolist() for one in Record([5, 6, 7], document_ids=[0, 0, 1]).documents] == [[5, 6], [7]]


def test_one_document_is_the_record_itself():
    record = Record([5, 6, 7, 0], positions=[0, 1, 2, 0], padding_length=1)
    assert record.documents[0] is record
    assert Record([0, 0], padding_length=2).document_lengths.tolist() == [0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"document_ids": [1, 1, 0, 2, 2, 2]}, "document_ids holds 0, which is padding, at index 2"),
        ({"document_ids": [0] * 6}, "document_ids holds 0 only"),
        ({"document_ids": [1, 1, 1, -2, 2, 2]}, "document_ids holds -2 at index 3"),
        ({"document_ids": [1, 1, 1, 1.5, 2, 2]}, "document_ids holds 1.5 at index 3"),
        (
            {"document_ids": [1, 1, 2, 2, 2, 0], "positions": range(6)},
            "positions runs on at index 2, where document_ids",
        ),
        ({"positions": [0, 1, 2, -1, 0, 1]}, "positions holds -1 at index 3"),
        ({"positions": [0, 1, 2, 0.5, 0, 1]}, "positions holds 0.5 at index 3"),
        ({"positions": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]}, "positions holds 0.0 at index 0"),
    ],
)
def test_what_tells_no_documents_is_named(given, words):
    with pytest.raises(SampleError, match=words):
        Record([5, 6, 7, 8, 9, 3], **given)
    with pytest.raises(SampleError, match=rf"records\[0\]: {words}"):
        _ = SampleBatch([{"input_ids": [5, 6, 7, 8, 9, 3], **given}]).rows


@pytest.mark.parametrize("name", ["position_ids", "attention_mask"])
def test_a_record_that_would_not_read_its_documents_is_refused(name):
    with pytest.raises(SampleError, match=f"positions runs on at index 2, where {name} starts a document"):
        Record([5, 6, 7, 8, 9, 3], **{name: ROW[name]})
    held = {"positions": ROW["positions"], name: ROW[name]}
    assert len(Record([5, 6, 7, 8, 9, 3], padding_length=1, **held).documents) == 2
    assert Record([5, 6, 0], padding_length=1, **{name: [0, 1, 0] if name == "position_ids" else [1, 1, 0]}).length == 3
    read = SampleBatch([row_of([name])]).to_training(extra_fields=[name])
    assert read[name].tolist() == [ROW[name] if name == "position_ids" else ROW[name][:5]]


@pytest.mark.parametrize("name", ["seq_lengths", "attention_mask"])
def test_positions_that_run_on_over_a_boundary_are_refused(name):
    with pytest.raises(SampleError, match=f"position_ids runs on at index 2, where {name} starts a document"):
        _ = SampleBatch([{**row_of([name]), "position_ids": list(range(6))}]).rows


def test_whole_numbers_stay_whole_and_logprobs_fractions():
    record = Record([1, 2], x=[-1, 16777217], y=torch.tensor([-5, 3]), z=[0.5, 1], logprobs=[-1, 0], advantages=[1, 2])
    assert record.per_token["x"].tolist() == [-1, 16777217]
    kinds = {name: values.dtype for name, values in record.per_token.items()}
    assert kinds == {
        "x": np.int64, "y": np.int64, "z": np.float32, "logprobs": np.float32, "advantages": np.float32,
    }  # fmt: skip
    mixed = SampleBatch([Record([1, 2], z=[1, 2]), Record([1, 2], z=[0.5, 2])]).to_training(extra_fields=["z"])
    assert (mixed["z"].dtype, mixed["z"].tolist()) == (np.float32, [[1, 2], [0.5, 2]])


def test_a_record_gives_back_what_else_its_sample_held():
    sample = sk.build_sample(
        [1, 2, 3, 4], [0, 1, 0, 1], advantages=0.5, logprobs=[0, -1, 0, -2], extra={"turn": [1, 1, 2, 2]},
        routed_experts_key="key", info={"source": "a.jsonl"},
    )  # fmt: skip
    record = Record.from_sample(sample)
    (row,) = pack([record, Record.from_sample(sample)], 9, pad_id=0)
    for found in (record.to_sample(), *(document.to_sample() for document in row.documents)):
        assert found == sample
        assert (found.routed_experts_key, found.info) == ("key", {"source": "a.jsonl"})
