"""Arrays kept as runs: they read as the arrays they stand for, and hold next to nothing."""

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplekit import ModelInput, Sample, TensorData, build_sample
from samplekit.sample.runs import Runs

spans = st.lists(
    st.tuples(st.sampled_from([0.0, -0.0, 1.0, 0.5, -1.25, 1e-45]), st.integers(1, 300)), min_size=1, max_size=8
)


def array_of(runs):
    return np.concatenate([np.full(count, value, dtype=np.float32) for value, count in runs])


@given(spans)
def test_runs_expand_to_the_same_bits(runs):
    array = array_of(runs)
    found = Runs.of(array)
    assert (found is None) == (len(array) < 128)
    if found is not None:
        assert found.expand().tobytes() == array.tobytes()
        assert found.length == len(array)
        assert len(found.values) <= len(runs)


def test_arrays_that_are_short_or_change_often_are_kept_as_they_are():
    assert Runs.of(np.zeros(127, dtype=np.float32)) is None
    assert Runs.of(np.arange(1000, dtype=np.float32)) is None
    often = np.tile(np.array([0, 1], dtype=np.float32), 500)
    assert Runs.of(often) is None
    assert Runs.of(np.repeat(np.array([0, 1] * 50), 7)) is None
    assert len(Runs.of(np.repeat(np.array([0, 1] * 50), 8)).values) == 100


@given(spans)
def test_a_compact_tensor_is_the_tensor_in_every_respect(runs):
    plain = TensorData(array_of(runs), "float32")
    compact = plain.compact()
    assert compact == plain
    assert hash(compact) == hash(plain)
    assert repr(compact) == repr(plain)
    assert compact.length == plain.length == len(compact.data)
    assert compact.data.tobytes() == plain.data.tobytes()
    assert not compact.data.flags.writeable
    assert compact.model_dump(mode="json") == plain.model_dump(mode="json")
    assert compact.model_dump_json() == plain.model_dump_json()
    for tensor in (compact, plain):
        printed = np.array(orjson.loads(b"[%s]" % bytes(tensor.print_numbers())), dtype=np.float32)
        assert printed.tobytes() == plain.data.tobytes()
    assert dict(compact)["dtype"] == "float32"
    assert (dict(compact)["data"] == plain.data).all()
    assert compact.model_fields_set == plain.model_fields_set == {"data", "dtype"}
    assert compact.compact() is compact
    assert TensorData.model_validate(compact) is compact
    assert TensorData(**compact.model_dump()) == plain


def test_an_attribute_that_a_tensor_lacks_is_an_attribute_error():
    for tensor in (TensorData([1.0], "float32"), TensorData([1.0] * 200, "float32").compact()):
        with pytest.raises(AttributeError, match="values"):
            _ = tensor.values


@pytest.mark.parametrize("name", ["weights", "mask", "advantages"])
def test_samples_keep_spans_as_runs_however_they_are_made(name):
    inputs = {
        "target_tokens": TensorData(range(1, 2001), "int64"),
        name: TensorData([0.0] * 1000 + [0.5] * 1000, "float32"),
    }
    made = Sample(ModelInput.from_tokens(range(2000)), inputs)
    built = build_sample(range(2001), [0] * 1001 + [0.5] * 1000, advantages=0.5)
    for sample in (made, Sample.from_wire(made.to_wire()), built):
        for span in {"weights", "mask", "advantages"} & sample.loss_fn_inputs.keys():
            tensor = sample.loss_fn_inputs[span]
            assert "data" not in tensor.__dict__
            assert tensor.data.tolist() == [0.0] * 1000 + [0.5] * 1000


def test_a_changed_copy_of_a_part_leaves_the_part_alone():
    tensor = TensorData([1, 2], "int64")
    changed = tensor.model_copy(update={"dtype": "float32"})
    assert (tensor.dtype, changed.dtype, changed.data.dtype) == ("int64", "float32", np.float32)
    assert tensor.model_copy() is tensor
    with pytest.raises(ValueError, match="at index 0"):
        tensor.model_copy(update={"data": [True]})
    compact = TensorData([1.0] * 200, "float32").compact()
    assert compact.model_copy(update={"data": [2.0]}).data.tolist() == [2.0]
    assert compact.length == 200
