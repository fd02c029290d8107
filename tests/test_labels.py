"""labels_from_mask: labels for models that shift inside."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplekit import AlignmentError, SampleError, build_sample, labels_from_mask


def test_labels_stand_at_their_own_token():
    assert labels_from_mask([10, 11, 12, 13], [0, 0, 1, 1]).tolist() == [-100, -100, 12, 13]


def test_token_0_never_trains_for_no_position_predicts_it():
    assert labels_from_mask([10, 11], [1, 1]).tolist() == [-100, 11]


@pytest.mark.parametrize("mask", [[False, True, False], [0, 0.25, 0], np.array([0, -1, 0], dtype=np.int8)])
def test_every_weight_but_0_trains(mask):
    assert labels_from_mask([10, 11, 12], mask).tolist() == [-100, 11, -100]


def test_another_ignore_index_can_be_asked_for():
    assert labels_from_mask([10, 11, 12], [0, 0, 1], ignore_index=-1).tolist() == [-1, -1, 12]


def test_labels_are_whole_numbers_of_their_own():
    tokens = np.array([10, 11, 12])
    labels = labels_from_mask(tokens, [0, 1, 1])
    assert labels.dtype == np.int64
    labels[1] = 7
    assert tokens.tolist() == [10, 11, 12]


@pytest.mark.parametrize(
    ("tokens", "mask", "error", "words"),
    [
        ([10, 11], [1], AlignmentError, "loss_mask holds 1 values, tokens holds 2 tokens"),
        ([], [], AlignmentError, "tokens"),
        ([10, True], [0, 1], SampleError, "tokens .*index 1"),
        ([10, -1], [0, 1], SampleError, "tokens .*index 1"),
        ([10, 11], [0, float("nan")], SampleError, "loss_mask .*index 1"),
        ([10, 11], [0, None], SampleError, "loss_mask .*index 1"),
        ([10, 11], "01", SampleError, "loss_mask"),
    ],
)
def test_what_is_no_token_or_no_weight_is_named(tokens, mask, error, words):
    with pytest.raises(error, match=words):
        labels_from_mask(tokens, mask)


@given(
    st.lists(st.tuples(st.integers(0, 50_000), st.sampled_from([0, 1])), min_size=2).filter(
        lambda pairs: any(weight for _, weight in pairs[1:])
    )
)
def test_shifted_inside_a_model_labels_are_the_sample_s_targets(pairs):
    tokens, mask = zip(*pairs, strict=True)
    sample = build_sample(tokens, mask)
    shifted = labels_from_mask(tokens, mask)[1:]
    weights = sample.loss_fn_inputs["weights"].data
    targets = sample.loss_fn_inputs["target_tokens"].data
    assert shifted.tolist() == np.where(weights != 0, targets, -100).tolist()


@pytest.mark.parametrize(
    "ignore_index", [None, True, -1.5, "x", 10**5000, 12], ids=["none", "bool", "float", "text", "long", "trained"]
)
def test_an_ignore_index_that_hides_a_token_or_is_no_number_is_refused(ignore_index):
    with pytest.raises(SampleError, match="ignore_index is"):
        labels_from_mask([10, 11, 12], [0, 0, 1], ignore_index=ignore_index)
