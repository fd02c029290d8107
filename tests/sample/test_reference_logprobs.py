"""The frozen policy's logprobs join a sample that exists already: aligned with its targets, or refused by index."""

import numpy as np
import pytest
import torch

import samplekit as sk

FULL = [0.0, -0.25, -0.5, -1.0]


def built(**options):
    options = {"info": {"group": "a"}, "routed_experts_key": "k", **options}
    return sk.build_sample([5, 6, 7, 8], [0, 0, 1, 1], advantages=0.5, logprobs=FULL, **options)


def reference(sample):
    return sample.loss_fn_inputs["reference_logprobs"].data.tolist()


@pytest.mark.parametrize(
    "form",
    [list, tuple, np.array, torch.tensor, lambda row: torch.tensor(row, requires_grad=True), lambda row: np.array(row, "d")],
)  # fmt: skip
def test_a_sample_gets_what_building_it_so_would_have_given(form):
    sample = built()
    found = sample.with_reference_logprobs(form([-0.25, -0.5, -1.0]))
    assert found == built(reference_logprobs=[0.0, 0.0, -0.5, -1.0])
    assert (found.info, found.routed_experts_key) == ({"group": "a"}, "k")
    assert "reference_logprobs" not in sample.loss_fn_inputs
    found.info["more"] = 1
    assert sample.info == {"group": "a"}


@pytest.mark.parametrize("junk", [float("nan"), float("-inf"), None, 0.5, -9.0])
def test_what_does_not_train_reads_0(junk):
    assert reference(built().with_reference_logprobs([junk, -0.5, -1.0])) == [0.0, -0.5, -1.0]


def test_a_mask_keeps_out_as_weights_do_and_without_either_all_train():
    inputs = dict(built().loss_fn_inputs)
    del inputs["weights"]
    bare = sk.Sample(built().model_input, inputs)
    masked = sk.Sample(built().model_input, {**inputs, "mask": sk.TensorData([0, 1, 1], "int64")})
    assert reference(bare.with_reference_logprobs([-2.0, -0.5, -1.0])) == [-2.0, -0.5, -1.0]
    assert reference(masked.with_reference_logprobs([-2.0, -0.5, -1.0])) == [0.0, -0.5, -1.0]


def test_a_second_reference_takes_the_place_of_the_first():
    once = built().with_reference_logprobs([-1.0, -1.0, -1.0])
    assert reference(once.with_reference_logprobs([-2.0, -2.0, -2.0])) == [0.0, -2.0, -2.0]


@pytest.mark.parametrize(
    ("values", "kind", "words"),
    [
        ([-1.0] * 2, sk.AlignmentError, "holds 2 values, the sample has 3 positions: pass one for every target token"),
        ([-1.0] * 4, sk.AlignmentError, "holds 4 values, .*leave out the first, or pass them to build_sample"),
        ([], sk.AlignmentError, "is empty"), (np.zeros((1, 3)), sk.AlignmentError, "has shape"),
        ([-1.0, float("nan"), -1.0], sk.SampleError, "holds nan at index 1, where the sample trains"),
        ([-1.0, None, -1.0], sk.SampleError, "holds nan at index 1"),
        ([-1.0, -1.0, float("-inf")], sk.SampleError, "holds -inf at index 2"),
        ([-1.0, -1.0, 0.5], sk.SampleError, "holds 0.5 at index 2, .*expected at most 0: pass natural-log"),
        ([-1.0, "x", 0.5], sk.SampleError, "holds 'x' at index 1"), (None, sk.SampleError, "is None"),
    ],
)  # fmt: skip
def test_what_is_no_reference_is_refused_by_index(values, kind, words):
    with pytest.raises(kind, match=f"reference_logprobs {words}"):
        built().with_reference_logprobs(values)
