"""All faults of a batch at once, wherever they are, and what the public SDK sends without complaint."""

import random
import re

import pytest
from faulty_samples import FAULTS, right_sample, with_input
from hypothesis import given
from hypothesis import strategies as st

import samplekit as sk

# Faults that need no option of check, so that one call can find them all.
PLAIN = [
    code for code in FAULTS if code not in {"vocabulary", "too_long", "unused_input", "fractional_weight", "no_mask"}
]


@pytest.mark.parametrize("seed", range(5))
def test_one_fault_of_each_kind_is_found_wherever_it_stands_in_a_large_batch(seed):
    generator = random.Random(seed)
    batch = [right_sample() if generator.random() < 0.5 else sk.Sample.from_wire(right_sample()) for _ in range(1000)]
    places = dict(zip(generator.sample(range(1000), len(PLAIN)), PLAIN, strict=True))
    for index, code in places.items():
        batch[index] = FAULTS[code]()
    report = sk.check(iter(batch))
    found = {(int(item.path.split("[")[1].split("]")[0]), item.code) for item in [*report.errors, *report.warnings]}
    assert found == set(places.items())
    assert len(report.errors) + len(report.warnings) == len(PLAIN)
    assert report.stats["num_samples"] == 1000


@pytest.mark.parametrize("code", PLAIN)
@pytest.mark.parametrize("index", [0, 7, 15])
def test_a_fault_is_found_in_the_first_a_middle_and_the_last_sample(code, index):
    batch = [right_sample() for _ in range(16)]
    batch[index] = FAULTS[code]()
    report = sk.check(batch)
    found = [*report.errors, *report.warnings]
    assert [(item.code, item.path.split(".")[0]) for item in found] == [(code, f"samples[{index}]")]


def test_several_faults_of_one_sample_are_all_found():
    sample = FAULTS["token_id"]()
    sample["loss_fn_inputs"]["logprobs"] = {"data": [0.0, None, 0.5], "dtype": "float32"}
    sample["loss_fn_inputs"]["advantages"] = {"data": [1.0], "dtype": "float32"}
    sample["loss_fn_inputs"]["mask"] = {"data": [0, 1, 1], "dtype": "bool"}
    sample["loss_fn_inputs"]["target_tokens"] = {"data": [6, "7", 8], "dtype": "int64"}
    sample["weight"] = 1
    assert sorted(item.code for item in sk.check([sample]).errors) == [
        "dtype", "invalid_field", "length_mismatch", "not_a_number", "token_id", "token_id", "weights_and_mask",
    ]  # fmt: skip


@pytest.mark.parametrize("model_input", [None, 5, {}, {"chunks": []}, {"chunks": [{"encoded_text": {"tokens": 7}}]}])
def test_where_the_tokens_cannot_be_counted_no_array_is_blamed_for_its_length(model_input):
    report = sk.check([{**right_sample(), "model_input": model_input}])
    assert len(report.errors) == 1
    assert "model_input" in report.errors[0].path


REFUSED_FROM_THE_SDK = {
    "arrays of unequal length": lambda: with_input("weights", [1.0, 1.0]),
    "targets that are not the shifted input": lambda: with_input("target_tokens", [5, 6, 7], "int64"),
    "empty tokens": lambda: {"model_input": {"chunks": [{"encoded_text": {"tokens": []}}]}, "loss_fn_inputs": {}},
    "empty chunks": lambda: {"model_input": {"chunks": []}, "loss_fn_inputs": {}},
    "all-zero weights": lambda: with_input("weights", [0.0, 0.0, 0.0]),
    "positive logprobs": lambda: with_input("logprobs", [0.0, 0.25, -1.0]),
    "negative ids": lambda: with_input("target_tokens", [6, -7, 8], "int64"),
    "string ids": lambda: with_input("target_tokens", [6, "7", 8], "int64"),
}


@pytest.mark.parametrize("case", REFUSED_FROM_THE_SDK)
def test_what_the_public_sdk_sends_without_complaint_is_an_error(case):
    assert not sk.check([REFUSED_FROM_THE_SDK[case]()]).ok


def test_an_empty_batch_is_an_error():
    for batch in ([], (), iter([])):
        report = sk.check(batch)
        assert [item.code for item in report.errors] == ["empty_batch"]
        assert report.stats["num_samples"] == report.stats["num_tokens"] == 0


def test_negative_weights_are_a_warning():
    """wire.md lists them among what check must refuse; the table in signatures.md, which is the contract, warns."""
    report = sk.check([FAULTS["negative_weight"]()])
    assert report.ok
    assert [item.code for item in report.warnings] == ["negative_weight"]


mutations = st.tuples(
    st.sampled_from(["target_tokens", "weights", "advantages", "logprobs", "tokens", "mask", "more"]),
    st.sampled_from(["int64", "float32", "int32", None]),
    st.lists(
        st.one_of(
            st.integers(-2, 9), st.floats(width=32), st.none(), st.booleans(), st.sampled_from(["7", [1], 2**70])
        ),
        min_size=0,
        max_size=4,
    ),
)


@given(st.lists(mutations, min_size=1, max_size=3))
def test_check_is_never_kinder_than_the_constructor(changes):
    """Whatever Sample refuses is an error of check, so that a batch of mappings that passes can be built."""
    sample = right_sample()
    for name, dtype, data in changes:
        if name == "tokens":
            sample["model_input"]["chunks"][0]["encoded_text"]["tokens"] = data
        else:
            sample["loss_fn_inputs"][name] = {"data": data} if dtype is None else {"data": data, "dtype": dtype}
    report = sk.check([sample])
    try:
        held = sk.Sample.from_wire(sample)
    except sk.SampleError:
        assert not report.ok
    else:
        assert sk.check([held]) == report


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"loss": "grpo"}, "loss is a str"),
        ({"vocab_size": "a"}, "vocab_size is 'a'"),
        ({"vocab_size": True}, "vocab_size is True"),
        ({"max_length": 0}, "max_length is 0"),
        ({"max_length": 1.5}, "max_length is 1.5"),
        ({"expected_share": 0.3}, "expected_share is 0.3"),
        ({"expected_share": (0.1,)}, "expected_share is (0.1,)"),
        ({"expected_share": ("a", "b")}, "expected_share is ('a', 'b')"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_refused_by_name(options, what):
    with pytest.raises(sk.SampleError, match=re.escape(what)):
        sk.check([sk.build_sample([1, 2], [0, 1])], **options)
