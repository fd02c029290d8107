"""Samples that keep weights and advantages as runs are checked as their wire form, which has plain arrays, is."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from samplekit import GRPO, ImportanceSampling, Sample, check

LENGTH = 160  # long enough that a few runs are kept as runs
some = st.sampled_from([0.0, 0.0, 1.0, 1.0, -1.0, 0.5, -0.0])
spans = st.lists(st.tuples(some, st.sampled_from([40, 80])), min_size=1, max_size=4)


def array_of(runs):
    values = np.repeat([value for value, _ in runs], [count for _, count in runs])[:LENGTH]
    return np.pad(values, (0, LENGTH - len(values)), constant_values=1.0).tolist()


@given(spans, st.none() | spans, st.sampled_from(["weights", "mask"]), st.sampled_from([ImportanceSampling(), GRPO()]))
def test_the_same_is_found_in_runs_and_in_arrays(weights, advantages, name, loss):
    inputs = {
        "target_tokens": {"data": list(range(1, LENGTH + 1)), "dtype": "int64"},
        name: {"data": array_of(weights), "dtype": "float32"},
        "logprobs": {"data": [-0.5] * LENGTH, "dtype": "float32"},
    }
    if advantages is not None:
        inputs["advantages"] = {"data": array_of(advantages), "dtype": "float32"}
    wire = {"model_input": {"chunks": [{"encoded_text": {"tokens": list(range(LENGTH))}}]}, "loss_fn_inputs": inputs}
    in_runs = check([Sample.from_wire(wire)], loss=loss)
    in_arrays = check([wire], loss=loss)
    assert in_runs.to_dict() == in_arrays.to_dict()
    assert in_runs.stats["num_trained"] == np.count_nonzero(inputs[name]["data"])
