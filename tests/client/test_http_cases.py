"""Where every case of kind http, and every recorded exchange, is held: names of tests, which must exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DATA = TESTS / "data"
CASES = [case["id"] for case in json.loads((DATA / "cases" / "open_cases.json").read_text()) if case["kind"] == "http"]
EXCHANGES = json.loads((DATA / "wire" / "exchanges.json").read_text())

HELD = {
    "http-02": [
        "client/test_retries.py::test_a_lost_answer_to_an_unkeyed_call_is_outcome_unknown",
        "client/test_retries.py::test_a_lost_answer_to_a_keyed_call_is_asked_for_again_with_the_same_key",
        "client/test_retry_table.py::test_a_call_without_a_key",
    ],
    "http-04": ["client/test_retries.py::test_any_error_body_becomes_a_status_error"],
    "http-06": [
        "client/test_operations.py::test_an_operation_that_the_service_does_not_know_is_named_within_the_grace",
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

# The beginning of a recorded call, and the test of our client that holds it: request, answer or both.
CALLS = {
    "supported_models.get": "client/test_sessions.py",
    "model_resources.estimate_cost": "client/test_exchanges.py::test_opening_and_stopping_a_session_sends_what_the_sdk_sends",
    "model_resources.list": "client/test_resources.py",
    "ModelResourcesClient.create": "client/test_exchanges.py::test_opening_and_stopping_a_session_sends_what_the_sdk_sends",
    "ModelResourcesClient.extend_expiry": "client/test_resources.py",
    "create_session": "client/test_exchanges.py::test_opening_and_stopping_a_session_sends_what_the_sdk_sends",
    "trainer.": "client/test_exchanges.py::test_a_call_sends_what_the_sdk_sends",
    "generator.": "client/test_exchanges.py::test_a_call_sends_what_the_sdk_sends",
    "session.create_": "client/test_checkpoints.py",
    "session.retrieve": "client/test_sessions.py",
    "sessions.list": "client/test_resources.py",
    "sessions.update": "client/test_resources.py",
    "checkpoints.": "client/test_checkpoints.py",
    "download_checkpoint": "client/test_downloads.py",
    "LARGE": "client/test_exchanges.py::test_a_large_batch_sends_the_sdks_stand_in",
    "result payload download": "client/test_operations.py",
    "operation FAILED": "client/test_operations.py",
    "session.stop": "client/test_sessions.py",
    "model_resources.stop": "client/test_exchanges.py::test_opening_and_stopping_a_session_sends_what_the_sdk_sends",
}


def require(place):
    path, _, name = place.partition("::")
    text = (TESTS / path).read_text()
    assert not name or re.search(rf"^def {name}\(", text, re.MULTILINE), place


def test_every_case_of_http_is_held_somewhere():
    assert sorted(HELD) == sorted(CASES)


@pytest.mark.parametrize("place", [place for places in HELD.values() for place in places])
def test_what_holds_a_case_is_there(place):
    require(place)


@pytest.mark.parametrize("call", sorted({item["call"] for item in EXCHANGES}))
def test_every_recorded_call_is_held_somewhere(call):
    found = [place for start, place in CALLS.items() if call.startswith(start)]
    assert found
    for place in found:
        require(place)


def test_every_recorded_route_is_one_of_ours():
    from samplekit.wire import names

    routes = [item for item in vars(names).values() if isinstance(item, names.Route)]
    for item in EXCHANGES:
        path = item["path"].partition("?")[0]
        shapes = [
            re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route.template))
            for route in routes
            if route.method == item["method"]
        ]
        assert any(re.fullmatch(shape, path) for shape in shapes), item["path"]
