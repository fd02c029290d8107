"""Equality, hashing, copies and pickles: arrays stay read-only, tokens and targets stay one buffer."""

import copy
import gc
import pickle
import tracemalloc

import numpy as np
import pytest
from pydantic import ValidationError

from samplekit import EncodedText, ModelInput, Sample, SampleError, TensorData, build_sample


def built(**options):
    return build_sample(
        range(10, 74), [0] * 32 + [1] * 32, advantages=0.5, logprobs=[-0.25] * 64, info={"source": "a", "tags": [1]},
        routed_experts_key="k", **options,
    )  # fmt: skip


def chunked():
    model_input = ModelInput([EncodedText([1, 2]), EncodedText([3])])
    return Sample(
        model_input, {"target_tokens": TensorData([2, 3, 4], "int64"), "mask": TensorData([0, 1, 1], "int64")}
    )


def buffers(sample):
    """The distinct arrays that own the memory of a sample."""
    found = {}
    arrays = [chunk.encoded_text.tokens for chunk in sample.model_input.chunks]
    for array in arrays + [tensor.data for tensor in sample.loss_fn_inputs.values()]:
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        found[id(owner)] = owner
    return list(found.values())


WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "model_copy": lambda sample: sample.model_copy(),
    "model_copy deep": lambda sample: sample.model_copy(deep=True),
    "pickle": lambda sample: pickle.loads(pickle.dumps(sample)),
    "pickle protocol 2": lambda sample: pickle.loads(pickle.dumps(sample, protocol=2)),
    "wire": lambda sample: Sample.from_wire({**sample.to_wire(), "info": sample.info}),
    "model_dump": lambda sample: Sample.model_validate(sample.model_dump()),
    "json": lambda sample: Sample.model_validate_json(sample.model_dump_json()),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [built, chunked])
def test_a_copy_of_any_kind_is_equal_read_only_and_as_small(way, make):
    sample = make()
    other = WAYS[way](sample)
    assert other == sample
    assert hash(other) == hash(sample)
    assert repr(other) == repr(sample)
    assert other.info == sample.info
    assert other.routed_experts_key == sample.routed_experts_key
    assert list(other.loss_fn_inputs) == list(sample.loss_fn_inputs)
    assert other.to_json() == sample.to_json()
    assert not any(array.flags.writeable for array in buffers(other))
    assert not any(tensor.data.flags.writeable for tensor in other.loss_fn_inputs.values())
    assert len(buffers(other)) == len(buffers(sample))


def test_tokens_and_targets_are_one_buffer_however_the_sample_was_made():
    sample = built()
    assert len(buffers(sample)) == 1 + 3  # tokens with targets; weights, advantages, logprobs
    assert np.shares_memory(sample.model_input.tokens, sample.loss_fn_inputs["target_tokens"].data)


def test_targets_that_are_not_the_next_tokens_keep_their_own_buffer():
    sample = Sample(ModelInput.from_tokens([1, 2, 3]), {"target_tokens": TensorData([2, 9, 4], "int64")})
    assert len(buffers(sample)) == 2
    assert sample.loss_fn_inputs["target_tokens"].data.tolist() == [2, 9, 4]


def test_copies_share_arrays_but_not_info():
    sample = built()
    shallow, deep = copy.copy(sample), copy.deepcopy(sample)
    assert shallow.model_input is sample.model_input
    assert deep.model_input is sample.model_input
    shallow.info["new"] = 1
    deep.info["tags"].append(2)
    assert sample.info == {"source": "a", "tags": [1]}


def test_the_info_a_sample_was_built_with_is_not_the_callers_dict():
    info = {"source": "a"}
    sample = build_sample([1, 2], [0, 1], info=info)
    info["source"] = "b"
    assert sample.info == {"source": "a"}


def test_model_copy_checks_what_it_changes():
    sample = built()
    changed = sample.model_copy(update={"routed_experts_key": None, "info": {"n": 1}})
    assert changed.routed_experts_key is None
    assert changed.info == {"n": 1}
    assert changed != sample
    with pytest.raises(ValidationError, match="holds 1 values, model_input holds 63 tokens"):
        sample.model_copy(update={"loss_fn_inputs": {"weights": TensorData([1], "float32")}})
    with pytest.raises(ValidationError):
        sample.model_copy(update={"unheard_of": 1})


def changed_value(sample, name, index):
    inputs = {key: TensorData(tensor.data, tensor.dtype) for key, tensor in sample.loss_fn_inputs.items()}
    data = inputs[name].data.copy()
    data[index] += 1
    return Sample(sample.model_input, {**inputs, name: TensorData(data, inputs[name].dtype)}, sample.routed_experts_key)


@pytest.mark.parametrize("name", ["target_tokens", "weights", "advantages", "logprobs"])
@pytest.mark.parametrize("index", [0, 31, 62])
def test_one_other_value_anywhere_makes_samples_unequal(name, index):
    sample = built()
    assert changed_value(sample, name, index) != sample


def test_equality_looks_at_everything_but_info_and_order():
    sample = built()
    assert sample == sample.model_copy(update={"info": {}})
    assert sample == Sample(sample.model_input, dict(reversed(sample.loss_fn_inputs.items())), "k")
    assert sample != sample.model_copy(update={"routed_experts_key": "other"})
    assert sample != sample.model_copy(update={"model_input": ModelInput.from_tokens(range(11, 74))})
    without = {name: tensor for name, tensor in sample.loss_fn_inputs.items() if name != "logprobs"}
    assert sample != sample.model_copy(update={"loss_fn_inputs": without})
    assert sample != sample.to_wire()
    assert sample != "text"
    assert TensorData([1], "int64") != [1]
    assert TensorData([1], "int64") != TensorData([1], "float32")
    assert ModelInput([EncodedText([1]), EncodedText([2])]) != ModelInput.from_tokens([1, 2])


def test_equal_samples_are_one_member_of_a_set():
    assert len({built(), built(), chunked(), chunked()}) == 2
    assert len({TensorData([1], "int64"), TensorData([1], "int64"), TensorData([1], "float32")}) == 2
    assert len({EncodedText([1]), EncodedText((1,)), ModelInput.from_tokens([1]), ModelInput.from_tokens([1])}) == 2


def test_a_cut_sample_equals_and_holds_no_more_than_one_built_short():
    for truncation, kept in (("right", slice(0, 40)), ("left", slice(24, 64))):
        cut = built(max_length=40, truncation=truncation)
        short = build_sample(
            range(10, 74)[kept],
            ([0] * 32 + [1] * 32)[kept],
            advantages=0.5,
            logprobs=[-0.25] * 40,
            routed_experts_key="k",
        )
        assert cut == short
        assert sum(array.nbytes for array in buffers(cut)) == sum(array.nbytes for array in buffers(short))


def held_bytes(make, count=32):
    """What samples hold once what they were made of is gone, Python's own objects included."""
    make()  # caches of first use are not the samples'
    gc.collect()
    tracemalloc.start()
    try:
        samples = [make() for _ in range(count)]
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return held / len(samples)


MASKS = {
    "prompt and completion": lambda n: [0] * (n // 4) + [1] * (n - n // 4),
    "turns": lambda n: ([0] * 64 + [1] * 64) * (n // 128),
    "another value at every token": lambda n: [0, 1] * (n // 2),
}


@pytest.mark.parametrize("num_tokens", [512, 2048])
@pytest.mark.parametrize("mask", MASKS)
def test_a_sample_with_weights_advantages_and_logprobs_holds_20_bytes_a_token_in_arrays(num_tokens, mask):
    sample = with_everything(num_tokens, MASKS[mask](num_tokens))
    for held in (sample, Sample.from_wire(sample.to_wire()), pickle.loads(pickle.dumps(sample))):
        assert sum(array.nbytes for array in buffers(held)) <= 20 * num_tokens


@pytest.mark.parametrize("mask", ["prompt and completion", "turns"])
def test_a_sample_of_2k_tokens_whose_mask_has_spans_holds_16_bytes_a_token_in_all(mask):
    assert held_bytes(lambda: with_everything(2048, MASKS[mask](2048))) <= 16 * 2048


def with_everything(num_tokens, mask):
    return build_sample(list(range(num_tokens)), mask, advantages=0.5, logprobs=[-0.5] * num_tokens)


def test_a_model_input_of_no_ids_is_refused_by_from_tokens_too():
    with pytest.raises(ValidationError, match="is empty"):
        ModelInput.from_tokens([])
    assert issubclass(SampleError, ValueError)
