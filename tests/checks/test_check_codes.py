"""Every code is found alone where its fault is, with its path, what was found and what to do."""

import re

import numpy as np
import pytest
from faulty_samples import FAULTS, OPTIONS, changed, right_sample, with_input

import samplekit as sk
from samplekit.checks import CODES

LOSSES = [
    None, sk.CrossEntropy(), sk.ImportanceSampling(), sk.PPO(), sk.GRPO(), sk.CISPO(), sk.DPPO(), sk.DRO(beta=0.1),
    sk.GRPO(ratio="sequence"),
]  # fmt: skip


def findings(samples, **options):
    report = sk.check(samples, **options)
    return [*report.errors, *report.warnings]


def only(sample, **options):
    found = findings([right_sample(), sample], **options)
    assert len(found) == 1, [item.message for item in found]
    return found[0]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_a_right_sample_gives_no_finding_as_a_mapping_or_a_sample(loss):
    for sample in (right_sample(), sk.Sample.from_wire(right_sample())):
        assert findings([sample], loss=loss, vocab_size=9, max_length=4) == []


def test_there_is_a_faulty_sample_for_every_code_but_those_of_the_whole_batch():
    whole = {"empty_batch", "trained_share", "zero_advantages", "constant_group", "single_completion"}
    assert set(FAULTS) == set(CODES) - whole


@pytest.mark.parametrize("code", FAULTS)
def test_every_fault_gives_exactly_its_code_and_names_the_sample(code):
    found = only(FAULTS[code](), **OPTIONS.get(code, {}))
    assert found.code == code
    assert found.path.startswith("samples[1].")
    assert found.message.startswith(f"{found.path} ")
    report = sk.check([FAULTS[code]()], **OPTIONS.get(code, {}))
    assert [item.code for item in getattr(report, CODES[code].split(":")[0] + "s")] == [code]
    assert report.ok == CODES[code].startswith("warning")


@pytest.mark.parametrize("code", FAULTS)
def test_every_code_can_be_allowed(code):
    assert findings([FAULTS[code]()], allow={code}, **OPTIONS.get(code, {})) == []
    assert findings([FAULTS[code]()], allow=code, **OPTIONS.get(code, {})) == []
    others = set(CODES) - {code}
    assert [item.code for item in findings([FAULTS[code]()], allow=others, **OPTIONS.get(code, {}))] == [code]


@pytest.mark.parametrize("code", FAULTS)
def test_every_message_says_what_to_do(code):
    message = only(FAULTS[code](), **OPTIONS.get(code, {})).message
    assert re.search(r": \w.+|expected ", message.split(" ", 1)[1])


@pytest.mark.parametrize("code", [code for code in FAULTS if CODES[code].startswith("warning")] + ["vocabulary",
    "too_long", "target_not_next", "positive_logprob", "nothing_trained", "missing_input"])  # fmt: skip
def test_what_a_sample_can_hold_is_found_in_samples_as_in_mappings(code):
    sample = sk.Sample.from_wire(FAULTS[code]())
    assert findings([right_sample(), sample], **OPTIONS.get(code, {})) == [
        only(FAULTS[code](), **OPTIONS.get(code, {}))
    ]


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("value", [True, "7", 1.5, None, -1, -100])
@pytest.mark.parametrize("where", ["input", "targets"])
def test_what_is_no_token_id_is_found_in_every_place(value, index, where):
    ids = [5, 6, 7] if where == "input" else [6, 7, 8]
    ids[index] = value
    if where == "input":
        sample = changed(("model_input", "chunks", 0, "encoded_text", "tokens"), ids)
        path = "samples[1].model_input.chunks[0].encoded_text.tokens"
    else:
        sample = with_input("target_tokens", ids, "int64")
        path = "samples[1].loss_fn_inputs['target_tokens']"
    found = only(sample)
    assert (found.code, found.path) == ("token_id", path)
    assert f"holds {value!r} at index {index}," in found.message


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize(("value", "code"), [
    (float("nan"), "not_finite"), (float("inf"), "not_finite"), (1e39, "not_finite"), (None, "not_a_number"),
    ("0.5", "not_a_number"), ({}, "not_a_number"), (10**400, "not_finite"),
])  # fmt: skip
@pytest.mark.parametrize("name", ["weights", "advantages", "logprobs", "reference_logprobs", "mask", "more"])
def test_what_is_no_finite_number_is_found_in_every_place(name, value, code, index):
    numbers = [0.0, -0.5, -1.0]
    numbers[index] = value
    sample = with_input(name, numbers)
    found = findings([sample], allow={"unknown_input", "weights_and_mask", "target_not_next"})
    assert [item.code for item in found] == [code]
    assert f"loss_fn_inputs['{name}']" in found[0].path
    assert f"at index {index}," in found[0].message


@pytest.mark.parametrize("name", ["target_tokens", "weights", "advantages", "logprobs"])
@pytest.mark.parametrize("length", [1, 2, 4])
def test_every_array_of_another_length_is_found(name, length):
    dtype = "int64" if name == "target_tokens" else "float32"
    found = only(with_input(name, [1] * length, dtype))
    assert found.code == "length_mismatch"
    assert f"holds {length} values, model_input holds 3 tokens" in found.message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("model_input",), 5), (("model_input",), None), (("model_input",), []), (("model_input", "chunks"), 5),
        (("model_input", "chunks"), "text"), (("model_input", "chunks", 0), {}), (("model_input", "chunks", 0), 5),
        (("model_input", "chunks", 0, "encoded_text"), {}), (("model_input", "chunks", 0, "image"), {}),
        (("model_input", "more"), 1), (("model_input", "chunks", 0, "encoded_text", "more"), 1),
        (("model_input", "chunks"), []), (("loss_fn_inputs",), None), (("loss_fn_inputs",), [1]),
        (("loss_fn_inputs", "weights"), 5), (("loss_fn_inputs", "weights"), [0, 1, 1]),
        (("loss_fn_inputs", "weights"), {"data": [0, 1, 1]}), (("loss_fn_inputs", "weights"), {"dtype": "float32"}),
        (("loss_fn_inputs", "weights", "shape"), [3]), (("loss_fn_inputs", "weights", "dtype"), ["float32"]),
        (("loss_fn_inputs", "target_tokens", "dtype"), "float32"), (("loss_fn_inputs", "logprobs", "dtype"), "int64"),
        (("routed_experts_key",), 5), (("info",), 5), (("unheard_of",), 1),
    ],
)  # fmt: skip
def test_a_field_that_a_sample_cannot_hold_is_an_error_at_its_path(path, value):
    mapping = changed(path, value)
    with pytest.raises(sk.SampleError):
        sk.Sample.from_wire(mapping)
    report = sk.check([right_sample(), mapping])
    assert not report.ok
    assert all(item.path.startswith("samples[1]") for item in report.errors)
    assert any(str(path[0]) in item.path for item in report.errors)


@pytest.mark.parametrize("sample", [None, 5, "text", [], object(), {}])
def test_what_is_no_sample_at_all_is_an_error(sample):
    report = sk.check([right_sample(), sample])
    assert {item.code for item in report.errors} <= {"invalid_field", "missing_input"}
    assert report.errors[0].path.startswith("samples[1]")


def test_a_model_of_another_package_is_read_by_its_dump():
    class Model:
        def __init__(self, content):
            self.content = content

        def model_dump(self, *, exclude_none):
            return self.content if exclude_none else None

    assert findings([Model(right_sample())]) == []
    assert [item.code for item in findings([Model(FAULTS["length_mismatch"]())])] == ["length_mismatch"]
    parts = {
        "model_input": sk.ModelInput.from_tokens([1]),
        "loss_fn_inputs": {"weights": sk.TensorData([0], "float32")},
    }
    assert [item.code for item in findings([parts])] == ["missing_input", "nothing_trained"]


@pytest.mark.parametrize("loss", LOSSES[1:], ids=repr)
def test_every_input_a_loss_requires_is_missed_by_name(loss):
    for name in loss.required_inputs():
        sample = changed(("loss_fn_inputs", name), None) if name in right_sample()["loss_fn_inputs"] else right_sample()
        found = [item for item in findings([right_sample(), sample], loss=loss) if item.path.startswith("samples[1]")]
        missing = [item for item in found if item.code == "missing_input"]
        assert len(missing) == 1
        assert f"has no {name!r}, which {type(loss).__name__} (" in missing[0].message
        assert "sample 1" in missing[0].message


def test_grpo_with_a_penalty_needs_reference_logprobs():
    loss = sk.GRPO(beta=0.1)
    found = findings([right_sample()], loss=loss)
    assert [item.code for item in found] == ["missing_input"]
    assert "input (Sample.with_reference_logprobs) or" in found[0].message
    assert findings([FAULTS["unused_input"]()], loss=loss) == []


@pytest.mark.parametrize("loss", [*LOSSES[1:], sk.GRPO(beta=0.1)], ids=repr)
def test_reference_logprobs_are_used_by_a_penalty_only(loss):
    codes = [item.code for item in findings([FAULTS["unused_input"]()], loss=loss)]
    assert codes == ([] if isinstance(loss, sk.GRPO) and loss.beta else ["unused_input"])


def test_unused_reference_logprobs_show_as_a_metric_of_grpo_only():
    (finding,) = findings([FAULTS["unused_input"]()], loss=sk.GRPO())
    assert "only shows as loss/kl_ref/mean while beta is 0" in finding.message
    (finding,) = findings([FAULTS["unused_input"]()], loss=sk.PPO())
    assert "changes nothing, for PPO" in finding.message


@pytest.mark.parametrize(
    ("loss", "warns"),
    [
        (sk.DRO(beta=0.1), True), (sk.GRPO(ratio="sequence"), True), (sk.GRPO(aggregation="token_mean"), True),
        (sk.GRPO(aggregation="sequence_mean"), True), (sk.GRPO(), False), (sk.PPO(), False),
        (sk.CISPO(), False), (sk.DPPO(), False), (sk.ImportanceSampling(), False), (None, False),
    ],
    ids=repr,
)  # fmt: skip
def test_a_missing_mask_is_warned_of_where_the_loss_reads_every_position(loss, warns):
    codes = [item.code for item in findings([FAULTS["no_mask"]()], loss=loss)]
    assert codes == (["no_mask"] if warns else [])


def test_mask_does_for_weights():
    sample = changed(("loss_fn_inputs", "weights"), None)
    sample["loss_fn_inputs"]["mask"] = {"data": [0, 1, 1], "dtype": "int64"}
    assert findings([sample], loss=sk.DRO(beta=0.1)) == []
    sample["loss_fn_inputs"]["mask"]["data"] = [0, 0, 1]
    assert [item.code for item in findings([sample])] == ["advantage_outside_mask"]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_only_trained_targets_must_be_the_next_input_token(index):
    targets = [6, 7, 8]
    targets[index] = 4
    found = findings([with_input("target_tokens", targets, "int64")])
    assert [item.code for item in found] == (["target_not_next"] if index == 1 else [])  # 0 is masked, 2 the last
    if found:
        assert "holds 4 at index 1, the next input token is 7" in found[0].message


def test_without_weights_every_target_is_trained():
    sample = with_input("target_tokens", [4, 7, 8], "int64")
    del sample["loss_fn_inputs"]["weights"]
    assert [item.code for item in findings([sample])] == ["target_not_next"]


def test_unshifted_targets_are_found():
    found = only(with_input("target_tokens", [5, 6, 7], "int64"))
    assert found.code == "target_not_next"
    assert "build_sample" in found.message


@pytest.mark.parametrize("name", ["logprobs", "reference_logprobs"])
@pytest.mark.parametrize(("value", "index", "found"), [
    (0.0011, 1, True), (0.5, 2, True), (0.001, 1, False), (0.5, 0, False), (-1e-30, 1, False),
])  # fmt: skip
def test_only_trained_log_probabilities_must_be_at_most_0(name, value, index, found):
    numbers = [-0.5, -0.5, -0.5]
    numbers[index] = value
    codes = [item.code for item in findings([with_input(name, numbers)])]
    assert codes == (["positive_logprob"] if found else [])


@pytest.mark.parametrize(("numbers", "found"), [
    ([-1.0, 0.0, 0.0], "2 of 2 trained positions (100.0%)"), ([-1.0, 0.0, -0.1], "0.0 at index 1, a probability of exactly 1 at 1 of 2"),
    ([0.0, -0.1, -0.1], None), ([0.0, -0.1, -0.0], "1 of 2 trained positions (50.0%)"), ([-1.0, -1e-30, -0.1], None),
])  # fmt: skip
@pytest.mark.parametrize("name", ["logprobs", "reference_logprobs"])
def test_log_probabilities_of_0_where_it_trains_look_like_padding(name, numbers, found):
    told = findings([with_input(name, numbers)])
    assert [item.code for item in told] == (["zero_logprobs"] if found else [])
    assert all(found in item.message for item in told)
    assert findings([with_input(name, numbers)], allow="zero_logprobs") == []


@pytest.mark.parametrize(("vocab_size", "codes"), [(9, []), (8, 1), (7, 2), (1, 2)])
def test_ids_outside_the_vocabulary_are_found_in_input_and_targets(vocab_size, codes):
    for sample in (right_sample(), sk.Sample.from_wire(right_sample())):
        found = findings([sample], vocab_size=vocab_size)
        assert [item.code for item in found] == ["vocabulary"] * (codes or 0)
        if codes:
            assert f"the vocabulary has {vocab_size} ids" in found[0].message


@pytest.mark.parametrize(("max_length", "fits"), [(4, True), (5, True), (3, False), (1, False)])
def test_max_length_counts_tokens_of_the_full_sequence_as_build_sample_does(max_length, fits):
    found = findings([right_sample()], max_length=max_length)
    assert [item.code for item in found] == ([] if fits else ["too_long"])
    if not fits:
        assert f"hold 4 tokens, the limit is {max_length}" in found[0].message
    cut = sk.build_sample(range(50), [1] * 50, max_length=10)
    assert findings([cut], max_length=10) == []


@pytest.mark.parametrize("loss", LOSSES[2:], ids=repr)
def test_fractions_count_in_cross_entropy_only(loss):
    sample = FAULTS["fractional_weight"]()
    assert [item.code for item in findings([sample], loss=loss)] == ["fractional_weight"]
    assert findings([sample], loss=sk.CrossEntropy()) == findings([sample]) == []


def test_further_places_of_one_fault_are_counted_not_listed():
    sample = sk.build_sample(range(10), [1] * 10, advantages=-1.0).to_wire()
    sample["loss_fn_inputs"]["weights"]["data"] = [-1.0] * 9
    found = findings([sample])
    assert len(found) == 1
    assert "holds -1.0 at index 0 (and 8 more)" in found[0].message


def test_numpy_arrays_in_mappings_are_read_like_lists():
    sample = right_sample()
    sample["loss_fn_inputs"]["weights"]["data"] = np.array([0.0, 1.0, 1.0])
    sample["model_input"]["chunks"][0]["encoded_text"]["tokens"] = np.array([5, 6, 7], dtype=np.int32)
    assert findings([sample]) == []
