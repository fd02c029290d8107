"""What the collator refuses by name, and the kinds of masks it reads."""

import pytest
import torch

import samplekit as sk
from samplekit.training import PackingCollator, packed_logprobs


def collate(*items, **options):
    return PackingCollator(8, **{"pad_id": 0, **options})(list(items))


def test_masks_that_a_trainer_did_not_cut_are_named_with_both_lengths_and_the_way_out():
    item = {"input_ids": [5] * 6, "labels": [5] * 6, "assistant_masks": [1] * 8}
    words = r"features\[1\]: assistant_masks holds 8 values, input_ids holds 6 tokens.*SFTConfig.*max_length=None"
    with pytest.raises(sk.AlignmentError, match=words):
        collate({**item, "assistant_masks": [1] * 6}, item)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("value", [1.5, "x", None, True, -(2**70)])
def test_an_ignore_index_that_is_none_is_refused_as_labels_from_mask_does(value, packed):
    with pytest.raises(sk.SampleError, match="ignore_index is"):
        PackingCollator(8, pad_id=0, packed=packed, ignore_index=value)
    with pytest.raises(sk.SampleError, match="ignore_index is"):
        sk.labels_from_mask([1, 2], [0, 1], ignore_index=value)


@pytest.mark.parametrize("packed", [True, False])
def test_an_ignore_index_that_is_a_token_is_refused(packed):
    with pytest.raises(ValueError, match="ignore_index is 6, which is also token 1"):
        collate({"input_ids": [5, 6]}, packed=packed, ignore_index=6)
    item = {"input_ids": [5, 6, 7], "labels": [-100, -100, 7]}
    labels = collate(item, packed=packed, ignore_index=-1)["labels"]
    assert labels.tolist() == [[-1, -1, 7]]  # a dataset's labels ignore by -100 all the same


@pytest.mark.parametrize("value", [None, -1, False, 0.0, "0", 2**63])
def test_a_pad_id_that_is_no_token_says_what_to_pass(value):
    with pytest.raises(sk.PackingError, match=r"pad_id is .*expected a token id from 0 .*: pass the tokenizer's pad"):
        PackingCollator(8, pad_id=value)


@pytest.mark.parametrize("value", [-5, 1.5, "x", True])
def test_to_training_refuses_it_as_well(value):
    with pytest.raises(ValueError, match="pad_id is"):
        sk.SampleBatch([sk.Record([1, 2])]).to_training(pad_id=value)
    with pytest.raises(ValueError, match="ignore_index is -1180"):
        sk.SampleBatch([sk.Record([1, 2])]).to_training(ignore_index=-(2**70))


@pytest.mark.parametrize("name", ["loss_mask", "labels", "completion_mask"])
def test_a_batch_in_which_only_some_items_say_what_trains_names_the_others(name):
    has = {"input_ids": [5, 6], name: [5, 6] if name == "labels" else [1, 1]}
    for lacking in ({"input_ids": [7, 8]}, {"input_ids": [7, 8], name: None}, sk.Record([7, 8])):
        with pytest.raises(sk.PackingError, match=r"features \[0, 2\] have no mask or labels, features\[1\] has"):
            collate(lacking, has, lacking)


@pytest.mark.parametrize("other", [[1.0, float("nan")], [1, -100], ["1", "1"], [[1, 1], [1, 1]]])
@pytest.mark.parametrize("names", [("loss_mask", "completion_mask"), ("completion_mask", "loss_mask")])
def test_each_of_two_masks_is_checked_like_one(names, other):
    with pytest.raises(sk.SampleError, match=rf"features\[0\]: {names[1]} holds"):
        collate({"input_ids": [5, 6], names[0]: [1, 1], names[1]: other})


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (["1", "1"], "holds '1' at index 0"),
        ([1.0, float("nan")], "holds nan at index 1"),
        ([1, 0.5], "holds 0.5 at index 1"),
        ([1, -1], "holds -1.0 at index 1"),
    ],
)
def test_an_attention_mask_of_anything_else_is_refused(mask, words):
    with pytest.raises(sk.SampleError, match=rf"features\[0\]: attention_mask {words}"):
        collate({"input_ids": [5, 6], "attention_mask": mask})


@pytest.mark.parametrize("more", [{}, {"assistant_masks": [1, 1, 1]}, {"labels": torch.tensor([-100, 6, 7])}])
@pytest.mark.parametrize(
    "mask",
    [
        torch.tensor([0, 1, 0], dtype=torch.bfloat16),
        torch.tensor([0.0, 1.0, 0.0], requires_grad=True),
        torch.tensor([False, True, False]),
    ],
)
def test_tensors_of_every_dtype_are_read_as_masks(mask, more):
    assert collate({"input_ids": torch.tensor([5, 6, 7]), "loss_mask": mask, **more})["labels"].tolist() == [
        [-100, 6, -100]
    ]


@pytest.mark.parametrize("packed", [True, False])
def test_truncating_on_the_left_cuts_padding_first(packed):
    options = {"packed": packed, "oversize": "truncate_left"}
    for tokens, kept in (
        ([1, 2, 3, 4, 5, 6, 0, 0, 0], [1, 2, 3, 4, 5, 6]),
        ([*range(1, 10), 0, 0], list(range(2, 10))),
    ):
        padding = tokens.count(0)
        batch = collate(sk.Record(tokens, padding_length=padding), **options)
        found = batch["input_ids"][0].tolist()
        assert found[: len(kept)] == kept
        assert set(found[len(kept) :]) <= {0}


@pytest.mark.parametrize("kind", ["tensor", "padding as a tensor"])
def test_packed_rows_of_a_dataset_in_the_format_of_torch_are_read(kind):
    row = {"input_ids": torch.tensor([5, 6, 7, 8, 0, 0]), "seq_lengths": torch.tensor([2, 2])}
    if kind != "tensor":
        row["padding_length"] = torch.tensor(2)
    assert collate(row, row)["cu_seq_lens_q"].tolist() == [0, 2, 4, 6, 8, 10, 12]


def test_an_empty_batch_has_no_logprobs():
    with pytest.raises(sk.PackingError, match="holds no records"):
        packed_logprobs(torch.nn.Linear(1, 1), sk.SampleBatch([]))
