"""Sample and its parts, constructed directly: what they refuse (pydantic's ValidationError), accept and show."""

import inspect

import numpy as np
import pytest
import torch
from array_kinds import FLOAT_KINDS, INT_KINDS
from pydantic import ValidationError

from samplekit import AlignmentError, EncodedText, LossInputError, ModelInput, Sample, SampleError, TensorData
from samplekit.sample import KNOWN_DTYPES, Chunk


def tensors(**arrays):
    return {name: TensorData(data, dtype) for name, (data, dtype) in arrays.items()}


def sample(**changes):
    inputs = {"target_tokens": ([2, 3, 4], "int64"), "weights": ([0, 1, 1], "float32"), **changes}
    return Sample(ModelInput.from_tokens([1, 2, 3]), tensors(**{k: v for k, v in inputs.items() if v is not None}))


def refused(make, *fragments):
    with pytest.raises(ValidationError) as caught:
        make()
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_fields_may_be_given_by_position_or_by_name():
    assert TensorData([1, 2], "int64") == TensorData(data=[1, 2], dtype="int64")
    assert EncodedText([1, 2]) == EncodedText(tokens=(1, 2))
    assert ModelInput([EncodedText([1, 2])]) == ModelInput(chunks=[{"encoded_text": {"tokens": [1, 2]}}])
    assert sample() == Sample(loss_fn_inputs=sample().loss_fn_inputs, model_input=sample().model_input)
    assert ModelInput([Chunk(EncodedText([1])), EncodedText([2])]).tokens.tolist() == [1, 2]


def test_too_many_positions_are_a_type_error_as_in_any_python_call():
    with pytest.raises(TypeError, match="TensorData takes 2 values at most, got 3"):
        TensorData([1], "int64", 3)


def test_constructors_have_a_signature():
    assert str(inspect.signature(TensorData)) == "(data, dtype)"
    assert str(inspect.signature(Sample)) == "(model_input, loss_fn_inputs, routed_experts_key=None, info={})"


@pytest.mark.parametrize("kind", INT_KINDS)
def test_int64_data_of_any_kind_is_the_same_tensor(kind):
    assert TensorData(INT_KINDS[kind]([1, 2, 3]), "int64") == TensorData([1, 2, 3], "int64")
    assert ModelInput.from_tokens(INT_KINDS[kind]([1, 2, 3])) == ModelInput.from_tokens(range(1, 4))


@pytest.mark.parametrize("kind", FLOAT_KINDS)
def test_float32_data_of_any_kind_is_the_same_tensor(kind):
    found = TensorData(FLOAT_KINDS[kind]([1, 0, 2]), "float32")
    assert found == TensorData([1.0, 0.0, 2.0], "float32")
    assert found.data.dtype == np.float32


@pytest.mark.parametrize("value", [True, "7", 1.5, None, -1, -100, 2**63])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_what_is_no_token_id_is_refused_in_every_place(value, index):
    ids = [1, 2, 3]
    ids[index] = value
    refused(lambda: TensorData(ids, "int64"), "data", f"{value!r} at index {index}")
    refused(lambda: EncodedText(ids), "tokens", f"{value!r} at index {index}")
    refused(lambda: ModelInput.from_tokens(ids), f"{value!r} at index {index}")
    refused(lambda: Sample({"chunks": [{"encoded_text": {"tokens": ids}}]}, {}), f"{value!r} at index {index}")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_what_is_no_finite_number_is_refused_in_every_place(value, index):
    numbers = [0.1, 0.2, 0.3]
    numbers[index] = value
    refused(lambda: TensorData(numbers, "float32"), f"data holds {value} at index {index}, expected a finite")
    refused(lambda: sample(logprobs=(numbers, "float32")), f"index {index}")


@pytest.mark.parametrize("data", [[], [[1, 2]], np.array(1), np.ones((1, 3), dtype=np.int64), torch.ones(2, 2)])
def test_empty_and_other_than_1d_data_are_refused(data):
    refused(lambda: TensorData(data, "int64"), "data")
    refused(lambda: TensorData(data, "float32"), "data")
    refused(lambda: EncodedText(data), "tokens")


@pytest.mark.parametrize("dtype", ["float64", "int32", "D_TYPE_FLOAT32", "", None, 5, ["int64"], np.float32])
def test_other_dtypes_are_refused(dtype):
    refused(lambda: TensorData([1, 2], dtype), "dtype")


def test_fields_are_closed_and_required():
    refused(lambda: TensorData([1], "int64", name="x"), "name")
    refused(lambda: TensorData([1]), "dtype", "Field required")
    refused(EncodedText, "tokens", "Field required")
    refused(lambda: ModelInput([]), "chunks")
    refused(lambda: ModelInput("text"), "chunks")
    refused(lambda: Sample(ModelInput.from_tokens([1]), {}, weights=1), "weights")
    refused(lambda: Sample(ModelInput.from_tokens([1]), {}, routed_experts_key=5), "routed_experts_key")


@pytest.mark.parametrize("length", [1, 2, 4])
def test_arrays_of_another_length_are_refused_and_both_lengths_named(length):
    text = f"loss_fn_inputs['weights'] holds {length} values, model_input holds 3 tokens"
    refused(lambda: sample(weights=([1] * length, "float32")), text)
    refused(lambda: sample(extra=([1] * length, "int64")), f"loss_fn_inputs['extra'] holds {length} values")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("target_tokens", "float32"), ("advantages", "int64"), ("logprobs", "int64"), ("reference_logprobs", "int64"),
    ],
)  # fmt: skip
def test_a_known_input_of_another_dtype_is_refused(name, dtype):
    refused(lambda: sample(**{name: ([1, 1, 1], dtype)}), f"loss_fn_inputs['{name}'] has dtype {dtype}")


@pytest.mark.parametrize("name", ["weights", "mask"])
@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_weights_and_mask_may_be_of_either_dtype(name, dtype):
    made = sample(**{"weights": None, name: ([0, 1, 1], dtype)})
    assert made.num_trained == 2
    assert made.loss_mask.tolist() == [0, 0, 1, 1]
    assert made.loss_mask.dtype == np.float32


def test_weights_and_mask_together_are_refused():
    refused(lambda: sample(mask=([0, 1, 1], "float32")), "both 'weights' and 'mask'", "keep one")


def test_what_check_and_the_service_judge_is_accepted():
    assert sample(unheard_of=([1, 2, 3], "int64")).length == 3
    assert sample(weights=([0, 0, 0], "float32")).num_trained == 0
    assert sample(weights=([0, -1, 1], "float32")).num_trained == 2
    assert sample(target_tokens=([9, 9, 9], "int64")).tokens.tolist() == [1, 2, 3, 9]
    assert sample(logprobs=([0.5, 0.5, 0.5], "float32"), advantages=([1, 1, 1], "float32")).length == 3


def test_properties_give_the_full_unshifted_sequence():
    made = sample(weights=([0, 0.5, 1], "float32"))
    assert made.tokens.tolist() == [1, 2, 3, 4]
    assert made.tokens.dtype == np.int64
    assert made.loss_mask.tolist() == [0, 0, 0.5, 1]
    assert (made.length, made.num_trained, made.model_input.length) == (3, 2, 3)
    assert not made.tokens.flags.writeable
    assert not made.loss_mask.flags.writeable


def test_without_weights_every_position_trains_and_without_targets_the_last_token_is_unknown():
    made = Sample(ModelInput.from_tokens([1, 2]), {})
    assert made.num_trained == 2
    assert made.loss_mask.tolist() == [0, 1, 1]
    with pytest.raises(LossInputError, match="target_tokens"):
        _ = made.tokens


def test_everything_is_frozen():
    made = sample()
    for change in (
        lambda: setattr(made, "info", {}),
        lambda: setattr(made.model_input, "chunks", ()),
        lambda: setattr(made.loss_fn_inputs["weights"], "dtype", "int64"),
    ):
        with pytest.raises(ValidationError):
            change()
    with pytest.raises(TypeError):
        made.loss_fn_inputs["weights"] = made.loss_fn_inputs["weights"]
    for array in (made.model_input.tokens, *(tensor.data for tensor in made.loss_fn_inputs.values())):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_repr_shows_lengths_not_contents():
    long = Sample(
        ModelInput.from_tokens(range(100_000)),
        tensors(target_tokens=(range(1, 100_001), "int64"), weights=([0] * 99_999 + [1], "float32")),
    )
    assert repr(long) == str(long) == "Sample(100000 positions, 1 trained: target_tokens, weights)"
    assert repr(long.model_input) == "ModelInput(100000 tokens in 1 chunk)"
    assert repr(long.loss_fn_inputs["weights"]) == "TensorData(float32[100000])"
    assert repr(EncodedText([1, 2])) == "EncodedText(int64[2])"
    assert repr(ModelInput([EncodedText([1]), EncodedText([2])])) == "ModelInput(2 tokens in 2 chunks)"


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"weights": {"data": [1, 1], "dtype": "float32"}}, AlignmentError,
         "loss_fn_inputs['weights'] holds 2 values, model_input holds 3 tokens"),
        ({"logprobs": {"data": [0, 0, 0], "dtype": "int64"}}, LossInputError,
         "loss_fn_inputs['logprobs'] has dtype int64, expected float32"),
        ({"logprobs": {"data": [0, None, 0], "dtype": "float32"}}, SampleError,
         "loss_fn_inputs['logprobs'] data holds None at index 1, expected a finite number"),
        ({"weights": {"data": [0, 0, 1]}}, SampleError, "loss_fn_inputs['weights'].dtype: Field required"),
    ],
)  # fmt: skip
def test_from_wire_raises_our_errors_and_names_the_field(change, kind, message):
    wire = sample().to_wire()
    wire["loss_fn_inputs"].update(change)
    with pytest.raises(SampleError) as caught:
        Sample.from_wire(wire)
    assert type(caught.value) is kind
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize("wire", [None, 5, [], "text", {}, {"model_input": 5, "loss_fn_inputs": {}}])
def test_from_wire_of_what_is_no_sample_is_a_sample_error(wire):
    with pytest.raises(SampleError):
        Sample.from_wire(wire)


def test_from_wire_counts_further_faults():
    with pytest.raises(SampleError, match=r"\(and 1 more fault\)$"):
        Sample.from_wire({})
    bad_chunk = {"model_input": {"chunks": [{"encoded_text": {"tokens": [1, "2"]}}]}, "loss_fn_inputs": {}}
    with pytest.raises(SampleError, match=r"model_input\.chunks\[0\]\.encoded_text tokens holds '2' at index 1"):
        Sample.from_wire(bad_chunk)


def test_known_inputs_are_the_ones_the_losses_read():
    from samplekit.losses import LOSSES

    read = frozenset().union(*(loss(**({"beta": 0.1} if loss.__name__ in ("DRO", "GRPO") else {})).required_inputs()
                               | loss(**({"beta": 0.1} if loss.__name__ == "DRO" else {})).optional_inputs()
                               for loss in LOSSES))  # fmt: skip
    assert read == set(KNOWN_DTYPES)
