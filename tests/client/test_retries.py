"""The retry table, row by row, on a clock that only moves when slept on."""

from __future__ import annotations

import re
from email.utils import formatdate

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from service_double import OPERATIONS, READY, RUNNING, FakeTime, Side, operation

import samplekit as sk
from samplekit.client.exchange import backoff, retry_after
from samplekit.client.polling import poll_interval

OK = operation("COMPLETED", {"step": "1"})
SUBMIT = f"POST {OPERATIONS}/optim-step"
CREATE = "POST .*/training-sessions"


def status(code, headers=None, body=b""):
    return httpx.Response(code, headers=headers or {}, content=body)


def lost(request):
    raise httpx.ReadTimeout("slow", request=request)


def reset(request):
    raise httpx.RemoteProtocolError("Server disconnected without sending a response.", request=request)


def refused(request):
    raise httpx.ConnectError("refused", request=request)


def no_room(request):
    raise httpx.PoolTimeout("pool", request=request)


# what comes first, whether a keyed call is repeated, whether an unkeyed one is, the pause before
TABLE = [
    (status(400), False, False, None),
    (status(401), False, False, None),
    (status(402), False, False, None),
    (status(403), False, False, None),
    (status(404), False, False, None),
    (status(413), False, False, None),
    (status(422), False, False, None),
    (status(307, {"location": "https://elsewhere.example"}), False, False, None),
    (status(408), True, False, 1.0),
    (status(409), True, False, 1.0),
    (status(429), True, True, 1.0),
    (status(500), True, False, 1.0),
    (status(502), True, False, 1.0),
    (status(503), True, False, 1.0),
    (status(504), True, False, 1.0),
    (status(529), True, False, 1.0),
    (lost, True, False, 1.0),
    (reset, True, False, 1.0),
    (refused, True, True, 1.0),
    (no_room, True, True, 1.0),
    (status(200, body=b'{"id": "op'), True, False, 1.0),
    (status(200, body=b"<html>"), True, False, 1.0),
    (status(200, body=b"[]"), True, False, 1.0),
    (status(200, body=b'{"status": 3}'), True, False, 1.0),
    (status(409, {"x-should-retry": "false"}), False, False, None),
    (status(503, {"x-should-retry": "false"}), False, False, None),
    (status(429, {"x-should-retry": "false"}), False, False, None),
    (status(503, {"x-should-retry": "true"}), True, True, 1.0),
    (status(400, {"x-should-retry": "true"}), True, True, 1.0),
    (status(429, {"retry-after": "2"}), True, True, 2.0),
    (status(429, {"retry-after": "60"}), True, True, 60.0),
    (status(429, {"retry-after": "61"}), True, True, 1.0),
    (status(429, {"retry-after": "0"}), True, True, 1.0),
    (status(429, {"retry-after": "-5"}), True, True, 1.0),
    (status(429, {"retry-after": "soon"}), True, True, 1.0),
    (status(429, {"retry-after": "nan"}), True, True, 1.0),
    (status(429, {"retry-after-ms": "250"}), True, True, 0.25),
    (status(429, {"retry-after-ms": "250", "retry-after": "9"}), True, True, 0.25),
    (status(429, {"retry-after-ms": "0", "retry-after": "9"}), True, True, 9.0),
    (status(429, {"retry-after": formatdate(1_800_000_007.0, usegmt=True)}), True, True, 7.0),
    (status(429, {"retry-after": formatdate(1_799_999_000.0, usegmt=True)}), True, True, 1.0),
    (status(503, {"retry-after": "3"}), True, False, 3.0),
]


@pytest.mark.parametrize(("first", "keyed", "unkeyed", "pause"), TABLE)
def test_a_keyed_call_is_repeated_as_the_table_says(side, first, keyed, unkeyed, pause):
    side.double.answer(SUBMIT, first, OK)
    session = side.session()
    if keyed:
        assert session.optim_step(learning_rate=1e-4).result() == 1
    else:
        with pytest.raises(sk.StatusError) as caught:
            session.optim_step(learning_rate=1e-4)
        assert caught.value.status == first.status_code
    tries = side.double.calls(SUBMIT)
    assert len(tries) == (2 if keyed else 1)
    assert side.time.pauses == ([pause] if keyed else [])
    assert len({item.headers["idempotency-key"] for item in tries}) == 1
    assert len({item.content for item in tries}) == 1


@pytest.mark.parametrize(("first", "keyed", "unkeyed", "pause"), TABLE)
def test_an_unkeyed_call_is_repeated_only_where_no_work_can_have_begun(side, first, keyed, unkeyed, pause):
    side.double.answer(CREATE, first, RUNNING)
    client = side.client()
    if unkeyed:
        client.session(base_model="m").detach()
        assert side.time.pauses == [pause]
    else:
        with pytest.raises(sk.ServiceError):
            client.session(base_model="m").detach()
        assert side.time.pauses == []
    tries = side.double.calls(CREATE)
    assert len(tries) == (2 if unkeyed else 1)
    assert all("idempotency-key" not in item.headers for item in tries)


# http-02: a call without a key whose answer was lost is not sent again; the error names the call and the way to look.
@pytest.mark.parametrize("fault", [lost, reset, status(200, body=b"oops")])
@pytest.mark.parametrize(
    ("pattern", "named"), [(CREATE, "training session"), ("POST .*/model-resources", "model resources")]
)
def test_a_lost_answer_to_an_unkeyed_call_is_outcome_unknown(side, pattern, named, fault):
    side.double.answer(pattern, fault)
    with pytest.raises(sk.ConnectionFailedError, match="outcome unknown") as caught:
        side.client().session(base_model="m")
    assert len(side.double.calls(pattern)) == 1
    assert named in str(caught.value)
    assert re.search(r"GET /v1/rl/\S+\?created_by=me", str(caught.value))


# http-02's class, where there is a key: the lost answer is asked for again under the same key.
@pytest.mark.parametrize("faults", [[lost], [reset, lost], [lost] * 7, [status(503), reset, status(200, body=b"{")]])
def test_a_lost_answer_to_a_keyed_call_is_asked_for_again_with_the_same_key(side, faults):
    side.double.answer(SUBMIT, *faults, OK)
    step = side.session().optim_step(learning_rate=1e-4)
    keys = {item.headers["idempotency-key"] for item in side.double.calls(SUBMIT)}
    assert keys == {step.idempotency_key}
    assert len(side.double.calls(SUBMIT)) == len(faults) + 1
    assert step.result() == 1


# http-04: plain text and JSON lists as error bodies of a call that may not be repeated.
@pytest.mark.parametrize(
    ("answer", "body", "words"),
    [
        (status(503, {"content-type": "text/plain"}, b"upstream busy"), "upstream busy", "upstream busy"),
        (status(500, {}, b'["a", 1]'), ["a", 1], "'a', 1"),
        (
            status(500, {}, b'{"error": {"message": "db down", "code": 7}}'),
            {"error": {"message": "db down", "code": 7}},
            "db down",
        ),
        (status(500, {}, b'{"detail": "nope"}'), {"detail": "nope"}, "nope"),
        (status(500, {}, b'{"error": "flat"}'), {"error": "flat"}, "flat"),
        (status(500, {}, b"null"), None, "500"),
        (status(500, {}, b"12"), 12, "12"),
        (status(500, {}, b""), "", "500"),
        (status(500, {}, b"\xff\xfe"), "\ufffd\ufffd", "500"),
        (status(500, {}, b"[" * 100_000), "[" * 100_000, "[[[[ ..."[-3:]),
        (status(500, {"x-request-id": "req-9"}, b"{}"), {}, "req-9"),
    ],
)
def test_any_error_body_becomes_a_status_error(side, answer, body, words):
    side.double.answer(CREATE, answer)
    with pytest.raises(sk.StatusError) as caught:
        side.client().session(base_model="m")
    assert len(side.double.calls(CREATE)) == 1
    assert caught.value.status == answer.status_code
    assert caught.value.body == body
    assert caught.value.request_id == answer.headers.get("x-request-id")
    assert words in str(caught.value)
    assert len(str(caught.value)) < 1200


# http-10: 429 at creation waits as asked and succeeds; 400 and 401 fail at once.
def test_a_429_at_creation_waits_as_asked(side):
    side.double.answer(CREATE, status(429, {"retry-after": "2"}), RUNNING)
    side.client().session(base_model="m").detach()
    assert side.time.pauses == [2.0]


@pytest.mark.parametrize("code", [400, 401, 403, 404])
@pytest.mark.parametrize("pattern", [CREATE, "POST .*/model-resources"])
def test_a_refusal_at_creation_is_raised_at_once(side, pattern, code):
    side.double.answer(pattern, status(code, {}, b'{"error": {"message": "no"}}'))
    with pytest.raises(sk.StatusError) as caught:
        side.client().session(base_model="m")
    assert caught.value.status == code
    assert len(side.double.calls(pattern)) == 1


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (401, "TOGETHER_API_KEY"),
        (403, "may not"),
        (404, "base_url"),
        (429, "quota"),
        (402, "pay"),
        (413, "fewer"),
        (302, "redirect"),
    ],
)
def test_an_error_says_what_to_do(side, code, advice):
    side.double.answer(SUBMIT, status(code))
    with pytest.raises(sk.StatusError, match=advice):
        side.session(max_retries=0).optim_step(learning_rate=1.0)


def test_retries_end_after_as_many_as_asked_for_and_pauses_double_to_ten_seconds(side):
    side.double.answer(SUBMIT, status(503))
    with pytest.raises(sk.StatusError, match="after 8 tries"):
        side.session().optim_step(learning_rate=1e-4)
    assert len(side.double.calls(SUBMIT)) == 8
    assert side.time.pauses == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]


def test_a_call_that_never_got_through_names_its_key(side):
    side.double.answer(SUBMIT, lost)
    with pytest.raises(sk.ConnectionFailedError) as caught:
        side.session(max_retries=2).optim_step(learning_rate=1e-4)
    assert side.double.seen[0].headers["idempotency-key"] in str(caught.value)


@pytest.mark.parametrize(("allowed", "tries"), [(0, 1), (2, 3), (5, 6), (7, 6)])
def test_payloads_are_tried_five_times_more_and_never_more_often_than_the_caller_allows(side, allowed, tries):
    long = sk.build_sample(range(60_001), [1] * 60_001)
    side.double.answer("POST .*/payloads/upload-url", status(503))
    session = side.session(max_retries=allowed)
    with pytest.raises(sk.StatusError):
        session.forward_backward([long], sk.CrossEntropy())
    assert len(side.double.calls("POST .*/payloads/upload-url")) == tries
    side.double.answer(SUBMIT, operation("COMPLETED", {"payload_id": "out"}))
    side.double.answer("POST .*/payloads/out/download-url", {"download_url": "https://store.example/out?sig=1"})
    side.double.answer("GET /out", status(503))
    with pytest.raises(sk.StatusError):
        session.optim_step(learning_rate=1.0).result()
    assert len(side.double.calls("GET /out.*")) == tries


def test_a_payload_that_cannot_be_uploaded_fails_before_the_operation_is_submitted(side):
    long = sk.build_sample(range(60_001), [1] * 60_001)
    side.double.answer(
        "POST .*/payloads/upload-url", {"payload_id": "p", "upload_url": "https://store.example/p?sig=1"}
    )
    side.double.answer("PUT /p", status(503))
    with pytest.raises(sk.StatusError, match="upload payload p") as caught:
        side.session().forward_backward([long], sk.CrossEntropy())
    assert len(side.double.calls(r"PUT /p\?sig=1")) == 6
    assert "sig" not in str(caught.value)
    assert not side.double.calls(f"POST {OPERATIONS}/.*")


@given(st.lists(st.sampled_from([lost, reset, refused, status(500), status(429), status(409)]), max_size=7))
def test_a_key_is_kept_across_retries_and_never_used_twice(faults):
    side = Side("blocking", None)
    session = side.session()
    keys = []
    for number in range(3):
        side.double.seen.clear()
        side.double.answer(SUBMIT, *faults, {**OK, "id": f"op-{number}"})
        step = session.optim_step(learning_rate=1e-4)
        sent = {item.headers["idempotency-key"] for item in side.double.seen}
        assert sent == {step.idempotency_key}
        keys.append(step.idempotency_key)
    assert len(set(keys)) == 3


@given(st.integers(0, 40), st.floats(0, 1, exclude_max=True))
def test_backoff_stays_within_its_bounds(attempt, chance):
    pause = backoff(attempt, FakeTime(chance=chance).runtime())
    longest = min(2.0**attempt, 10.0)
    assert 0.75 * longest <= pause <= longest


@given(st.text(max_size=20), st.text(max_size=20))
def test_retry_after_reads_any_header(milliseconds, seconds):
    found = retry_after({"retry-after-ms": milliseconds, "retry-after": seconds}, 0.0)
    assert found is None or 0 < found <= 60


@given(st.floats(0, 1e6))
def test_polls_are_half_a_second_to_five_seconds_apart(elapsed):
    assert 0.5 <= poll_interval(elapsed) <= 5.0


def test_stopping_asks_what_became_of_it_before_asking_again(side):
    stopping = {**READY, "status": "MODEL_RESOURCES_STATUS_STOPPING"}
    side.double.answer("POST .*/res-1/stop", lost, stopping)
    side.double.answer("GET .*/model-resources/res-1", READY, READY, stopping)
    with side.client().session(base_model="m"):
        pass
    assert len(side.double.calls(r"POST .*/res-1/stop.*")) == 2  # it still ran, so it was asked once more
    side.double.seen.clear()
    side.double.answer("POST .*/res-1/stop", lost)
    side.double.answer("GET .*/model-resources/res-1", READY, stopping)
    with side.client().session(base_model="m"):
        pass
    assert len(side.double.calls(r"POST .*/res-1/stop.*")) == 1  # it had stopped
