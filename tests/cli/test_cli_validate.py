"""`samplekit validate` and `show` on files as they come."""

import json

import orjson
import pytest
from chats import CHATS

import samplekit as sk

GOOD = orjson.loads(sk.build_sample([10, 11, 12], [0, 1, 1]).to_json())
RAGGED = orjson.loads(orjson.dumps(GOOD))
RAGGED["loss_fn_inputs"]["weights"]["data"].append(1.0)
UNTRAINED = orjson.loads(orjson.dumps(GOOD))
UNTRAINED["loss_fn_inputs"]["weights"]["data"] = [0.0, 0.0]


def test_a_good_file_is_said_to_be_good(run, write):
    code, shown, _ = run("validate", write("samples.jsonl", GOOD, GOOD))
    assert code == 0
    assert "2 samples, 4 tokens, 4 trained (100.0%); 0 errors" in shown


def test_every_fault_is_named_by_path_and_line(run, write):
    path = write("samples.jsonl", GOOD, RAGGED, b"", b"{bad", UNTRAINED)
    code, shown, _ = run("validate", path, "--json")
    report = json.loads(shown)
    assert code == 1
    assert [(item["code"], item["path"]) for item in report["errors"]] == [
        ("invalid_field", f"{path}:4"),
        ("length_mismatch", f"{path}:2.loss_fn_inputs['weights']"),
        ("nothing_trained", f"{path}:5.loss_fn_inputs['weights']"),
    ]
    assert all(item["message"].startswith(f"{path}:") for item in report["errors"])


def test_a_finding_can_be_accepted(run, write):
    assert run("validate", write("samples.jsonl", UNTRAINED))[0] == 1
    assert run("validate", write("samples.jsonl", UNTRAINED), "--allow", "nothing_trained")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--loss", "grpo"], "missing_input"),
        (["--vocab-size", "12"], "vocabulary"),
        (["--max-length", "2"], "too_long"),
    ],
)
def test_options_hold_the_file_to_more(run, write, arguments, code):
    exit_code, shown, _ = run("validate", write("samples.jsonl", GOOD), "--json", *arguments)
    assert exit_code == 1
    assert {item["code"] for item in json.loads(shown)["errors"]} == {code}


def test_an_empty_file_and_a_file_of_chats_are_faults(run, write):
    code, shown, _ = run("validate", write("empty.jsonl"))
    assert code == 1
    assert "empty" in shown
    code, _, shown = run("validate", write("chats.jsonl", *CHATS))
    assert code == 1
    assert "run samplekit build first" in shown


def test_a_file_changed_after_its_lock_is_at_fault_and_so_is_what_was_changed(run, write, tmp_path):
    out = tmp_path / "samples.jsonl"
    assert run("build", write("chats.jsonl", *CHATS), "-m", "samplekit/tiny", "-o", out)[0] == 0
    assert run("validate", out, "-m", "samplekit/tiny", "--loss", "cross_entropy")[0] == 0
    out.write_bytes(out.read_bytes() + orjson.dumps(RAGGED) + b"\n")
    code, shown, _ = run("validate", out, "--json")
    lock, ragged = json.loads(shown)["errors"]
    assert code == 1
    assert (lock["path"], "changed since" in lock["message"]) == (str(out), True)
    assert ragged["code"] == "length_mismatch"


def test_show_names_the_sample_that_is_of_another_tokenizer(run, write):
    foreign = orjson.loads(sk.build_sample([10, 999_999, 12], [0, 1, 1]).to_json())
    path = write("samples.jsonl", GOOD, foreign)
    code, shown, error = run("show", path, "-m", "samplekit/tiny")
    assert code == 1
    assert "sample 0" in shown
    assert f"sample 1 of {path} cannot be shown (ids[0] is 999999" in error
    assert "samplekit validate" in error


def test_show_draws_the_text_and_counts_what_trains(run, write, tmp_path):
    out = tmp_path / "samples.jsonl"
    run("build", write("chats.jsonl", *CHATS), "-m", "samplekit/tiny", "-o", out)
    code, shown, _ = run("show", out, "-m", "samplekit/tiny", "--first", 1, "-n", 2)
    assert code == 0
    assert [f"answer {n}<|im_end|>" in shown for n in range(5)] == [False, True, True, False, False]
    code, _, shown = run("show", out, "-m", "samplekit/tiny", "--first", 9)
    assert code == 1
    assert "no sample at place 9" in shown
