"""The one shift: what build_sample gives for full, unshifted arrays, and what it refuses."""

import doctest
import re

import numpy as np
import pytest
import torch
from array_kinds import BOOL_KINDS, FLOAT_KINDS, INT_KINDS, OtherDeviceTensor

import samplekit
from samplekit import AlignmentError, SampleError, TensorData, build_sample, check

NAN, INF = float("nan"), float("inf")
TOKENS, MASK = [10, 11, 12, 13, 14, 15], [0, 0, 0, 1, 1, 1]


def arrays(sample):
    return {name: tensor.data.tolist() for name, tensor in sample.loss_fn_inputs.items()}


def refusal(*args, **options):
    with pytest.raises(SampleError) as caught:
        build_sample(*args, **options)
    assert re.search(r": \w", caught.value.message), "says what to do"
    return caught.value


def test_the_docstring_examples_hold():
    tested = doctest.testmod(samplekit.build, raise_on_error=True)
    assert tested.attempted >= 4


def test_six_tokens_give_five_positions_and_every_value_stays_with_its_token():
    sample = build_sample(
        TOKENS, MASK, advantages=[0, 0, 0, 3, 4, 5], logprobs=[0, -0.125, -0.25, -0.375, -0.5, -0.625],
        reference_logprobs=[0, -1, -2, -3, -4, -5], extra={"position": range(6), "value": [0.5, 1, 2, 3, 4, 5]},
    )  # fmt: skip
    assert sample.model_input.tokens.tolist() == [10, 11, 12, 13, 14]
    assert arrays(sample) == {
        "target_tokens": [11, 12, 13, 14, 15],
        "weights": [0, 0, 1, 1, 1],
        "advantages": [0, 0, 3, 4, 5],
        "logprobs": [-0.125, -0.25, -0.375, -0.5, -0.625],
        "reference_logprobs": [-1, -2, -3, -4, -5],
        "position": [1, 2, 3, 4, 5],
        "value": [1, 2, 3, 4, 5],
    }
    assert sample.tokens.tolist() == TOKENS
    assert sample.loss_mask.tolist() == MASK
    assert {name: tensor.dtype for name, tensor in sample.loss_fn_inputs.items()} == {
        "target_tokens": "int64", "weights": "float32", "advantages": "float32", "logprobs": "float32",
        "reference_logprobs": "float32", "position": "int64", "value": "float32",
    }  # fmt: skip


def test_the_shortest_sample_has_two_tokens():
    sample = build_sample([7, 8], [0, 1])
    assert (sample.length, sample.num_trained, sample.tokens.tolist()) == (1, 1, [7, 8])
    assert isinstance(refusal([7], [1]), AlignmentError)


@pytest.mark.parametrize("kind", INT_KINDS)
def test_tokens_of_any_kind_build_the_same_sample(kind):
    assert build_sample(INT_KINDS[kind](TOKENS), MASK) == build_sample(TOKENS, MASK)
    assert build_sample(range(10, 16), MASK) == build_sample(TOKENS, MASK)


@pytest.mark.parametrize("kind", [*FLOAT_KINDS, *BOOL_KINDS])
def test_masks_and_numbers_of_any_kind_build_the_same_sample(kind):
    cast = {**FLOAT_KINDS, **BOOL_KINDS}[kind]
    found = build_sample(TOKENS, cast(MASK), advantages=cast(MASK), extra=None)
    assert found == build_sample(TOKENS, MASK, advantages=MASK)


@pytest.mark.parametrize("kind", [kind for kind in FLOAT_KINDS if kind not in INT_KINDS])
def test_logprobs_of_any_float_kind_build_the_same_sample(kind):
    logprobs = [0.0, 0.0, 0.0, -0.5, -1.0, -2.0]
    found = build_sample(TOKENS, MASK, logprobs=FLOAT_KINDS[kind](logprobs), reference_logprobs=tuple(logprobs))
    assert found == build_sample(TOKENS, MASK, logprobs=logprobs, reference_logprobs=logprobs)


def test_the_mask_of_token_0_reads_back_as_0():
    assert build_sample([1, 2, 3], [1, 1, 0]).loss_mask.tolist() == [0.0, 1.0, 0.0]


def test_fractional_and_negative_weights_are_kept():
    assert build_sample([1, 2, 3], [0, 0.5, -1]).loss_mask.tolist() == [0.0, 0.5, -1.0]


@pytest.mark.parametrize("length", [1, 2, 5, 7, 12])
@pytest.mark.parametrize("name", ["loss_mask", "advantages", "logprobs", "reference_logprobs", "extra['x']"])
def test_arrays_of_another_length_are_refused_and_both_lengths_named(name, length):
    values = [0.0] * (length - 1) + [-1.0]
    options = {"extra": {"x": values}} if name.startswith("extra") else {} if name == "loss_mask" else {name: values}
    error = refusal(TOKENS, values if name == "loss_mask" else MASK, **options)
    assert isinstance(error, AlignmentError)
    assert error.message.startswith(f"{name} has length {length}, tokens has length 6")
    assert ("looks already shifted" in error.message) == (length == 5)


@pytest.mark.parametrize("values", [[], np.array([]), np.ones((1, 6)), np.array(1.0), [[0, 0, 0, 1, 1, 1]]])
@pytest.mark.parametrize("name", ["tokens", "loss_mask", "logprobs"])
def test_empty_and_other_than_1d_arrays_are_refused(name, values):
    given = {"tokens": TOKENS, "loss_mask": MASK, name: values}
    error = refusal(given.pop("tokens"), given.pop("loss_mask"), **given)
    assert isinstance(error, AlignmentError)
    assert error.message.startswith(name)


@pytest.mark.parametrize("index", [0, 3, 5])
@pytest.mark.parametrize("value", [True, "7", 1.5, None, -1, -100, NAN, 2**63])
def test_what_is_no_token_id_is_refused_with_its_index(value, index):
    tokens = list(TOKENS)
    tokens[index] = value
    assert f"tokens holds {value!r} at index {index}," in refusal(tokens, MASK).message


@pytest.mark.parametrize("name", ["loss_mask", "advantages", "logprobs", "reference_logprobs", "extra['x']"])
@pytest.mark.parametrize("value", [NAN, INF, -INF, None, 1e39])
@pytest.mark.parametrize("index", [3, 4, 5])
def test_a_value_that_is_not_finite_is_refused_where_it_trains(name, value, index):
    values = [0.0, 0.0, 0.0, -1.0, -1.0, -1.0]
    values[index] = value
    options = {"extra": {"x": values}} if name.startswith("extra") else {} if name == "loss_mask" else {name: values}
    error = refusal(TOKENS, values if name == "loss_mask" else MASK, **options)
    assert error.message.startswith(f"{name} holds {value} at index {index}, expected a finite")


@pytest.mark.parametrize("name", ["loss_mask", "advantages", "extra['x']"])
@pytest.mark.parametrize("value", [NAN, INF, None])
def test_only_logprobs_may_be_missing_where_nothing_trains(name, value):
    values = [0.0, value, 0.0, 1.0, 1.0, 1.0]
    options = {"extra": {"x": values}} if name.startswith("extra") else {} if name == "loss_mask" else {name: values}
    assert "at index 1" in refusal(TOKENS, values if name == "loss_mask" else MASK, **options).message


@pytest.mark.parametrize("name", ["logprobs", "reference_logprobs"])
@pytest.mark.parametrize("cast", [list, tuple, np.array, lambda v: np.array(v, dtype=object)])
@pytest.mark.parametrize("value", [NAN, INF, -INF, None])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_missing_logprobs_are_written_as_0_where_nothing_trains(name, cast, value, index):
    values = [-9.0, -8.0, -7.0, -1.0, -2.0, -3.0]
    values[index] = value
    if cast is np.array and value is None:
        values[index] = NAN
    found = build_sample(TOKENS, MASK, **{name: cast(values)})
    expected = [-9.0, -8.0, -7.0, -1.0, -2.0, -3.0]
    expected[index] = 0.0
    assert arrays(found)[name] == expected[1:]


def test_missing_logprobs_in_a_tensor_are_written_as_0_where_nothing_trains():
    values = torch.tensor([NAN, NAN, -INF, -1.0, -2.0, -3.0], dtype=torch.bfloat16, requires_grad=True)
    assert arrays(build_sample(TOKENS, MASK, logprobs=values))["logprobs"] == [0.0, 0.0, -1.0, -2.0, -3.0]


def test_token_0_needs_no_logprob_even_where_its_mask_says_it_trains():
    assert arrays(build_sample([1, 2], [1, 1], logprobs=[None, -0.5]))["logprobs"] == [-0.5]
    assert arrays(build_sample([1, 2], [1, 1], logprobs=[5.0, -0.5]))["logprobs"] == [-0.5]


@pytest.mark.parametrize("name", ["logprobs", "reference_logprobs"])
@pytest.mark.parametrize("index", [3, 4, 5])
@pytest.mark.parametrize("value", [0.0011, 0.5, 1.0, 88.0])
def test_a_log_probability_above_0_is_refused_where_it_trains(name, index, value):
    values = [7.0, 7.0, 7.0, -1.0, -2.0, -3.0]  # where nothing trains, any number will do
    assert build_sample(TOKENS, MASK, **{name: values}).length == 5
    values[index] = value
    message = refusal(TOKENS, MASK, **{name: values}).message
    assert message.startswith(f"{name} holds {np.float32(value)} at index {index}, expected at most 0")


def test_a_hair_above_0_is_a_samplers_rounding():
    assert build_sample([1, 2], [0, 1], logprobs=[0, 0.00099]).length == 1


@pytest.mark.parametrize(
    "number",
    [0.5, -2, np.float32(0.5), np.int16(3), np.array(0.5), torch.tensor(0.5), torch.tensor(2, dtype=torch.int32)],
)
def test_one_advantage_stands_where_the_mask_is_not_0(number):
    found = arrays(build_sample(TOKENS, [0, 0.5, 0, 1, -1, 0], advantages=number))["advantages"]
    assert found == [float(number) if trained else 0.0 for trained in (1, 0, 1, 1, 0)]


@pytest.mark.parametrize("number", [NAN, INF, -INF, 1e39, 10**400, np.float32(NAN), torch.tensor(NAN)])
def test_one_advantage_must_be_finite(number):
    assert "expected a finite" in refusal(TOKENS, MASK, advantages=number).message


@pytest.mark.parametrize("value", [True, "0.5", np.bool_(True), 1j, {}])
def test_an_advantage_that_is_no_number_is_refused(value):
    assert refusal(TOKENS, MASK, advantages=value).message.startswith("advantages")


def test_an_advantage_of_0_keeps_the_sample():
    assert arrays(build_sample(TOKENS, MASK, advantages=0))["advantages"] == [0.0] * 5


@pytest.mark.parametrize(
    ("mask", "options", "found"),
    [
        ([0] * 6, {}, "is 0 everywhere"),
        ([False] * 6, {}, "is 0 everywhere"),
        ([1, 0, 0, 0, 0, 0], {}, "trains token 0 only"),
        (MASK, {"max_length": 3}, "max_length=3"),
        ([1, 1, 0, 0, 0, 0], {"max_length": 4, "truncation": "left"}, "max_length=4"),
        ([0, 0, 1, 0, 0, 0], {"max_length": 4, "truncation": "left"}, "max_length=4"),  # token 2 becomes the first
    ],
)
def test_a_sample_that_trains_nothing_after_the_shift_is_refused(mask, options, found):
    message = refusal(TOKENS, mask, **options).message
    assert message.startswith("loss_mask")
    assert found in message
    assert "expected at least one trained token" in message


@pytest.mark.parametrize(("truncation", "kept"), [("right", [10, 11, 12, 13]), ("left", [12, 13, 14, 15])])
def test_max_length_counts_tokens_of_the_full_sequence_and_cuts_every_array_alike(truncation, kept):
    sample = build_sample(
        TOKENS, MASK, advantages=MASK, logprobs=[-10, -11, -12, -13, -14, -15], extra={"id": TOKENS}, max_length=4,
        truncation=truncation,
    )  # fmt: skip
    assert sample.tokens.tolist() == kept
    assert sample.length == 3
    found = arrays(sample)
    assert found["target_tokens"] == found["id"] == [-value for value in found["logprobs"]] == kept[1:]
    assert found["weights"] == found["advantages"] == [float(token >= 13) for token in kept[1:]]


@pytest.mark.parametrize("max_length", [6, 7, 1000, np.int64(6), None])
@pytest.mark.parametrize("truncation", ["left", "right"])
def test_a_sequence_that_fits_is_not_cut(max_length, truncation):
    assert build_sample(TOKENS, MASK, max_length=max_length, truncation=truncation) == build_sample(TOKENS, MASK)


@pytest.mark.parametrize("max_length", [0, 1, -5, 2.0, True, "4", NAN])
def test_a_max_length_that_leaves_no_position_is_refused(max_length):
    assert refusal(TOKENS, MASK, max_length=max_length).message.startswith(f"max_length is {max_length!r}")


@pytest.mark.parametrize("truncation", ["middle", None, "error", "RIGHT"])
def test_an_unknown_truncation_is_refused_even_where_nothing_is_cut(truncation):
    assert "expected 'right' or 'left'" in refusal(TOKENS, MASK, truncation=truncation).message


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2, 3], "int64"), ([0.5, 1, 2], "float32"), ([1.0, 2.0, 3.0], "float32"), ([-1, 2, 3], "float32"),
        ([True, False, True], "float32"), (np.array([1, 2, 3], dtype=np.uint8), "int64"),
        (torch.tensor([0.5, 1, 2]), "float32"), (OtherDeviceTensor([1, 2, 3]), "int64"),
        (TensorData([1, 2, 3], "float32"), "float32"),
    ],
)  # fmt: skip
def test_extra_arrays_take_the_dtype_of_their_values(values, dtype):
    tensor = build_sample([5, 6, 7], [0, 1, 1], extra={"more": values}).loss_fn_inputs["more"]
    assert tensor.dtype == dtype
    assert len(tensor.data) == 2


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("weights", "loss_mask"), ("mask", "loss_mask"), ("target_tokens", "tokens"), ("logprobs", "logprobs="),
        ("advantages", "advantages="), ("reference_logprobs", "reference_logprobs="),
    ],
)  # fmt: skip
def test_known_inputs_cannot_slip_in_through_extra(name, instead):
    message = refusal(TOKENS, MASK, extra={name: MASK}).message
    assert message.startswith(f"extra['{name}']")
    assert message.endswith(f"pass it through {instead}")


@pytest.mark.parametrize("name", [1, None, ""])
def test_extra_names_are_text(name):
    assert refusal(TOKENS, MASK, extra={name: MASK}).message.startswith("extra holds an array called")


def test_the_experts_key_is_text_and_info_a_mapping():
    assert build_sample(TOKENS, MASK, routed_experts_key="k", info={"a": 1}).routed_experts_key == "k"
    assert refusal(TOKENS, MASK, routed_experts_key=5).message.startswith("routed_experts_key is 5")
    assert refusal(TOKENS, MASK, info=["a"]).message.startswith("info is a list")


def test_the_callers_arrays_stay_theirs_and_unchanged():
    tokens, mask, logprobs = np.array(TOKENS), np.array(MASK, dtype=np.float32), np.array([NAN, 0, 0, -1, -1, -1])
    sample = build_sample(tokens, mask, logprobs=logprobs)
    before = sample.to_json()
    tokens[:], mask[:], logprobs[:] = 1, 0.25, 7.0  # writable still
    assert sample.to_json() == before


def test_whatever_is_built_passes_check():
    assert check([build_sample(TOKENS, MASK, advantages=1.0, logprobs=[-1.0] * 6)]).ok


@pytest.mark.parametrize("place", [0, 1, 3])
def test_labels_are_no_mask(place):
    labels = [1.0, 2.0, 3.0, 4.0]
    labels[place] = -100
    with pytest.raises(SampleError, match=rf"-100 at index {place}.*labels != -100"):
        build_sample([1, 2, 3, 4], labels)
