"""What a service writes down while it runs: requests, operations, warnings; nothing that is secret."""

import asyncio
import json
import logging

import httpx
import pytest
from plain_caller import open_plain

from samplekit.server import LocalService
from samplekit.server.json_log import JsonFormatter
from samplekit.wire import names as wire

ADAM = {"adam_params": {"learning_rate": 1e-3}}


@pytest.fixture
def lines():
    """What loggers of the service write, as a machine reads it."""
    written = []

    class Kept(logging.Handler):
        def emit(self, record):
            line = self.format(record)
            assert "\n" not in line
            written.append(json.loads(line))

    log, handler = logging.getLogger("samplekit.server"), Kept()
    handler.setFormatter(JsonFormatter())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield written
    log.removeHandler(handler)
    log.setLevel(logging.NOTSET)


def events(lines, name):
    return [line for line in lines if line["event"] == name]


def test_requests_operations_and_the_start_are_one_object_each(loaded, lines):
    with LocalService(model=loaded, token="s3cret") as service:
        headers = {"Authorization": "Bearer s3cret"}
        with httpx.Client(base_url=service.url, headers=headers) as http:
            session = open_plain(http, lora={"rank": 2})
            session.accumulate()
            session.output("optim-step", ADAM)
            session.run("optim-step", ADAM)
            upload = http.post(wire.UPLOAD_URL.path(session_id=session.session_id)).json()["upload_url"]
            http.put(upload, content=b'{"confidential": 1}')
        httpx.get(f"{service.url}{wire.SUPPORTED_MODELS.path()}", headers={"Authorization": "Bearer wr0ng"})
        url = service.url
    (started,) = events(lines, "started")
    assert (started["model"], started["url"]) == ("samplekit/tiny", url)
    asked = events(lines, "request")
    created = next(line for line in asked if line["path"] == wire.CREATE_SESSION.path())
    assert (created["method"], created["status"], created["level"]) == ("POST", 200, "INFO")
    assert created["seconds"] > 0
    assert len({line["request_id"] for line in asked}) == len(asked) >= 8
    assert [line["path"] for line in asked if line["status"] == 401] == [wire.SUPPORTED_MODELS.path()]
    assert [line["path"] for line in asked if line["method"] == "PUT"] == [httpx.URL(upload).path]
    passed, stepped, failed = events(lines, "operation")
    assert [line["kind"] for line in (passed, stepped, failed)] == ["forward-backward", "optim-step", "optim-step"]
    assert {line["session"] for line in (passed, stepped, failed)} == {session.session_id}
    assert (stepped["status"], stepped["step"]) == (wire.OperationStatus.COMPLETED, 1)
    assert failed["error_code"] == wire.OperationErrorCode.INVALID_INPUT
    everything = json.dumps(lines)
    for secret in ("s3cret", "wr0ng", "signature", "confidential", "Bearer"):
        assert secret not in everything


def test_the_answer_names_the_request_that_the_log_names(http, lines):
    answer = http.get("/v1/rl/nowhere")
    (line,) = events(lines, "request")
    assert line["request_id"] == answer.headers[wire.REQUEST_ID]
    assert (line["status"], line["path"]) == (404, "/v1/rl/nowhere")


def test_a_failure_stays_one_line_with_its_traceback():
    try:
        raise ValueError("odd\nnews")
    except ValueError as error:
        record = logging.LogRecord(
            "name", logging.ERROR, "", 0, "it %s", ("broke",), (ValueError, error, error.__traceback__)
        )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    read = json.loads(line)
    assert (read["message"], read["level"], read["event"]) == ("it broke", "ERROR", "log")
    assert "ValueError: odd\nnews" in read["traceback"]


def test_what_nobody_uses_ends_though_nobody_asks(loaded, monkeypatch):
    monkeypatch.setattr("samplekit.server.app.SWEEP_SECONDS", 0.001)
    with LocalService(model=loaded) as service, httpx.Client(base_url=service.url) as http:
        open_plain(http, lora={"rank": 2}, inactive_timeout=300)
        (resources,), (session,) = service.service.resources.values(), service.service.sessions.values()
        later = service.service.clock() + 1000
        service.service.clock = lambda: later

        async def ended():
            while session.status is not wire.SessionStatus.EXPIRED:  # no request: that would end it, too
                await asyncio.sleep(0.001)

        asyncio.run(asyncio.wait_for(ended(), 30))
        assert resources.status is wire.ResourcesStatus.STOPPED


@pytest.mark.parametrize("path", [wire.CREATE_RESOURCES.path(), "/v1/rl/nowhere"])
def test_who_sends_all_before_reading_hears_why_it_was_refused(running, path):
    """As urllib does; a connection that is closed over unread bytes is reset, and the answer is lost."""
    import urllib.error
    import urllib.request

    asked = urllib.request.Request(running.url + path, data=b"x" * 40_000_000, method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, timeout=60)
    assert refused.value.code == (404 if path.endswith("nowhere") else 413)
    refused.value.close()


def test_who_asks_before_sending_is_not_waited_for(running):
    import socket

    head = f"POST {wire.CREATE_RESOURCES.path()} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n"
    with socket.create_connection(("127.0.0.1", httpx.URL(running.url).port), timeout=20) as asking:
        asking.sendall(head.encode())
        assert asking.recv(1000).startswith(b"HTTP/1.1 413")
