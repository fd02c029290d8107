"""Where every case of kind http is held: names of tests, which must exist, run and be able to fail."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DATA = TESTS / "data"
CASES = [case["id"] for case in json.loads((DATA / "cases" / "open_cases.json").read_text()) if case["kind"] == "http"]

HELD = {
    "http-02": [
        "client/test_retries.py::test_a_lost_answer_to_an_unkeyed_call_is_outcome_unknown",
        "client/test_retries.py::test_a_lost_answer_to_a_keyed_call_is_asked_for_again_with_the_same_key",
        "client/test_retry_table.py::test_a_call_without_a_key",
    ],
    "http-04": ["client/test_retries.py::test_any_error_body_becomes_a_status_error"],
    "http-06": [
        "client/test_polling_rules.py::test_a_wrong_id_that_was_picked_up_is_said_soon_and_once",
        "client/test_retry_table.py::test_a_404_just_after_creation_gets_a_grace_of_ten_seconds",
    ],
    "http-08": [
        "client/test_splitting.py::test_three_samples_of_400_bytes_under_a_limit_of_1000_are_two_requests",
        "client/test_splitting.py::test_a_sample_that_is_too_large_alone_is_named_before_anything_is_accepted",
        "client/test_splitting.py::test_a_refused_batch_of_another_loss_stays_whole_and_the_error_says_why",
    ],
    "http-10": [
        "client/test_retries.py::test_a_429_at_creation_waits_as_asked",
        "client/test_retries.py::test_a_refusal_at_creation_is_raised_at_once",
    ],
}


def functions_of(text):
    return {item.name: item for item in ast.parse(text).body if isinstance(item, ast.FunctionDef)}


def can_fail(name, functions):
    """Whether a function asserts something that is not constant or expects an error, itself or by one it calls."""
    for node in ast.walk(functions[name]):
        if isinstance(node, ast.Assert) and any(isinstance(part, ast.Name) for part in ast.walk(node.test)):
            return True
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func) in {"pytest.raises", "pytest.warns"}:
            return True
        if isinstance(node.func, ast.Name) and node.func.id in functions.keys() - {name}:
            others = {key: found for key, found in functions.items() if key != name}
            if can_fail(node.func.id, others):
                return True
    return False


def is_left_out(function):
    return any("skip" in ast.unparse(item) or "xfail" in ast.unparse(item) for item in function.decorator_list)


def test_every_case_of_http_is_held_somewhere():
    assert sorted(HELD) == sorted(CASES)


@pytest.mark.parametrize("place", [place for places in HELD.values() for place in places])
def test_what_holds_a_case_runs_and_can_fail(place):
    path, _, name = place.partition("::")
    functions = functions_of((TESTS / path).read_text())
    assert name.startswith("test_")
    assert can_fail(name, functions)
    assert not is_left_out(functions[name])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("pass", False),
        ("'Say something.'", False),
        ("assert True", False),
        ("side.call()", False),
        ("helper(1)", False),
        ("test_it()", False),
        ("assert found == 1", True),
        ("with pytest.raises(ValueError): call()", True),
        ("checking(1)", True),
        ("for item in things:\n        assert item", True),
    ],
)
def test_an_emptied_test_is_noticed(body, expected):
    helpers = "def helper(x): return x\ndef checking(x):\n    assert x\n"
    functions = functions_of(f"{helpers}def test_it():\n    {body}\n")
    assert can_fail("test_it", functions) is expected


def test_a_skipped_test_is_noticed():
    skipped, kept = functions_of(
        "@pytest.mark.skipif(True)\ndef test_a(): pass\n@pytest.mark.parametrize('x', [1])\ndef test_b(x): pass\n"
    ).values()
    assert is_left_out(skipped)
    assert not is_left_out(kept)
