"""JSON out and in: float32 bit for bit in the shortest digits, and every way of writing a sample agrees."""

import json

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplekit import EncodedText, ModelInput, Sample, TensorData, build_sample
from samplekit.sample.digits import first_numbers, print_numbers, shared_buffer, shortest_floats

HARD_FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.1, 1 / 3, 1e-45, -1e-45, 1.1754942e-38, 1.17549435e-38, 3.4028235e38, -3.4028235e38, 1e16,
    16777216.0, 16777215.0, 1e-7, 9.999999e-5, 123456.79, -6.238325, 5e-324,
]  # fmt: skip


def float32(bits):
    return np.array(bits, dtype=np.uint32).view(np.float32)


finite_arrays = (
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=60)
    .map(float32)
    .map(lambda values: np.where(np.isfinite(values), values, np.float32(1)))
)


def array_json(values):
    """Print an array as a sample does: as runs where they are few."""
    tensor = TensorData(values, "float32" if values.dtype.kind == "f" else "int64").compact()
    return b"[%s]" % bytes(tensor.print_numbers())


def with_arrays(num_positions, **arrays):
    tokens = np.arange(num_positions)
    inputs = {"target_tokens": TensorData(tokens + 1, "int64")}
    inputs.update({name: TensorData(values, dtype) for name, (values, dtype) in arrays.items()})
    return Sample(ModelInput.from_tokens(tokens), inputs)


def assert_same_bits(first, second):
    assert list(first.loss_fn_inputs) == list(second.loss_fn_inputs)
    for name, tensor in first.loss_fn_inputs.items():
        other = second.loss_fn_inputs[name]
        assert (other.dtype, other.data.dtype) == (tensor.dtype, tensor.data.dtype)
        assert other.data.tobytes() == tensor.data.tobytes()
    assert second.model_input == first.model_input
    assert second.routed_experts_key == first.routed_experts_key


def assert_every_way_agrees(sample):
    """Every writer gives the same JSON values, and every reader the same bits."""
    wire = sample.to_wire()
    assert json.loads(sample.to_json()) == wire == orjson.loads(sample.to_json())
    shown = sample.model_dump(mode="json")
    shown.pop("info", None)
    dumped = json.loads(sample.model_dump_json())
    dumped.pop("info", None)
    assert shown == wire == dumped
    for read in (
        Sample.from_wire(wire),
        Sample.from_wire(json.loads(sample.to_json())),
        Sample.model_validate(shown),
        Sample.model_validate_json(sample.to_json()),
        Sample.model_validate_json(sample.model_dump_json()),
        Sample.model_validate(sample.model_dump()),
    ):
        assert_same_bits(sample, read)


@given(finite_arrays)
def test_any_float32_reads_back_bit_for_bit(values):
    printed = array_json(values)
    assert np.array(json.loads(printed), dtype=np.float32).tobytes() == values.tobytes()
    assert np.array(shortest_floats(values), dtype=np.float32).tobytes() == values.tobytes()


@given(finite_arrays, st.integers(1, 40))
def test_runs_of_equal_values_read_back_bit_for_bit_and_are_printed_no_longer_than_one_by_one(values, repeats):
    repeated = np.repeat(values, repeats)
    printed = array_json(repeated)
    assert len(printed) <= len(b"[%s]" % bytes(print_numbers(repeated)))
    assert np.array(json.loads(printed), dtype=np.float32).tobytes() == repeated.tobytes()


@given(finite_arrays | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30).map(np.array))
def test_the_first_of_printed_numbers_are_those_of_the_first_values(values):
    for count in (1, 8, len(values), len(values) + 1):
        assert json.loads(b"[%s]" % first_numbers(count)(print_numbers(values))) == json.loads(
            b"[%s]" % bytes(print_numbers(values[:count]))
        )


def test_whole_floats_are_printed_without_their_point_but_for_minus_zero():
    assert array_json(np.array([0, 1, -2, 10, 0.5, 1e16], dtype=np.float32)) == b"[0,1,-2,10,0.5,1e+16]"
    assert array_json(np.array([1, -0.0, 0], dtype=np.float32)) == b"[1.0,-0.0,0.0]"
    assert array_json(np.array([0, 1, -2.5], dtype=np.float32)) == b"[0.0,1.0,-2.5]"  # few are whole: not looked for
    spans = np.repeat(np.array([0, -0.0, 3, -0.25], dtype=np.float32), 50)
    assert array_json(spans) == b"[%s]" % b",".join([b"0"] * 50 + [b"-0.0"] * 50 + [b"3"] * 50 + [b"-0.25"] * 50)
    assert array_json(np.array([0] * 200 + [1] * 200, dtype=np.float32)) == b"[" + b"0," * 200 + b"1," * 199 + b"1]"
    assert array_json(np.array([0.0] * 99 + [-0.0] * 99, dtype=np.float32)).count(b"-0.0") == 99


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=30), st.integers(1, 40))
def test_int64_values_read_back_exactly(values, repeats):
    repeated = np.repeat(np.array(values, dtype=np.int64), repeats)
    assert json.loads(array_json(repeated)) == repeated.tolist()


@given(finite_arrays)
def test_a_sample_of_any_float32_reads_back_bit_for_bit(values):
    sample = with_arrays(len(values), weights=(values, "float32"), logprobs=(values[::-1], "float32"))
    assert_every_way_agrees(sample)


@pytest.mark.parametrize("repeats", [1, 8, 9, 50])
def test_hard_floats_read_back_bit_for_bit_alone_and_in_runs(repeats):
    values = np.repeat(np.array(HARD_FLOATS, dtype=np.float32), repeats)
    assert_every_way_agrees(with_arrays(len(values), weights=(values, "float32")))


@pytest.mark.parametrize("value", HARD_FLOATS)
def test_a_single_value_reads_back_bit_for_bit(value):
    assert_every_way_agrees(with_arrays(1, weights=([value], "float32")))


def test_zero_keeps_its_sign_inside_a_run():
    values = np.array([0.0] * 20 + [-0.0] * 20 + [0.0] * 20, dtype=np.float32)
    found = np.array(json.loads(array_json(values)), dtype=np.float32)
    assert np.signbit(found).tolist() == [False] * 20 + [True] * 20 + [False] * 20


def test_floats_are_printed_in_their_shortest_digits():
    assert array_json(np.array([0.1, -0.2, 1e-45, 3.4e38], dtype=np.float32)) == b"[0.1,-0.2,1e-45,3.4e+38]"
    assert shortest_floats(np.array([0.1, 1 / 3], dtype=np.float32)) == [0.1, 0.33333334]


@given(finite_arrays)
def test_no_shorter_digits_would_read_back_as_the_same_float32(values):
    printed = array_json(values).decode()
    for value, text in zip(values, printed[1:-1].split(","), strict=True):
        digits = text.lstrip("-").split("e")[0].replace(".", "").strip("0")
        assert not text.endswith(".0") or "-0.0" in printed or not values[-1].is_integer()
        if len(digits) > 1:
            assert np.float32(f"{value:.{len(digits) - 2}e}") != value


def test_weights_and_mask_of_int64_stay_ints():
    sample = with_arrays(40, weights=([0] * 20 + [1] * 20, "int64"))
    assert sample.to_wire()["loss_fn_inputs"]["weights"]["data"][19:21] == [0, 1]
    assert b'"weights":{"data":[0,0,' in sample.to_json()
    assert_every_way_agrees(sample)


@pytest.mark.parametrize("num_tokens", [2, 3, 9, 300])
@pytest.mark.parametrize("token", [0, 7, 151_645])
def test_repeated_tokens_are_sliced_from_one_print_exactly(num_tokens, token):
    sample = build_sample([token] * num_tokens, [0] + [1] * (num_tokens - 1))
    assert sample.to_wire()["model_input"]["chunks"][0]["encoded_text"]["tokens"] == [token] * (num_tokens - 1)
    assert_every_way_agrees(sample)


@given(st.lists(st.integers(0, 300_000), min_size=2, max_size=40))
def test_any_tokens_and_their_targets_read_back_exactly(tokens):
    sample = build_sample(tokens, [1] * len(tokens))
    found = json.loads(sample.to_json())
    assert found["model_input"]["chunks"][0]["encoded_text"]["tokens"] + tokens[-1:] == tokens
    assert tokens[:1] + found["loss_fn_inputs"]["target_tokens"]["data"] == tokens
    assert_every_way_agrees(sample)


@pytest.mark.parametrize("sizes", [(1,), (1, 1), (2, 3), (5, 1, 30)])
def test_model_inputs_of_several_chunks_read_back_as_they_were(sizes):
    starts = np.cumsum((0, *sizes))
    chunks = [EncodedText(range(start, start + size)) for start, size in zip(starts, sizes, strict=False)]
    total = int(starts[-1])
    sample = Sample(ModelInput(chunks), {"target_tokens": TensorData(range(1, total + 1), "int64")})
    assert sample.model_input.tokens.tolist() == list(range(total))
    assert [len(chunk["encoded_text"]["tokens"]) for chunk in sample.to_wire()["model_input"]["chunks"]] == list(sizes)
    assert_every_way_agrees(sample)


def test_a_sample_without_targets_or_inputs_is_written_too():
    assert_every_way_agrees(Sample(ModelInput.from_tokens([1, 2]), {}))
    assert Sample(ModelInput.from_tokens([1, 2]), {}).to_json() == (
        b'{"model_input":{"chunks":[{"encoded_text":{"tokens":[1,2]}}]},"loss_fn_inputs":{}}'
    )


def test_the_six_token_example_is_spelled_as_the_service_does():
    sample = build_sample(range(10, 16), [0, 0, 0, 1, 1, 1])
    assert sample.to_json() == (
        b'{"model_input":{"chunks":[{"encoded_text":{"tokens":[10,11,12,13,14]}}]},"loss_fn_inputs":{'
        b'"target_tokens":{"data":[11,12,13,14,15],"dtype":"int64"},'
        b'"weights":{"data":[0,0,1,1,1],"dtype":"float32"}}}'
    )
    assert_every_way_agrees(sample)


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "naïve", "日本", "new\nline", ""])
def test_names_and_keys_of_any_text_are_escaped(name):
    sample = with_arrays(2, **{name: ([1, 2], "int64")}).model_copy(update={"routed_experts_key": f"key-{name}"})
    assert_every_way_agrees(sample)


def test_info_and_absent_fields_never_go_on_the_wire():
    plain = build_sample([1, 2], [0, 1])
    informed = build_sample([1, 2], [0, 1], info={"source": "a.jsonl:3", "reward": np.float32(0.5)})
    assert plain.to_json() == informed.to_json()
    assert plain.to_wire() == informed.to_wire()
    assert set(plain.to_wire()) == {"model_input", "loss_fn_inputs"}
    assert set(build_sample([1, 2], [0, 1], routed_experts_key="k").to_wire()) == {
        "model_input", "loss_fn_inputs", "routed_experts_key",
    }  # fmt: skip


def test_model_dump_keeps_info_so_that_files_can():
    sample = build_sample([1, 2], [0, 1], info={"source": "a", "rung": 2})
    assert sample.model_dump(mode="json")["info"] == {"source": "a", "rung": 2}
    assert Sample.model_validate_json(sample.model_dump_json()).info == sample.info
    assert "info" not in build_sample([1, 2], [0, 1]).model_dump(mode="json")


def test_truncated_samples_print_their_tokens_once():
    sample = build_sample(range(100), [1] * 100, max_length=30, truncation="left")
    tokens, targets = sample.model_input.tokens, sample.loss_fn_inputs["target_tokens"].data
    assert shared_buffer(tokens, targets).tolist() == list(range(70, 100))
    assert_every_way_agrees(sample)


def test_the_json_schema_describes_the_wire():
    schema = Sample.model_json_schema()
    assert schema["required"] == ["model_input", "loss_fn_inputs"]
    assert schema["additionalProperties"] is False
    parts = schema["$defs"]
    assert parts["EncodedText"]["properties"]["tokens"] == {
        "items": {"minimum": 0, "type": "integer"}, "minItems": 1, "title": "Tokens", "type": "array",
    }  # fmt: skip
    assert parts["TensorData"]["properties"]["dtype"]["enum"] == ["int64", "float32"]
    assert parts["TensorData"]["properties"]["data"]["type"] == "array"
    assert parts["ModelInput"]["properties"]["chunks"]["minItems"] == 1
    assert Sample.model_json_schema(mode="serialization")["type"] == "object"


def test_an_empty_experts_key_is_kept_like_any_other():
    sample = build_sample([1, 2], [0, 1], routed_experts_key="")
    assert sample.to_wire()["routed_experts_key"] == ""
    assert Sample.from_wire(orjson.loads(sample.to_json())) == sample
