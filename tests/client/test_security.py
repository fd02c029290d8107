"""The key goes to the base URL and nowhere else; nothing that is shown or raised holds it."""

from __future__ import annotations

import copy
import logging
import pickle
import traceback

import httpx
import numpy as np
import pytest
from service_double import KEY, OPERATIONS, SESSION, URL, operation

import samplekit as sk
from samplekit.client import AsyncClient, Client
from samplekit.client.endpoint import Endpoint, is_loopback

LONG = sk.build_sample(range(60_001), [1] * 60_001)


def test_requests_carry_the_key_and_our_own_user_agent(side):
    side.client().supported_models()
    headers = side.double.seen[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["user-agent"] == f"samplekit/{sk.__version__}"


def test_key_and_url_come_from_the_environment(side, monkeypatch):
    monkeypatch.setenv("TOGETHER_API_KEY", "from-env")
    monkeypatch.setenv("TOGETHER_BASE_URL", "https://elsewhere.example/")
    side.client(base_url=None, api_key=None).supported_models()
    assert side.double.seen[0].url.startswith("https://elsewhere.example/v1/rl/")
    assert side.double.seen[0].headers["authorization"] == "Bearer from-env"


@pytest.mark.parametrize("cls", [Client, AsyncClient])
def test_a_missing_key_is_said_and_a_loopback_service_needs_none(cls, monkeypatch):
    monkeypatch.delenv("TOGETHER_API_KEY", raising=False)
    monkeypatch.delenv("TOGETHER_BASE_URL", raising=False)
    with pytest.raises(sk.ServiceError, match="TOGETHER_API_KEY"):
        cls()
    for url in ("http://127.0.0.1:1", "http://localhost:8000/", "http://[::1]:9", "http://a.localhost"):
        assert cls(base_url=url).base_url == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "http://api.together.ai", "http://10.0.0.1", "http://127.0.0.1.example.com", "http://localhost.example", "ftp://x",
        "api.together.ai", "https://", "http://0.0.0.0", "https://user:hunter2@api.together.ai", "//x", "http://[::2]",
    ],
)  # fmt: skip
def test_unsafe_urls_are_refused_without_repeating_passwords(url):
    with pytest.raises(sk.ServiceError) as caught:
        Client(base_url=url, api_key=KEY)
    assert "hunter2" not in str(caught.value)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("key", ["a\nb", "clé", "a\r\nX-Evil: 1"])
def test_a_key_that_cannot_be_one_is_refused_without_repeating_it(key):
    with pytest.raises(sk.ServiceError) as caught:
        Client(base_url=URL, api_key=key)
    assert key not in str(caught.value)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_are_never_followed(side, code):
    side.double.answer("GET .*/supported-models", httpx.Response(code, headers={"location": "https://evil.example/"}))
    with pytest.raises(sk.StatusError, match="redirect"):
        side.client().supported_models()
    assert {item.url.split("/v1")[0] for item in side.double.seen} == {URL}


def test_uploads_and_downloads_carry_no_key_on_any_origin(side):
    for store in ("https://store.example", URL):  # also where the store has the service's own origin
        side.double.seen.clear()
        side.double.answer("POST .*/payloads/upload-url", {"payload_id": "p", "upload_url": f"{store}/up"})
        side.double.answer("PUT /up", {})
        side.double.answer(f"POST {OPERATIONS}/.*", operation("COMPLETED", {"loss": 1, "payload_id": "q"}))
        side.double.answer("POST .*/payloads/q/download-url", {"download_url": f"{store}/down"})
        side.double.answer("GET /down", {"loss": 2})
        side.session().forward_backward([LONG], sk.CrossEntropy()).result()
        bare = [item.path for item in side.double.seen if "authorization" not in item.headers]
        assert bare == ["/up", "/down"]


@pytest.mark.parametrize(
    "url",
    [
        "http://store.example/p",
        "ftp://store.example/p",
        "https://u:pw@store.example/p",
        "/relative",
        "file:///etc/passwd",
    ],
)
def test_an_upload_url_that_is_not_safe_is_refused(side, url):
    side.double.answer("POST .*/payloads/upload-url", {"payload_id": "p", "upload_url": url})
    with pytest.raises(sk.ServiceError) as caught:
        side.session().forward_backward([LONG], sk.CrossEntropy())
    assert "pw" not in str(caught.value).replace("passwd", "")
    assert not [item for item in side.double.seen if item.method == "PUT"]


def faulty(side, fault):
    side.double.answer("GET .*/supported-models", fault)
    client = side.client(max_retries=1)
    with pytest.raises(sk.ServiceError) as caught:
        client.supported_models()
    return client, caught.value


@pytest.mark.parametrize(
    "fault",
    [
        httpx.Response(401, text=f"bad key {KEY}"),
        httpx.Response(500, json={"error": {"message": f"Authorization: Bearer {KEY}"}}),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.Response(200, text="no json"),
    ],
)
def test_no_error_repr_log_or_traceback_holds_the_key(side, fault, caplog):
    caplog.set_level(logging.DEBUG)
    client, error = faulty(side, fault)
    shown = [
        repr(client), str(client), str(error), repr(error), repr(vars(error)), caplog.text, repr(client._endpoint),
        "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format()),
        "".join(traceback.format_exception(error)),
    ]  # fmt: skip
    assert not [text for text in shown if KEY in text]
    assert KEY not in str(vars(pickle.loads(pickle.dumps(error))))


def test_a_key_is_not_pickled_or_copied_out():
    endpoint = Endpoint.resolve(URL, KEY, 1.0)
    for leak in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            leak(endpoint.key)


def test_a_session_shows_ids_only(side):
    session = side.client().attach(SESSION)
    assert KEY not in repr(session)


def test_ids_cannot_leave_their_path_segment(side):
    with pytest.raises(sk.StatusError):
        side.client().attach("../model-resources/res-1?x=1#")
    assert side.double.seen[0].path == "/v1/rl/training-sessions/..%2Fmodel-resources%2Fres-1%3Fx%3D1%23"


def test_a_closed_client_says_so(side):
    client = side.client()
    client.close()
    with pytest.raises(sk.ConnectionFailedError, match="closed"):
        client.supported_models()


def test_the_client_goes_past_proxies_to_this_machine_only(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    assert not Client(base_url="http://127.0.0.1:1")._connections.http._mounts
    assert Client(base_url=URL, api_key=KEY)._connections.http._mounts


@pytest.mark.parametrize("cls", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"base_url": 5}, "base_url is 5"),
        ({"base_url": "http://localhost:99999"}, "port 99999, expected one of 1 to 65535"),
        ({"base_url": "http://localhost:0"}, "port 0"),
        ({"base_url": f"https://{'a' * 70}.example"}, "empty or overlong part"),
        ({"base_url": "https://service..example"}, "empty or overlong part"),
        ({"api_key": 5}, "api_key is of type int, expected a string"),
        ({"timeout": "5"}, "timeout is '5'"),
        ({"timeout": -1}, "timeout is -1"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": None}, "timeout is None"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"max_retries": "a"}, "max_retries is 'a'"),
        ({"max_retries": -1}, "max_retries is -1"),
        ({"max_retries": 1.5}, "max_retries is 1.5"),
    ],
)
def test_a_setting_of_the_client_that_is_none_is_refused_by_name(cls, options, words):
    with pytest.raises(sk.SamplekitError, match=words):
        cls(**{"base_url": URL, "api_key": KEY, **options})


def test_numbers_of_numpy_are_numbers():
    Client(base_url=URL, api_key=KEY, timeout=np.float32(5), max_retries=np.int64(1)).close()


def test_loopback_is_told_from_look_alikes():
    assert all(map(is_loopback, ("http://127.9.9.9", "http://localhost", "https://[::1]")))
    assert not any(
        map(is_loopback, ("http://127.0.0.1.evil.example", "http://xlocalhost", "http://10.0.0.1", "http://"))
    )
