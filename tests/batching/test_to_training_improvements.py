"""Where SampleBatch.to_training is meant to differ from the loader whose options it shares, and what it adds."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samplekit import PackingError, Record, SampleBatch, build_sample, pack
from samplekit.batching import block_diagonal_mask

TOKENS, POSITIONS = [1, 11, 12, 2, 1, 21, 22, 2], [0, 1, 2, 3, 0, 1, 2, 3]


def seed_batch(**options):
    return SampleBatch([Record(TOKENS, positions=POSITIONS, **options)])


def test_the_worked_seed_example():
    arrays = seed_batch().to_training(return_labels=True, return_num_valid_tokens=True, return_cu_seqlens=True)
    assert arrays["labels"].tolist() == [[11, 12, 2, 1, 21, 22, 2]]
    assert arrays["positions"].tolist() == [[0, 1, 2, 3, 0, 1, 2]]
    assert (arrays["cu_seqlens"].tolist(), arrays["max_seqlen"].tolist()) == ([[0, 4, 7]], [4])
    assert arrays["num_valid_tokens"] == 7
    masked = seed_batch().to_training(
        return_labels=True, eos_mask_loss=True, eos_token_id=2, return_num_valid_tokens=True
    )
    assert masked["labels"].tolist() == [[11, 12, 2, -100, 21, 22, 2]]
    assert masked["num_valid_tokens"] == 6


@pytest.mark.parametrize("dtype", ["auto", torch.int64, np.int32])
def test_fractions_stay_fractions_and_whole_numbers_whole(dtype):
    batch = seed_batch(logprobs=[-0.5] * 8, turn=[1] * 8)
    arrays = batch.to_training(return_labels=True, extra_fields=["logprobs", "turn"], dtype=dtype)
    assert arrays["logprobs"].tolist() == [[-0.5] * 7]
    assert str(arrays["logprobs"].dtype).endswith("float32")
    assert arrays["turn"].dtype == arrays["input_ids"].dtype


def test_fractional_weights_survive_and_say_what_trains():
    batch = SampleBatch([Record(TOKENS, [0, 0.5, 1, 0.25, 0, 0.5, 2, 1])])
    arrays = batch.to_training(return_labels=True, return_loss_mask=True, return_num_valid_tokens=True)
    assert arrays["labels"].tolist() == [[11, 12, 2, -100, 21, 22, 2]]
    assert arrays["loss_mask"].tolist() == [[0.5, 1, 0.25, 0, 0.5, 2, 1]]
    assert arrays["num_valid_tokens"] == 6


@pytest.mark.parametrize("dtype", [np.uint8, torch.uint8, np.uint64])
def test_an_ignore_index_that_the_dtype_cannot_hold_is_an_error(dtype):
    batch = SampleBatch([Record([1, 2, 3], [0, 0, 1])])
    with pytest.raises(ValueError, match=r"labels holds -100.*another ignore_index"):
        batch.to_training(return_labels=True, dtype=dtype)


def test_an_id_that_the_dtype_cannot_hold_is_an_error():
    with pytest.raises(ValueError, match="input_ids holds 300, which uint8 cannot hold"):
        SampleBatch([Record([1, 300])]).to_training(dtype=np.uint8)


def test_an_ignore_index_that_is_a_real_token_is_an_error():
    with pytest.raises(ValueError, match="ignore_index is 12, which is also token 2"):
        seed_batch().to_training(return_labels=True, ignore_index=12)
    padded = SampleBatch([Record([1, 2, 0], padding_length=1)])
    assert padded.to_training(return_labels=True, ignore_index=0)["labels"].tolist() == [[2, 0]]


@pytest.mark.parametrize("first_has", [True, False])
def test_a_mask_in_some_records_only_is_an_error(first_has):
    records = [Record(TOKENS, [0] * 8), Record(TOKENS)][:: 1 if first_has else -1]
    with pytest.raises(ValueError, match=rf"records\[{int(first_has)}\] has no 'loss_mask'"):
        SampleBatch(records).to_training(return_labels=True)


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("dtype", [None, "auto", torch.int64])
def test_an_empty_batch_still_has_its_keys(flatten, dtype):
    options = {
        "return_labels": True, "return_loss_mask": True, "return_num_valid_tokens": True, "return_cu_seqlens": True,
        "return_padding_mask": True, "return_document_ids": True, "return_seq_lens": True, "extra_fields": ["logprobs"],
        "flatten": flatten, "dtype": dtype,
    }  # fmt: skip
    full = seed_batch(logprobs=[0.0] * 8).to_training(**options)
    empty = SampleBatch([]).to_training(**options)
    assert list(empty) == list(full)
    assert {name: type(value) for name, value in empty.items()} == {name: type(value) for name, value in full.items()}
    assert empty["num_valid_tokens"] == 0
    assert len(empty["input_ids"]) == 0


def test_the_boundary_rule_masks_what_predicts_the_next_document_and_no_end_token_inside_one():
    inner = Record([1, 11, 2, 12, 2], [0, 1, 1, 1, 1])  # an end token inside a chat
    (row,) = pack([inner, Record([1, 21, 2], [1, 1, 1])], 9, pad_id=0, strategy="next_fit")
    labels = SampleBatch([row]).to_training(return_labels=True, mask_boundaries=True)["labels"]
    assert labels.tolist() == [[11, 2, 12, 2, -100, 21, 2, -100]]
    by_token = SampleBatch([row]).to_training(return_labels=True, eos_mask_loss=True, eos_token_id=2)["labels"]
    assert by_token.tolist() == [[11, 2, -100, 2, -100, 21, 2, -100]]


def test_where_bos_is_eos_the_boundary_rule_keeps_the_first_content_token():
    (row,) = pack([Record([2, 11, 2]), Record([2, 21, 2])], 6, pad_id=0, strategy="next_fit")
    masked = SampleBatch([row]).to_training(return_labels=True, mask_boundaries=True)["labels"]
    assert masked.tolist() == [[11, 2, -100, 21, 2]]
    by_token = SampleBatch([row]).to_training(return_labels=True, eos_mask_loss=True, eos_token_id=2)["labels"]
    assert by_token.tolist() == [[-100, 2, -100, -100, 2]]


def test_padding_is_one_segment_and_seq_lens_lists_documents():
    (row,) = pack([Record([5, 6]), Record([7, 8, 9])], 8, pad_id=0, strategy="next_fit")
    options = {"return_cu_seqlens": True, "return_document_ids": True, "return_seq_lens": True}
    arrays = SampleBatch([row]).to_training(**options)
    assert arrays["cu_seqlens"].tolist() == [[0, 2, 5, 8]]
    assert arrays["max_seqlen"].tolist() == [3]
    assert arrays["document_ids"].tolist() == [[1, 1, 2, 2, 2, 0, 0, 0]]
    assert arrays["seq_lens"].tolist() == [[2, 3]]
    flat = SampleBatch([row, row]).to_training(flatten=True, **options)
    assert flat["cu_seqlens"].tolist() == [0, 2, 5, 8, 10, 13, 16]
    assert flat["seq_lens"].tolist() == [2, 3, 2, 3]
    assert isinstance(flat["max_seqlen"], int)


def test_rows_of_different_counts_of_documents_are_filled_up():
    rows = [*pack([Record([1, 2])] * 3, 6, pad_id=0), *pack([Record([1] * 6)], 6, pad_id=0)]
    arrays = SampleBatch(rows).to_training(return_cu_seqlens=True, return_seq_lens=True)
    assert arrays["cu_seqlens"].tolist() == [[0, 2, 4, 6], [0, 6, 6, 6]]
    assert arrays["seq_lens"].tolist() == [[2, 2, 2], [6, 0, 0]]


@pytest.mark.parametrize("multiple", [1, 4, 5, 8])
@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("flatten", [False, True])
def test_padding_to_a_multiple_is_padding_in_every_array(multiple, labels, flatten):
    rows = pack([Record([5, 6]), Record([7, 8, 9])], 6, pad_id=9, strategy="next_fit")
    arrays = SampleBatch(rows).to_training(
        pad_to_multiple_of=multiple, flatten=flatten, return_labels=labels, return_cu_seqlens=True,
        return_padding_mask=True,
    )  # fmt: skip
    width = arrays["input_ids"].shape[-1]
    assert width % multiple == 0
    assert width < 6 + multiple
    assert arrays["input_ids"].shape == arrays["positions"].shape == arrays["padding_mask"].shape
    assert arrays["padding_mask"].sum() == width - 5
    assert (arrays["input_ids"][arrays["padding_mask"]] == 9).all()
    if labels:
        assert (arrays["labels"] != -100).sum() == 4
    assert arrays["cu_seqlens"].reshape(-1).tolist() == [0, 2, 5] + [width] * (width > 5)


def test_rows_of_different_widths_are_lists_or_one_vector():
    batch = SampleBatch([Record([1, 2, 3], positions=[0, 1, 2]), Record([4, 5], positions=[0, 1])])
    assert batch.to_training(dtype=None, return_labels=True)["labels"] == [[2, 3], [5]]
    flat = batch.to_training(flatten=True, return_labels=True, return_cu_seqlens=True)
    assert (flat["labels"].tolist(), flat["cu_seqlens"].tolist()) == ([2, 3, 5], [0, 2, 3])
    with pytest.raises(ValueError, match=r"rows of the batch are \[3, 2\] wide.*pack"):
        batch.to_training()


def test_records_of_every_kind_give_the_same_arrays():
    sample = build_sample([1, 2, 3], [0, 1, 1])
    mapping = {"token_ids": torch.tensor([1, 2, 3]), "loss_mask": np.array([0, 1, 1])}
    arrays = SampleBatch([sample, mapping, Record([1, 2, 3], [0, 1, 1])]).to_training(return_labels=True)
    assert arrays["labels"].tolist() == [[2, 3]] * 3


def test_a_list_of_documents_is_refused_with_the_way_to_pack_them():
    for value in ([[1, 2], [3]], [Record([1])], {"packed_samples": [{"input_ids": [1]}]}):
        with pytest.raises(PackingError, match=r"list of .* documents.*samplekit\.pack"):
            SampleBatch([value]).to_training()
    with pytest.raises(TypeError, match=r"records\[1\] is bytes|records\[1\] is a bytes"):
        SampleBatch([[1], b"image"]).to_training()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mask_boundaries": True}, "mask_boundaries requires return_labels"),
        ({"eos_mask_loss": True, "return_labels": True}, "requires eos_token_id"),
        ({"dtype": np.float32}, "dtype is"),
        ({"dtype": torch.bfloat16}, "dtype is"),
        ({"dtype": "int"}, None),
        ({"ignore_index": None}, "ignore_index is None"),
        ({"pad_to_multiple_of": 0}, "pad_to_multiple_of is 0"),
        ({"rename_fields": {"input_ids": "x", "positions": "x"}}, "two fields the name 'x'"),
    ],
)
def test_options_that_contradict_each_other_are_named(options, words):
    if words is None:
        assert seed_batch().to_training(**options)["input_ids"].dtype == np.int64
        return
    with pytest.raises(ValueError, match=words):
        seed_batch().to_training(**options)


def test_what_is_given_can_be_written_to_and_leaves_the_record_alone():
    batch = seed_batch()
    arrays = batch.to_training()
    arrays["input_ids"][0, 0] = 99
    assert batch.records[0].tokens[0] == 1


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=12), st.booleans())
def test_masked_labels_are_the_next_tokens_of_each_document_and_nothing_else(documents, flatten):
    rows = pack([Record(tokens) for tokens in documents], 7, pad_id=0)
    arrays = SampleBatch(rows).to_training(
        return_labels=True, mask_boundaries=True, return_num_valid_tokens=True, flatten=flatten, return_cu_seqlens=True
    )
    assert arrays["num_valid_tokens"] == sum(len(tokens) - 1 for tokens in documents)
    packed = [document.tokens.tolist() for row in rows for document in row.documents]
    labels = arrays["labels"].reshape(-1)
    assert labels[labels != -100].tolist() == [token for tokens in packed for token in tokens[1:]]
    inputs = arrays["input_ids"].reshape(-1)
    assert inputs[labels != -100].tolist() == [token for tokens in packed for token in tokens[:-1]]


def test_the_block_mask_sees_its_own_document_and_nothing_later():
    mask = block_diagonal_mask([[1, 1, 2, 0, 0]])
    assert mask.shape == (1, 1, 5, 5)
    assert mask[0, 0].astype(int).tolist() == [
        [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 1],
    ]  # fmt: skip
    assert block_diagonal_mask([[1, 1]], causal=False).all()
    with pytest.raises(ValueError, match="shape"):
        block_diagonal_mask([1, 1])
