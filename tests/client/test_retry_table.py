"""The rows of the protocol's page on faults, over respx: each row a test, blocking and async."""

from __future__ import annotations

from email.utils import formatdate

import httpx
import pytest
import respx
from service_double import KEY, MODELS, OPERATIONS, RUNNING, SESSION, URL, operation

import samplekit as sk

DONE = operation("COMPLETED", {"step": "1"})
NOW = 1_800_000_000.0  # the wall clock of the tests
KEYED, UNKEYED = f"{URL}{OPERATIONS}/optim-step", f"{URL}/v1/rl/training-sessions"


def status(code, **headers):
    return httpx.Response(code, headers={name.replace("_", "-"): value for name, value in headers.items()})


# row: (what the service does first, whether a keyed call goes on, whether one without a key does, seconds waited)
ROWS = {
    "connection refused": (httpx.ConnectError("refused"), True, True, 1.0),
    "no connection in time": (httpx.ConnectTimeout("slow"), True, True, 1.0),
    "connection reset while reading": (httpx.ReadError("reset"), True, False, 1.0),
    "connection closed without a word": (httpx.RemoteProtocolError("closed"), True, False, 1.0),
    "connection lost while writing": (httpx.WriteError("lost"), True, False, 1.0),
    "no answer in time": (httpx.ReadTimeout("slow"), True, False, 1.0),
    **{f"status {code}": (status(code), True, False, 1.0) for code in (408, 409, 500, 502, 503, 504, 529, 599)},
    "status 429": (status(429), True, True, 1.0),
    **{f"status {code}": (status(code), False, False, None) for code in (301, 307, 400, 401, 402, 403, 404, 410, 413, 422)},
    "x-should-retry true on 400": (status(400, x_should_retry="true"), True, True, 1.0),
    "x-should-retry true on 503": (status(503, x_should_retry="true"), True, True, 1.0),
    "x-should-retry false on 409": (status(409, x_should_retry="false"), False, False, None),
    "x-should-retry false on 429": (status(429, x_should_retry="false"), False, False, None),
    "x-should-retry false on 503": (status(503, x_should_retry="false"), False, False, None),
    "retry-after-ms": (status(429, retry_after_ms="1500"), True, True, 1.5),
    "retry-after-ms before retry-after": (status(429, retry_after_ms="1500", retry_after="7"), True, True, 1.5),
    "retry-after in seconds": (status(429, retry_after="7"), True, True, 7.0),
    "retry-after as a date": (status(429, retry_after=formatdate(NOW + 7, usegmt=True)), True, True, 7.0),
    "retry-after of 60 s": (status(429, retry_after="60"), True, True, 60.0),
    "retry-after over 60 s is ignored": (status(429, retry_after="60.1"), True, True, 1.0),
    "retry-after of 0 is ignored": (status(429, retry_after="0"), True, True, 1.0),
    "retry-after before now is ignored": (status(429, retry_after=formatdate(NOW - 7, usegmt=True)), True, True, 1.0),
    "retry-after that is none is ignored": (status(429, retry_after="later"), True, True, 1.0),
    "a truncated answer": (httpx.Response(200, content=b'{"id": "op-'), True, False, 1.0),
    "an answer that is no JSON": (httpx.Response(200, text="<html>"), True, False, 1.0),
}  # fmt: skip


@pytest.fixture
def router():
    with respx.mock(assert_all_called=False) as found:
        found.get(f"{URL}/v1/rl/supported-models").respond(json=MODELS)
        found.get(f"{URL}/v1/rl/training-sessions/{SESSION}").respond(json=RUNNING)
        found.get(url__regex=rf"{URL}/v1/rl/model-resources/.*").respond(
            json={"id": "res-1", "status": "MODEL_RESOURCES_STATUS_READY", "base_model": "m"}
        )
        yield found


@pytest.fixture
def client(side, router):
    return side.client(transport=None)


@pytest.mark.parametrize("row", ROWS)
def test_a_keyed_call(side, router, client, row):
    first, goes_on, _, pause = ROWS[row]
    route = router.post(KEYED)
    route.side_effect = [first, httpx.Response(200, json=DONE)]
    session = client.attach(SESSION)
    if goes_on:
        assert session.optim_step(learning_rate=1.0).result() == 1
        assert side.time.pauses == [pause]
        one, two = (call.request for call in route.calls)
        assert one.headers["idempotency-key"] == two.headers["idempotency-key"]
        assert one.content == two.content
    else:
        with pytest.raises(sk.StatusError) as caught:
            session.optim_step(learning_rate=1.0)
        assert caught.value.status == first.status_code
        assert route.call_count == 1
        assert side.time.pauses == []
    assert {call.request.headers["authorization"] for call in route.calls} == {f"Bearer {KEY}"}


@pytest.mark.parametrize("row", ROWS)
def test_a_call_without_a_key(side, router, client, row):
    first, _, goes_on, pause = ROWS[row]
    route = router.post(UNKEYED)
    route.side_effect = [first, httpx.Response(200, json=RUNNING)]
    resources = client.attach_resources("res-1")
    if goes_on:
        session = resources.session()
        session.detach()
        assert session.id == SESSION
        assert side.time.pauses == [pause]
        assert route.call_count == 2
    else:
        with pytest.raises(sk.ServiceError) as caught:
            resources.session()
        assert route.call_count == 1
        assert side.time.pauses == []
        unknown = isinstance(first, Exception) or first.status_code in {200, 408} or first.status_code >= 500
        assert ("outcome unknown" in str(caught.value)) == unknown
        assert not unknown or "look for it with GET /v1/rl/training-sessions" in str(caught.value)


BACKOFF = {0.0: [1, 2, 4, 8, 10, 10, 10], 0.999999: [0.75, 1.5, 3, 6, 7.5, 7.5, 7.5]}


@pytest.mark.parametrize("chance", BACKOFF)
def test_seven_tries_more_on_a_session_with_pauses_that_double_to_ten_seconds_with_jitter(side, router, client, chance):
    side.time.chance = chance
    route = router.post(KEYED).respond(503)
    with pytest.raises(sk.StatusError, match="after 8 tries"):
        client.attach(SESSION).optim_step(learning_rate=1.0)
    assert route.call_count == 8
    assert side.time.pauses == pytest.approx(BACKOFF[chance], rel=1e-5)


LONG = sk.build_sample(range(60_001), [1] * 60_001)
STORE = "https://store.example/p?sig=1"


@pytest.mark.parametrize("failing", ["upload-url", "put", "download-url", "get"])
def test_five_tries_more_on_payloads(router, client, failing):
    payloads = f"{URL}/v1/rl/training-sessions/{SESSION}/payloads"
    routes = {
        "upload-url": router.post(f"{payloads}/upload-url"),
        "put": router.put(STORE),
        "download-url": router.post(f"{payloads}/p/download-url"),
        "get": router.get(STORE),
    }
    for name, route in routes.items():
        answer = {"payload_id": "p", "upload_url": STORE, "download_url": STORE, "loss": 1.0}
        route.respond(503) if name == failing else route.respond(json=answer)
    router.post(f"{URL}{OPERATIONS}/forward-backward").respond(json=operation("COMPLETED", {"payload_id": "p"}))
    with pytest.raises(sk.StatusError, match="after 6 tries"):
        client.attach(SESSION).forward_backward([LONG], sk.CrossEntropy()).result()
    assert routes[failing].call_count == 6
    for name in ("put", "get"):
        assert all("authorization" not in call.request.headers for call in routes[name].calls)


# http-06: what a 404 means right after creation, and later.
@pytest.mark.parametrize(("misses", "found"), [(1, True), (15, True), (1000, False)])
def test_a_404_just_after_creation_gets_a_grace_of_ten_seconds(side, router, client, misses, found):
    router.post(KEYED).respond(json=operation("PENDING"))
    poll = router.get(f"{KEYED}/op-1")
    poll.side_effect = [*[httpx.Response(404)] * misses, httpx.Response(200, json=DONE)]
    step, began = client.attach(SESSION).optim_step(learning_rate=1.0), side.time.now
    if found:
        assert step.result() == 1
        assert side.time.now - began < 10
    else:
        with pytest.raises(sk.StatusError, match="op-1") as caught:
            step.result()
        assert caught.value.status == 404
        assert 10 <= side.time.now - began <= 11


def test_a_poll_that_times_out_is_normal(side, router, client):
    router.post(KEYED).respond(json=operation("PENDING"))
    poll = router.get(f"{KEYED}/op-1")
    poll.side_effect = [*[httpx.ReadTimeout("slow")] * 30, httpx.Response(200, json=DONE)]
    assert client.attach(SESSION).optim_step(learning_rate=1.0).result() == 1
    assert poll.call_count == 31
    assert min(side.time.pauses) == 0.5
    assert max(side.time.pauses) <= 5.0


def _extend(client):
    return client.attach_resources("res-1").extend(600)


def _rename(client):
    return client.attach(SESSION).rename("x")


def _annotate(client):
    return client.attach(SESSION).annotate({"a": "b"})


CHANGES = {
    "extend": (_extend, "POST", "model-resources/res-1/extend-expiry", "resources.info.expires_at"),
    "rename": (_rename, "PATCH", f"training-sessions/{SESSION}", r"client.sessions\(\)"),
    "annotate": (_annotate, "PATCH", f"training-sessions/{SESSION}", r"client.sessions\(\)"),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("row", ROWS)
def test_a_call_without_a_key_that_changes_something(side, router, client, row, name):
    change, method, path, lookup = CHANGES[name]
    first, _, goes_on, pause = ROWS[row]
    answer = {**RUNNING, "id": "res-1" if name == "extend" else SESSION}
    route = router.route(method=method, url=f"{URL}/v1/rl/{path}")
    route.side_effect = [first, httpx.Response(200, json=answer)]
    # only the body of an extension is read
    if name != "extend" and isinstance(first, httpx.Response) and first.status_code == 200:
        change(client)
        assert route.call_count == 1
    elif goes_on:
        change(client)
        assert side.time.pauses == [pause]
        assert route.call_count == 2
    else:
        unknown = isinstance(first, Exception) or first.status_code in {200, 408} or first.status_code >= 500
        with pytest.raises(sk.ServiceError, match=f"outcome unknown.*{lookup}" if unknown else "could not"):
            change(client)
        assert route.call_count == 1
        assert side.time.pauses == []
