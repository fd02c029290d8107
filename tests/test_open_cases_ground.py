"""Faults met in the field (data/cases/open_cases.json), those of the ground floor and the class each stands for."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import samplekit as sk
from samplekit.training.logprobs import target_logprobs

CASES = {case["id"]: case for case in json.loads((Path(__file__).parent / "data/cases/open_cases.json").read_text())}
ELSEWHERE = {"validation-04", "validation-08", "format-04"}  # conversations: tests/chat
NAN, INF = float("nan"), float("inf")


def right(case_id):
    return CASES[case_id]["right"]


def assert_refused(make, expected):
    """Refused with an error of the type the case names, whose message mentions all that the case asks for."""
    assert expected["type"] == "ValueError"
    with pytest.raises(sk.SampleError) as caught:
        make()
    assert isinstance(caught.value, ValueError)
    for phrase in expected["message_must_mention"]:
        assert re.search(rf"(?<![\w.]){re.escape(phrase)}(?!\w)", str(caught.value)), phrase
    return str(caught.value)


def test_every_case_of_the_kinds_that_concern_the_ground_floor_is_tested_here():
    kinds = {"shift", "dtype", "format", "validation"}
    here = {case_id for case_id, case in CASES.items() if case["kind"] in kinds} - ELSEWHERE
    tested = {f"{kind}-{number}" for kind, number in re.findall(r"def test_(shift|dtype|format|validation)_(\d\d)_",
                                                                Path(__file__).read_text())}  # fmt: skip
    assert tested == here


def test_shift_02_a_mask_that_was_shifted_already_is_refused():
    case = CASES["shift-02"]["input"]
    message = assert_refused(lambda: sk.build_sample(case["tokens"], case["loss_mask"]), right("shift-02")["error"])
    assert "already shifted" in message
    sample = sk.build_sample(case["tokens"], [0, 1, 1, 1])
    assert sample.loss_fn_inputs["target_tokens"].data.tolist() == [6, 7, 2]
    assert sample.loss_fn_inputs["weights"].data.tolist() == [1, 1, 1]  # the stop token 2 is trained


@pytest.mark.parametrize("length", [2, 3, 10, 257])
@pytest.mark.parametrize("cast", [list, tuple, np.array, torch.tensor])
@pytest.mark.parametrize("name", ["loss_mask", "advantages", "logprobs", "reference_logprobs"])
def test_shift_02_and_so_is_any_shifted_array_of_any_length(length, cast, name):
    arrays = {"loss_mask": [1] * length, name: cast([-0.5] * (length - 1))}
    mask = arrays.pop("loss_mask")
    wanted = {"type": "ValueError", "message_must_mention": [str(length - 1), str(length), "length", name]}
    assert "already shifted" in assert_refused(lambda: sk.build_sample(range(length), mask, **arrays), wanted)


def test_shift_02_a_mapping_that_was_trimmed_unevenly_is_refused():
    wire = sk.build_sample([5, 6, 7, 2], [0, 1, 1, 1]).to_wire()
    wire["loss_fn_inputs"]["weights"]["data"] = [1.0, 1.0]
    with pytest.raises(sk.AlignmentError, match="holds 2 values, model_input holds 3 tokens"):
        sk.Sample.from_wire(wire)
    assert [item.code for item in sk.check([wire]).errors] == ["length_mismatch"]


class Rows(torch.nn.Module):
    """A model whose logits at a position tell only which token stands there, so that a value cut elsewhere shows."""

    def __init__(self, vocab_size=50):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.table = torch.nn.Parameter(torch.randn(vocab_size, vocab_size, generator=generator))

    def forward(self, input_ids):
        return SimpleNamespace(logits=self.table[input_ids])


def alone(model, sample):
    """The same numbers without a batch."""
    rows = torch.log_softmax(model.table[torch.tensor(sample.model_input.tokens)], -1)
    targets = torch.tensor(sample.loss_fn_inputs["target_tokens"].data)
    return rows.gather(-1, targets[:, None])[:, 0]


LENGTHS = [[2, 4], [4, 2], [2, 2], [1, 7, 3], [9, 1, 1, 5, 2], [3] * 6, [30, 1]]


@pytest.mark.parametrize("lengths", [CASES["shift-04"]["input"]["sample_lengths"], *LENGTHS])
@pytest.mark.parametrize("batch_tokens", [1, 8, 8192])
def test_shift_04_values_of_a_padded_row_come_back_for_their_own_sample(lengths, batch_tokens):
    generator = np.random.default_rng(len(lengths))
    samples = [sk.build_sample(generator.integers(0, 50, n + 1), [0] + [1] * n) for n in lengths]
    model = Rows()
    with torch.no_grad():
        found = target_logprobs(model, samples, batch_tokens=batch_tokens)
    assert [len(values) for values in found] == lengths
    for values, sample in zip(found, samples, strict=True):
        torch.testing.assert_close(values, alone(model, sample), rtol=0, atol=1e-5)


class EqualLogits(torch.nn.Module):
    """Every token is as likely as every other; the logits are of the dtype and size of the case."""

    def __init__(self, vocab_size, dtype, value=0.0):
        super().__init__()
        self.row = torch.nn.Parameter(torch.full((vocab_size,), value, dtype=dtype))

    def forward(self, input_ids):
        return SimpleNamespace(logits=self.row.expand(*input_ids.shape, -1))


@pytest.mark.parametrize(("vocab_size", "expected"), [(512, None), (1000, -6.907755), (151_936, -11.931215)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("value", [0.0, -3.25, 30.0])
def test_dtype_02_log_softmax_is_taken_in_float32(vocab_size, expected, dtype, value):
    wanted = right("dtype-02")["result"]
    expected = wanted["logprob"] if expected is None else expected
    with torch.no_grad():
        (found,) = target_logprobs(EqualLogits(vocab_size, dtype, value), [sk.build_sample([1, 2, 3], [0, 1, 1])])
    assert str(found.dtype) == f"torch.{wanted['dtype']}"
    assert torch.allclose(found, torch.tensor(expected), rtol=1e-6, atol=0)
    assert (found - expected).exp().tolist() == pytest.approx([wanted["ratio"]] * 2, abs=5e-6)


def test_dtype_04_ids_that_wrapped_are_refused_and_plain_ones_kept():
    wrapped = np.array([40000, 5]).astype(np.int16)
    assert wrapped.tolist() == [-25536, 5]
    assert_refused(lambda: sk.build_sample(wrapped, [0, 1]), right("dtype-04")["case_int16"]["error"])
    plain = right("dtype-04")["case_plain"]
    sample = sk.build_sample([40000, 5], [0, 1])
    assert sample.loss_fn_inputs["target_tokens"].data.tolist() == plain["target_tokens"]
    assert sample.model_input.tokens.tolist() == plain["model_input"]


@pytest.mark.parametrize(
    ("dtype", "true_id"), [("int8", 200), ("int16", 40000), ("int16", 65000), ("int32", 2**31), ("int32", 2**32 - 100)]
)
@pytest.mark.parametrize("index", [0, 2, 4])
@pytest.mark.parametrize("cast", [np.asarray, torch.from_numpy, np.ndarray.tolist])
def test_dtype_04_whatever_the_dtype_and_the_place(dtype, true_id, index, cast):
    ids = np.array([5, 6, 7, 8, 9], dtype=np.int64)
    ids[index] = true_id
    wrapped = ids.astype(dtype)
    wanted = {"type": "ValueError", "message_must_mention": [f"index {index}", str(wrapped[index])]}
    for make in (
        lambda: sk.build_sample(cast(wrapped), [1] * 5),
        lambda: sk.Sample.from_wire({"model_input": {"chunks": [{"encoded_text": {"tokens": cast(wrapped)}}]},
                                     "loss_fn_inputs": {}}),
    ):  # fmt: skip
        assert_refused(make, wanted)
    assert sk.build_sample(ids, [1] * 5).tokens.tolist() == ids.tolist()


def test_validation_02_a_negative_id_is_refused():
    case = CASES["validation-02"]["input"]
    assert_refused(lambda: sk.build_sample(case["tokens"], case["loss_mask"]), right("validation-02")["error"])


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("value", [-1, -100, -(2**31), -(2**63)])
def test_validation_02_wherever_it_stands_and_the_ignore_label_with_its_remedy(index, value):
    tokens = [3, 1, 4]
    tokens[index] = value
    wanted = {"type": "ValueError", "message_must_mention": [f"index {index}", str(value)]}
    message = assert_refused(lambda: sk.build_sample(tokens, [0, 1, 1]), wanted)
    wire = sk.build_sample([2, 3, 1, 4], [0, 0, 1, 1]).to_wire()
    wire["loss_fn_inputs"]["target_tokens"]["data"] = tokens
    also = assert_refused(lambda: sk.Sample.from_wire(wire), wanted)
    assert_refused(lambda: sk.check([wire]).raise_for_errors(), wanted)
    assert ("use weights 0 instead" in message) == ("use weights 0 instead" in also) == (value == -100)


def test_validation_02_the_upper_bound_is_checked_too():
    sample = sk.build_sample([3, 1, 4], [0, 1, 1])
    assert sk.check([sample], vocab_size=5).ok
    assert [item.code for item in sk.check([sample], vocab_size=4).errors] == ["vocabulary"]


def test_validation_06_a_sample_without_what_its_loss_reads_is_refused():
    wire = sk.build_sample([3, 1, 4], [0, 1, 1]).to_wire()
    names = CASES["validation-06"]["input"]["loss_fn_inputs_keys"]
    wire["loss_fn_inputs"] = {name: wire["loss_fn_inputs"][name] for name in names}
    assert_refused(lambda: sk.check([wire], loss=sk.CrossEntropy()).raise_for_errors(), right("validation-06")["error"])


@pytest.mark.parametrize("index", [0, 3])
@pytest.mark.parametrize(
    "loss",
    [sk.CrossEntropy(), sk.ImportanceSampling(), sk.PPO(), sk.GRPO(beta=0.1), sk.CISPO(), sk.DPPO(), sk.DRO(beta=1)],
    ids=repr,
)
def test_validation_06_whatever_the_loss_the_input_and_the_sample(loss, index):
    whole = sk.build_sample(
        [3, 1, 4], [0, 1, 1], advantages=1.0, logprobs=[0, -1, -1], reference_logprobs=[0, -1, -1]
    ).to_wire()
    spoken = loss.wire_type.removeprefix("LOSS_TYPE_").lower()
    for missing in loss.required_inputs():
        rest = {name: tensor for name, tensor in whole["loss_fn_inputs"].items() if name != missing}
        batch = [whole] * 4
        batch[index] = {**whole, "loss_fn_inputs": rest}
        report = sk.check(batch, loss=loss)
        wanted = {"type": "ValueError", "message_must_mention": [missing, spoken, f"sample {index}"]}
        assert_refused(report.raise_for_errors, wanted)
        assert len(report.errors) == 1


def test_format_02_minus_infinity_is_0_where_masked_and_refused_where_trained():
    case = CASES["format-02"]["input"]
    masked, trained = case["weights_cases"]
    values = [float(value) for value in ([0.0, *case["logprobs"]])]  # full length: token 0 has no logprob
    sample = sk.build_sample([1, 2, 3], [0, *masked], logprobs=values)
    assert sample.loss_fn_inputs["logprobs"].data.tolist() == [np.float32(-0.1), 0.0]
    assert json.loads(sample.to_json())["loss_fn_inputs"]["logprobs"]["data"] == [-0.1, 0.0]
    wanted = {"type": "ValueError", "message_must_mention": ["logprobs", "index 2"]}  # index 1 of the trimmed array
    assert right("format-02")["case1"]["error"]["message_must_mention"] == ["logprobs", "index 1"]
    assert_refused(lambda: sk.build_sample([1, 2, 3], [0, *trained], logprobs=values), wanted)
    # The case's own arrays as full-length ones: value 1 describes token 1.
    short = [float(value) for value in case["logprobs"]]
    assert_refused(lambda: sk.build_sample([1, 2], trained, logprobs=short), right("format-02")["case1"]["error"])


@pytest.mark.parametrize("value", [-INF, INF, NAN, None])
@pytest.mark.parametrize("cast", [list, tuple, np.array, torch.tensor])
@pytest.mark.parametrize("name", ["logprobs", "reference_logprobs"])
@pytest.mark.parametrize("index", [1, 3, 5])
def test_format_02_whatever_is_missing_wherever_it_stands(value, cast, name, index):
    if value is None and cast in (np.array, torch.tensor):
        value = NAN
    values = [-0.5] * 6
    values[index] = value
    mask = [1] * 6
    wanted = {"type": "ValueError", "message_must_mention": [name, f"index {index}"]}
    assert_refused(lambda: sk.build_sample(range(6), mask, **{name: cast(values)}), wanted)
    mask[index] = 0
    repaired = sk.build_sample(range(6), mask, **{name: cast(values)}).loss_fn_inputs[name].data.tolist()
    assert repaired == [0.0 if position == index else -0.5 for position in range(1, 6)]


@pytest.mark.parametrize("value", [-INF, INF, NAN])
@pytest.mark.parametrize("index", [0, 1])
def test_format_02_what_json_cannot_hold_never_reaches_it(value, index):
    values = [-0.5, -0.5]
    values[index] = value
    for make in (
        lambda: sk.TensorData(values, "float32"),
        lambda: sk.TensorData(np.array(values), "float32"),
        lambda: sk.TensorData.model_validate_json(json.dumps({"data": values, "dtype": "float32"})),
    ):
        with pytest.raises(ValueError, match=f"at index {index}"):
            make()
