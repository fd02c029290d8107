"""What a report says of a batch, and how it raises, prints and becomes JSON."""

import json

import pytest
from faulty_samples import FAULTS, right_sample

import samplekit as sk
from samplekit.checks import CODES


def samples_of(*lengths, trained=1):
    return [sk.build_sample(range(length + 1), [0] * (length + 1 - trained) + [1] * trained) for length in lengths]


def test_stats_count_samples_positions_and_trained_positions():
    report = sk.check(samples_of(3, 5, 10))
    assert report.stats == {
        "num_samples": 3,
        "num_tokens": 18,
        "num_trained": 3,
        "trained_share": 3 / 18,
        "lengths": {"min": 3, "median": 5.0, "mean": 6.0, "max": 10},
    }


def test_stats_of_mappings_equal_those_of_samples():
    samples = samples_of(2, 7, 4, trained=2)
    assert sk.check([sample.to_wire() for sample in samples]).stats == sk.check(samples).stats


def test_stats_count_faulty_samples_as_far_as_they_can_be_read():
    stats = sk.check([right_sample(), FAULTS["token_id"](), FAULTS["not_finite"](), {}]).stats
    assert (stats["num_samples"], stats["num_tokens"], stats["num_trained"]) == (4, 9, 6)


@pytest.mark.parametrize(
    ("share", "warns"), [((0.4, 0.6), False), ((0.5, 0.5), False), ((0.6, 1.0), True), ((0.0, 0.4), True)]
)
def test_a_trained_share_outside_the_expected_one_is_warned_of(share, warns):
    report = sk.check(samples_of(2), expected_share=share)
    assert [item.code for item in report.warnings] == (["trained_share"] if warns else [])
    assert report.ok
    if warns:
        assert report.warnings[0].path == "samples"
        assert "50.0%" in report.warnings[0].message
        assert sk.check(samples_of(2), expected_share=share, allow="trained_share").warnings == []


def test_a_report_without_errors_gives_itself_back():
    report = sk.check([FAULTS["unknown_input"]()])
    assert report.ok
    assert report.raise_for_errors() is report


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("length_mismatch", sk.AlignmentError), ("empty", sk.AlignmentError), ("shape", sk.AlignmentError),
        ("missing_input", sk.LossInputError), ("dtype", sk.LossInputError), ("token_id", sk.SampleError),
        ("not_finite", sk.SampleError), ("nothing_trained", sk.SampleError), ("target_not_next", sk.SampleError),
    ],
)  # fmt: skip
def test_the_first_error_decides_what_is_raised(code, kind):
    report = sk.check([right_sample(), FAULTS[code]()])
    with pytest.raises(sk.SampleError) as caught:
        report.raise_for_errors()
    assert type(caught.value) is kind
    assert str(caught.value) == report.errors[0].message


def test_many_errors_are_raised_in_one_message_and_the_rest_counted():
    with pytest.raises(sk.SampleError) as caught:
        sk.check([FAULTS["token_id"]() for _ in range(25)]).raise_for_errors()
    lines = str(caught.value).split("\n")
    assert len(lines) == 21
    assert lines[19].startswith("samples[19].")
    assert lines[20] == "and 5 more errors"


def test_a_report_is_plain_data():
    report = sk.check([FAULTS["token_id"](), FAULTS["negative_weight"]()])
    shown = json.loads(json.dumps(report.to_dict()))
    assert shown["ok"] is False
    assert shown["errors"] == [{"code": "token_id", "path": report.errors[0].path, "message": report.errors[0].message}]
    assert [item["code"] for item in shown["warnings"]] == ["negative_weight"]
    assert shown["stats"] == report.stats


def test_a_report_prints_as_text():
    text = str(sk.check([FAULTS["token_id"](), FAULTS["negative_weight"]()]))
    first, *lines = text.split("\n")
    assert first == "2 samples, 6 tokens, 4 trained (66.7%); 1 error, 1 warning"
    assert lines[0].startswith("  error [token_id] samples[0].model_input")
    assert lines[1].startswith("  warning [negative_weight] samples[1].loss_fn_inputs['weights']")


def test_a_long_report_prints_what_it_hides():
    text = str(sk.check([FAULTS["token_id"]() for _ in range(30)] + [FAULTS["unknown_input"]() for _ in range(25)]))
    assert len(text.split("\n")) == 1 + 20 + 20 + 1
    assert text.endswith("and 15 more")


def test_an_unknown_code_in_allow_is_refused():
    with pytest.raises(sk.SampleError, match=r"allow holds \['target_next'\].*target_not_next"):
        sk.check(samples_of(2), allow={"target_next"})


def test_one_sample_instead_of_several_is_refused():
    for samples in (samples_of(2)[0], right_sample(), None, 5):
        with pytest.raises(sk.SampleError, match="pass a list"):
            sk.check(samples)


def test_every_code_is_an_error_or_a_warning_and_is_explained():
    for meaning in CODES.values():
        assert meaning.split(":")[0] in {"error", "warning"}
        assert len(meaning) > 20
    with pytest.raises(TypeError):
        CODES["new"] = "error: x"
