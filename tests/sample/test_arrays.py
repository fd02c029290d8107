"""Whatever sequence a caller holds becomes one exact array, or an error that names field, index, value and remedy."""

import re

import numpy as np
import pytest
import torch
from array_kinds import BOOL_KINDS, FLOAT_KINDS, INT_DTYPES, INT_KINDS, OtherDeviceTensor

from samplekit import AlignmentError, SampleError
from samplekit.sample.arrays import floats_array, ids_array, is_finite

PLACES = {"first": 0, "middle": 2, "last": 4}


def refusal(convert, values, name="tokens"):
    with pytest.raises(SampleError) as caught:
        convert(values, name)
    assert caught.value.message.startswith(name)
    assert re.search(r": \w", caught.value.message), "says what to do"
    return caught.value


@pytest.mark.parametrize("kind", INT_KINDS)
def test_ids_of_any_integer_kind_become_the_same_array(kind):
    found = ids_array(INT_KINDS[kind]([3, 0, 1, 120]), "tokens")
    assert found.dtype == np.int64
    assert found.ndim == 1
    assert found.tolist() == [3, 0, 1, 120]
    assert type(found) is np.ndarray
    assert not found.flags.writeable


def test_a_range_is_a_list_of_ids():
    assert ids_array(range(2, 12, 3), "tokens").tolist() == [2, 5, 8, 11]
    assert floats_array(range(3), "loss_mask").tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("kind", FLOAT_KINDS)
def test_numbers_of_any_kind_become_the_same_array(kind):
    found = floats_array(FLOAT_KINDS[kind]([0, 1, 2, 96]), "weights")
    assert found.dtype == np.float32
    assert found.tolist() == [0.0, 1.0, 2.0, 96.0]
    assert not found.flags.writeable


@pytest.mark.parametrize("kind", [kind for kind in FLOAT_KINDS if kind not in INT_KINDS])
def test_fractions_and_signs_survive_any_float_kind(kind):
    found = floats_array(FLOAT_KINDS[kind]([0.5, -1.5, -0.0, 2.0]), "logprobs")
    assert found.tobytes() == np.array([0.5, -1.5, -0.0, 2.0], dtype=np.float32).tobytes()


@pytest.mark.parametrize("kind", BOOL_KINDS)
def test_a_mask_may_be_bool_and_ids_may_not(kind):
    values = BOOL_KINDS[kind]([0, 1, 1])
    assert floats_array(values, "loss_mask").tolist() == [0.0, 1.0, 1.0]
    message = refusal(ids_array, values).message
    assert "index 0" in message
    assert "False" in message


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", [True, False, "7", "x", 1.5, 2.0, None, float("nan"), b"1", 1j, np.float32(3)])
def test_a_value_that_is_no_id_is_named_wherever_it_stands(value, place):
    ids = [3, 4, 5, 6, 7]
    ids[PLACES[place]] = value
    for given in (ids, tuple(ids), np.array(ids, dtype=object)):
        message = refusal(ids_array, given).message
        assert f"holds {value!r} at index {PLACES[place]}," in message


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bool", "complex64", "U2", "S2"])
def test_numpy_arrays_of_other_kinds_are_no_ids_even_where_the_values_are_whole(dtype):
    message = refusal(ids_array, np.array([1, 1, 1]).astype(dtype)).message
    assert "at index 0, expected a token id" in message


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_times_are_no_ids(unit):
    refusal(ids_array, np.array([5, 6], dtype=f"timedelta64[{unit}]"))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["list", "tuple", "numpy int32", "numpy int64", "torch int64", "another device"])
def test_a_negative_id_is_named_wherever_it_stands(kind, place):
    ids = [3, 4, 5, 6, 7]
    ids[PLACES[place]] = -1
    message = refusal(ids_array, INT_KINDS[kind](ids)).message
    assert f"holds -1 at index {PLACES[place]}," in message


@pytest.mark.parametrize("kind", ["list", "numpy int16", "numpy int64", "torch int64"])
def test_the_ignore_label_is_refused_with_what_to_use_instead(kind):
    message = refusal(ids_array, INT_KINDS[kind]([5, -100, 7]), "target_tokens").message
    assert "-100 at index 1" in message
    assert "use weights 0 instead" in message


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
def test_ids_that_wrapped_in_a_small_dtype_are_refused_and_the_dtype_is_named(dtype):
    size = np.iinfo(dtype)
    true_id = size.max + 10_000 if dtype != "int8" else size.max + 20
    wrapped = np.array([5, true_id], dtype=np.int64).astype(dtype)
    for given in (wrapped, torch.from_numpy(wrapped), OtherDeviceTensor(wrapped)):
        message = refusal(ids_array, given).message
        assert f"holds {wrapped[1]} at index 1" in message
        assert f"wrapped in {dtype}" in message
        assert "int64" in message


@pytest.mark.parametrize("value", [2**63, 2**64 - 100, 2**64 - 1])
def test_an_id_beyond_int64_is_refused(value):
    for given in (np.array([1, value], dtype=np.uint64), [1, value], [np.uint64(1), np.uint64(value)]):
        message = refusal(ids_array, given).message
        assert f"holds {value} at index 1" in message
        assert "wrapped" in message
    assert "at index 0" in refusal(ids_array, [2**200, 1]).message


def test_the_largest_id_of_every_dtype_passes():
    for dtype in INT_DTYPES:
        largest = min(np.iinfo(dtype).max, 2**63 - 1)
        assert ids_array(np.array([largest], dtype=dtype), "tokens").tolist() == [largest]
    assert ids_array([2**63 - 1], "tokens").tolist() == [2**63 - 1]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e39, -1e300])
def test_a_number_that_is_not_finite_as_float32_is_named_wherever_it_stands(value, place):
    numbers = [0.0, -0.5, 1.0, 3e38, -3e38]
    numbers[PLACES[place]] = value
    for given in (numbers, tuple(numbers), np.array(numbers), torch.tensor(numbers, dtype=torch.float64)):
        message = refusal(floats_array, given, "logprobs").message
        assert f"holds {value} at index {PLACES[place]}, expected a finite" in message


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_nan_in_a_tensor_of_any_width_is_named(dtype):
    tensor = torch.tensor([0.0, -1.0, float("nan")], dtype=getattr(torch, dtype), requires_grad=True)
    assert "holds nan at index 2" in refusal(floats_array, tensor, "logprobs").message


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", [None, "-0.5", b"1", 1j, {}, 10**400])
def test_a_value_that_is_no_number_is_named_wherever_it_stands(value, place):
    numbers = [0.0, -0.5, 1.0, 0.25, 1.5]
    numbers[PLACES[place]] = value
    for given in (numbers, np.array(numbers, dtype=object)):
        assert f"at index {PLACES[place]}," in refusal(floats_array, given, "weights").message


def test_small_ints_with_one_odd_value_are_not_read_as_a_mask():
    assert floats_array([0, 1, 0.5], "loss_mask").tolist() == [0.0, 1.0, 0.5]
    assert floats_array([0, 1, -1], "loss_mask").tolist() == [0.0, 1.0, -1.0]
    assert floats_array([0, 255, 256], "loss_mask").tolist() == [0.0, 255.0, 256.0]
    assert "None at index 2" in refusal(floats_array, [0, 1, None], "loss_mask").message


def test_missing_numbers_pass_where_the_caller_decides_about_them():
    found = floats_array([None, -1.0, float("inf"), None], "logprobs", missing=float("nan"))
    assert np.isnan(found[[0, 3]]).all()
    assert found[1] == -1.0
    assert np.isinf(found[2])
    assert "'x' at index 1" in refusal(lambda *a: floats_array(*a, missing=0.0), [None, "x"], "logprobs").message


@pytest.mark.parametrize("convert", [ids_array, floats_array])
@pytest.mark.parametrize(
    "values",
    [[], (), range(0), np.array([], dtype=np.int64), torch.tensor([]), OtherDeviceTensor(np.array([]))],
    ids=["list", "tuple", "range", "numpy", "torch", "another device"],
)
def test_nothing_is_refused(convert, values):
    error = refusal(convert, values)
    assert isinstance(error, AlignmentError)
    assert "is empty, expected at least one value" in error.message


@pytest.mark.parametrize("convert", [ids_array, floats_array])
@pytest.mark.parametrize(
    "values",
    [
        [[1, 2], [3, 4]], [(1, 2)], ((1, 2), (3, 4)), [np.array([1, 2])], [np.array([1]), np.array([2])],
        [torch.tensor([1]), torch.tensor([2])], [torch.tensor(1), torch.tensor([2])], [1, [2]],
        np.ones((2, 2), dtype=np.int64), np.array(3), np.int64(3), torch.ones(1, 3, dtype=torch.int64),
        torch.tensor(3), OtherDeviceTensor(np.ones((1, 2), dtype=np.int64)),
    ],
    ids=repr,
)  # fmt: skip
def test_more_or_fewer_dimensions_than_one_are_refused(convert, values):
    error = refusal(convert, values)
    assert isinstance(error, AlignmentError)
    assert "expected one dimension" in error.message


@pytest.mark.parametrize("convert", [ids_array, floats_array])
@pytest.mark.parametrize(
    "values", [None, 5, 0.5, True, "123", b"123", {1, 2}, {1: 2}, iter([1, 2]), object()], ids=repr
)
def test_what_is_no_sequence_is_refused(convert, values):
    assert "expected a 1-D sequence of numbers" in refusal(convert, values).message


@pytest.mark.parametrize("convert", [ids_array, floats_array])
def test_a_masked_array_does_not_show_what_it_hides(convert):
    hiding = np.ma.array([1, 999, 3], mask=[0, 1, 0])
    assert "masked value at index 1" in refusal(convert, hiding).message
    assert convert(np.ma.array([1, 2, 3]), "tokens").tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "tensor", [torch.ones(3, device="meta"), torch.ones(3).to_sparse()], ids=["without data", "sparse"]
)
def test_a_tensor_that_holds_no_dense_values_is_refused(tensor):
    assert "pass a dense tensor" in refusal(floats_array, tensor, "logprobs").message


@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_arrays_are_not_shared_with_the_caller(dtype):
    convert = ids_array if dtype == "int64" else floats_array
    for given in (np.array([1, 2, 3], dtype=dtype), torch.tensor([1, 2, 3], dtype=getattr(torch, dtype))):
        found = convert(given, "tokens")
        given[1] = 9
        assert found.tolist() == [1, 2, 3]


def test_huge_but_finite_numbers_are_finite_and_warn_of_nothing():
    assert is_finite(np.full(2000, 3e38, dtype=np.float32))
    assert not is_finite(np.array([3e38, np.inf], dtype=np.float32))
    assert not is_finite(np.array([np.nan, 0], dtype=np.float32))
