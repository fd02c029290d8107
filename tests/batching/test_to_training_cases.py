"""SampleBatch.to_training against the recorded outputs of the loader whose options it shares."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from samplekit.batching import SampleBatch

FOUND = json.loads((Path(__file__).parents[1] / "data" / "batching" / "to_training_cases.json").read_text())
CASES = FOUND["cases"]
EDGES = FOUND["edge"]
DTYPES = {"list": None, "numpy": "auto", "torch": torch.int64}
NAMED_DTYPES = {"<class 'numpy.int32'>": np.int32, "torch.uint8": torch.uint8, "torch.int64": torch.int64}

# Rows where an improvement of ours wins, each proved in test_to_training_improvements.py, or whose inputs no batch holds.
OURS_WIN = {
    "empty_default": "an empty batch still has its keys",
    "empty_all_flatten": "an empty batch still has its keys",
    "dtype_uint8_torch_masked": "an ignore_index that the dtype cannot hold is an error",
    "loss_mask_only_in_second_silently_ignored": "a mask in some records only is an error",
    "float_loss_mask_weights_auto_dtype": "fractional weights survive, and 'auto' is numpy",
    "float_extra_logprobs_auto_dtype": "fractions stay fractions, and 'auto' is numpy",
    "padding_length_too_long_labels": "a record that is all padding and more cannot be made (a ValueError)",
}


def batch_of(payloads, padding_lengths):
    held = [
        payload if length is None else {**payload, "padding_length": length}
        for payload, length in zip(payloads, padding_lengths, strict=True)
    ]
    return SampleBatch(held)


def plain(value):
    return value.tolist() if hasattr(value, "tolist") else value


def kind_of(value):
    return str(value.dtype) if hasattr(value, "dtype") else type(value).__name__


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_every_combination_of_options_gives_what_was_recorded(case, kind):
    found = CASES[case]
    batch = batch_of(found["payloads"], found["padding_lengths"])
    assert len(found["combos"]) == 256
    for combo in found["combos"]:
        options, expected = combo["options"], combo["expected"]
        if "error" in expected:
            with pytest.raises(ValueError, match="requires return_labels=True"):
                batch.to_training(dtype=DTYPES[kind], **options)
            continue
        arrays = batch.to_training(dtype=DTYPES[kind], **options)
        assert arrays.keys() == expected.keys(), options  # where positions stand among them varies in the recording
        for name in expected.keys() - {"ids", "texts"}:
            assert plain(arrays[name]) == expected[name], (options, name)
            if name == "loss_mask":  # weights are fractions here: float32 where the recording has whole numbers
                assert kind == "list" or str(arrays[name].dtype).endswith("float32")
            elif kind != "list":
                assert kind_of(arrays[name]) == combo["dtypes"][kind][name], (options, name)
            else:
                assert isinstance(arrays[name], list | int)


def edge_options(options):
    return {name: NAMED_DTYPES.get(value, value) if name == "dtype" else value for name, value in options.items()}


@pytest.mark.parametrize("edge", EDGES.keys() - OURS_WIN.keys())
def test_every_edge_gives_what_was_recorded(edge):
    found = EDGES[edge]
    options = edge_options(found["input"]["options"])
    batch = batch_of(found["input"]["payloads"], found["input"]["padding_lengths"])
    if "error" in found:
        with pytest.raises({"ValueError": ValueError, "TypeError": TypeError}[found["error"]]):
            batch.to_training(**options)
        return
    if "warnings" in found:
        with pytest.warns(UserWarning, match="eos_token_id"):
            arrays = batch.to_training(**options)
    else:
        arrays = batch.to_training(**options)
    assert list(arrays) == found["keys_in_order"]
    for name in found["out"].keys() - {"ids", "texts"}:
        assert plain(arrays[name]) == found["out"][name]["value"], name
        if "dtype" in found["out"][name]:
            assert kind_of(arrays[name]) == found["out"][name]["dtype"]


def test_the_rows_that_ours_wins_over_are_rows():
    assert set(EDGES) >= set(OURS_WIN)


@pytest.mark.parametrize("edge", OURS_WIN)
def test_a_row_that_ours_wins_over_gives_something_else_or_an_error(edge):
    found = EDGES[edge]
    options = edge_options(found["input"]["options"])
    try:
        arrays = batch_of(found["input"]["payloads"], found["input"]["padding_lengths"]).to_training(**options)
    except ValueError:
        return
    recorded = {name: value["value"] for name, value in found["out"].items() if name not in ("ids", "texts")}
    assert {name: plain(value) for name, value in arrays.items() if name not in ("ids", "texts")} != recorded


def test_a_record_keeps_its_tokens_under_every_name_so_a_field_is_missing_from_mappings_only():
    """The edge tokens_field_missing needs a mapping; on a Record tokens_field says nothing."""
    with pytest.raises(ValueError, match="'tokens'"):
        SampleBatch([{"input_ids": [1, 2]}]).to_training(tokens_field="tokens")
