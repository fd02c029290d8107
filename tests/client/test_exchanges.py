"""Requests equal those recorded from the vendor's SDK, all 77: method, path, query and body, blocking and async.

Our call is answered with what was recorded, so that it also reads every recorded answer.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from urllib.parse import parse_qsl

import httpx
import pytest
from body_comparison import differences
from recorded_calls import CALLS, EXCHANGES, GROUPS, ON_CLIENTS, ON_RESOURCES, ON_SESSIONS, OPERATIONS, long_sample
from service_double import OPERATIONS as OPERATIONS_PATH
from service_double import URL, operation

import samplekit as sk

# What our call may send besides what was recorded: it looks up the limits of a model, once a client,
LOOKED_UP = {("GET", "/v1/rl/supported-models")}
# and where the SDK shows a checkpoint, ours looks at it to open a session from it.
RESUMING = {
    ("POST", "/v1/rl/model-resources"),
    ("GET", "/v1/rl/model-resources/res-1"),
    ("POST", "/v1/rl/training-sessions"),
    ("GET", "/v1/rl/training-sessions/sess-1"),
}
# What a recorded answer makes our call raise, with a word of it.
RAISED = {72: (sk.OperationFailedError, "NON_FINITE_LOSS")}


def answer_as_recorded(side, indices):
    """Let the double give the recorded answers, in their order, and an object store what belongs to it."""
    for line in {line_of(index) for index in indices}:
        answers = [EXCHANGES[index]["response_body"] for index in indices if line_of(index) == line]
        side.double.answer(re.escape(" ".join(line)), *answers)
    side.double.answer("PUT /r2/.*", {})
    side.double.answer("GET /r2/pl-out-1", {"metrics": {"from_payload": 1.0}})
    side.double.answer("GET /r2/file", lambda request: httpx.Response(200, stream=httpx.ByteStream(b"weights")))


def line_of(index):
    return EXCHANGES[index]["method"], EXCHANGES[index]["path"].partition("?")[0]


def make(side, start, folder):
    """Make our call; operations are waited for."""
    if start in ON_CLIENTS:
        client = side.client()
        return lambda: ON_CLIENTS[start](client, folder)
    if start in ON_RESOURCES:
        resources = side.client().attach_resources("res-1")
        return lambda: ON_RESOURCES[start](resources)
    session = side.session()
    if start in ON_SESSIONS:
        return lambda: ON_SESSIONS[start](session)
    return lambda: OPERATIONS[start](session).result()


@pytest.mark.parametrize("start", GROUPS, ids=lambda start: f"{start} {EXCHANGES[start]['call']}")
def test_a_call_sends_what_the_sdk_sends(side, start, tmp_path):
    call = make(side, start, tmp_path)
    side.double.seen.clear()
    answer_as_recorded(side, GROUPS[start])
    expected, word = RAISED.get(start, (None, ""))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(expected, match=word) if expected else contextlib.nullcontext():
            call()
    seen = [item for item in side.double.seen if item.url.startswith(URL)]
    lines = [line_of(index) for index in GROUPS[start]]
    besides = {(item.method, item.path.partition("?")[0]) for item in seen} - set(lines)
    assert besides <= (LOOKED_UP | RESUMING if start == 55 else LOOKED_UP)
    seen = [item for item in seen if (item.method, item.path.partition("?")[0]) in lines]
    assert [(item.method, item.path.partition("?")[0]) for item in seen] == lines
    for index, item in zip(GROUPS[start], seen, strict=True):
        assert list(request_differences(item, EXCHANGES[index])) == [], index


def request_differences(seen, recorded):
    """Yield where query or body of a request differ from those recorded."""
    queries = [sorted(parse_qsl(path.partition("?")[2])) for path in (seen.path, recorded["path"])]
    if queries[0] != queries[1]:
        yield f"query {queries[0]}, recorded {queries[1]}"
    if recorded["request_body"] is None:
        yield from [f"body {seen.content!r}, recorded none"] if seen.content else []
    else:
        yield from differences(seen.body, recorded["request_body"])
        if b" " in seen.content:
            yield "the body is not compact"


def test_all_77_exchanges_are_compared():
    assert len(EXCHANGES) == 77
    assert sorted(index for start in CALLS for index in GROUPS[start]) == list(range(77))
    assert sum(map(len, (OPERATIONS, ON_SESSIONS, ON_RESOURCES, ON_CLIENTS))) == len(CALLS) == len(GROUPS)


@pytest.mark.parametrize("start", [start for start in GROUPS if EXCHANGES[start]["path"].endswith("/upload-url")])
def test_a_large_body_is_uploaded_whole_and_without_a_key(side, start):
    session = side.session()
    answer_as_recorded(side, GROUPS[start])
    OPERATIONS[start](session)
    assert [item.method for item in side.double.seen] == ["POST", "PUT", "POST"]
    _, put, post = side.double.seen
    assert "authorization" not in put.headers
    assert "idempotency-key" not in put.headers
    assert put.url == EXCHANGES[start]["response_body"]["upload_url"]
    assert int(put.headers["content-length"]) == len(put.content) > 524_288
    assert set(put.body) == set(post.body) - {"payload_id"}
    if start == 57:
        assert sk.Sample.from_wire(put.body["samples"][0]) == long_sample()


def test_a_cost_is_read(side):
    answer_as_recorded(side, [1])
    cost = side.client().estimate_cost(base_model="m", lora_rank=32)
    assert (cost.currency, cost.price_per_hour) == ("USD", 12.5)


def test_flags_never_go_into_an_upload(side):
    side.double.answer("POST .*/payloads/upload-url", EXCHANGES[57]["response_body"])
    side.double.answer("PUT /r2/pl-in-1", {})
    side.double.answer(f"POST {OPERATIONS_PATH}/.*", operation("PENDING"))
    side.session().forward([long_sample()], sk.CrossEntropy())
    _, put, post = side.double.seen
    assert set(put.body) == {"loss", "samples"}
    assert post.body["forward_only"] is post.body["return_loss_fn_outputs"] is True


@pytest.mark.parametrize(
    ("ours", "recorded"),
    [
        ({"a": 1.0}, {"a": 1.0 + 1e-6}),
        ({"a": 1}, {"a": 2}),
        ({"a": True}, {"a": 1}),
        ({"a": "1"}, {"a": 1}),
        ({"a": None}, {}),
        ({}, {"a": None}),
        ({"a": [1, 2]}, {"a": [1]}),
        ({"b": {"weights": {"data": [1.0], "dtype": "float32"}}}, {"b": {"weights": {"data": [0], "dtype": "int64"}}}),
        ({"x": {"dtype": "float32"}}, {"x": {"dtype": "int64"}}),
        ({"sampling_params": {"top_p": 0.5}}, {"sampling_params": {"top_p": 1.0}}),
    ],
)
def test_the_comparison_can_fail(ours, recorded):
    assert list(differences(ours, recorded))


def test_the_comparison_accepts_float32_and_what_we_always_send():
    assert not list(differences({"a": 0.1}, {"a": 0.10000000149011612}))
    assert not list(differences({"sampling_params": {"top_p": 1.0}}, {}))


def test_the_comparison_of_requests_can_fail(side):
    answer_as_recorded(side, [2, 53])
    session = side.session()
    side.client().resources(created_by="me")
    session.rename("other")
    asked, patched = side.double.calls("GET .*/model-resources.*") + side.double.calls("PATCH .*")
    assert len(list(request_differences(asked, EXCHANGES[2]))) == 1
    assert len(list(request_differences(patched, EXCHANGES[53]))) == 1
    assert len(list(request_differences(patched, EXCHANGES[74]))) == 1
