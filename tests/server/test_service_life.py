"""What a service holds on to, and for how long; what it writes down of operations; how deep a body may be."""

import asyncio
import json
import logging
import sqlite3
import time

import httpx
import pytest
from plain_caller import open_plain

import samplekit as sk
from samplekit import SampleError, ServiceError
from samplekit.server import LocalService, create_app
from samplekit.wire import names as wire

ADAM = {"adam_params": {"learning_rate": 1e-3}}
SCORED = {
    "loss": {"type": "LOSS_TYPE_CROSS_ENTROPY"},
    "samples": [sk.build_sample([5, 6, 7, 8], [0, 1, 1, 1]).to_wire()],
}


def state_of(http, session):
    shown = http.get(wire.GET_SESSION.path(session_id=session.session_id)).json()["status"]
    resources = http.get(wire.GET_RESOURCES.path(resources_id=session.resources_id)).json()["status"]
    return shown, resources


def test_resources_end_when_nobody_uses_them(loaded):
    with LocalService(model=loaded) as service, httpx.Client(base_url=service.url, timeout=60) as http:
        now = service.service.clock()
        service.service.clock = lambda: now
        used, idle = (open_plain(http, lora={"rank": 2}, inactive_timeout=300) for _ in range(2))
        extended = open_plain(http, lora={"rank": 2}, inactive_timeout=300)
        http.post(wire.EXTEND_EXPIRY.path(resources_id=extended.resources_id), json={"seconds": 3600})
        service.service.clock = lambda: now + 299
        used.accumulate()
        running = (wire.SessionStatus.RUNNING, wire.ResourcesStatus.READY)
        assert [state_of(http, item) for item in (used, idle, extended)] == [running] * 3
        service.service.clock = lambda: now + 310
        ended = (wire.SessionStatus.EXPIRED, wire.ResourcesStatus.STOPPED)
        assert [state_of(http, item) for item in (used, idle, extended)] == [running, ended, running]
        refused = idle.submit("optim-step", ADAM)
        assert refused.status_code == 400
        assert "EXPIRED" in refused.json()["error"]["message"]
        assert service.service.sessions[idle.session_id].policy is None
        assert used.output("optim-step", ADAM) == {"step": "1"}


def test_expiry_goes_on_after_a_write_that_failed(loaded, tmp_path, monkeypatch, caplog):
    from samplekit.server.state_directory import StateDirectory

    keep, failed = StateDirectory.keep_resources, []

    def full(self, resources):
        if resources.id not in failed:
            failed.append(resources.id)
            raise sqlite3.OperationalError("database or disk is full")
        keep(self, resources)

    monkeypatch.setattr("samplekit.server.app.SWEEP_SECONDS", 0.001)
    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        for _ in range(2):
            open_plain(http, lora={"rank": 2}, inactive_timeout=300)
        later = service.service.clock() + 1000
        monkeypatch.setattr(StateDirectory, "keep_resources", full)
        service.service.clock = lambda: later
        deadline = time.monotonic() + 30
        while {item.status for item in service.service.resources.values()} != {wire.ResourcesStatus.STOPPED}:
            assert time.monotonic() < deadline
            assert http.get("/healthz").status_code == 200  # what fails is nothing to whoever asks for something else
        assert sorted(failed) == sorted(service.service.resources)
        assert "ran out, and could not be stopped" in caplog.text
        assert {item.status for item in service.service.sessions.values()} == {wire.SessionStatus.EXPIRED}


def test_each_operation_that_ends_is_one_line_of_json(http, open_session):
    lines = []

    class Kept(logging.Handler):
        def emit(self, record):
            lines.append(json.loads(record.getMessage()))

    log, handler = logging.getLogger("samplekit.operations"), Kept()
    session = open_session(lora={"rank": 2})
    session.accumulate()  # nobody listens yet
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        session.output("optim-step", ADAM)
        session.run("optim-step", ADAM)
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
    done, failed = lines
    assert done["kind"] == failed["kind"] == "optim-step"
    assert done["session"] == session.session_id
    assert done["status"] == wire.OperationStatus.COMPLETED
    assert done["step"] == 1
    assert done["seconds"] > 0
    assert "error_code" not in done
    assert failed["error_code"] == wire.OperationErrorCode.INVALID_INPUT


@pytest.mark.parametrize("depth", [200, 900, 1100, 50_000])
@pytest.mark.parametrize("kind", ["optim-step", "forward-backward", "custom-forward-backward", "sample"])
def test_a_body_that_is_nested_too_deep_is_refused(session, depth, kind):
    nested = b"[" * depth + b"]" * depth
    body = {
        "optim-step": b'{"adam_params": %s}',
        "forward-backward": b'{"loss": {"type": "LOSS_TYPE_CROSS_ENTROPY"}, "samples": [%s]}',
        "custom-forward-backward": b'{"samples": [%s], "gradients": []}',
        "sample": b'{"model_inputs": [%s]}',
    }[kind] % nested
    path = wire.SUBMIT_OPERATION.path(session_id=session.session_id, kind=kind)
    answer = session.http.post(path, content=body, headers={"Idempotency-Key": f"deep-{kind}-{depth}"})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("token", ["", " s3cret", "s3cret\n", 5])
def test_an_application_refuses_a_token_that_nobody_can_send(loaded, token):
    with pytest.raises(SampleError, match="token") as caught:
        create_app(loaded, token=token)
    assert "s3cret" not in str(caught.value)


def test_an_application_asks_for_its_token(loaded):
    app = create_app(loaded, token="s3cret")

    async def ask(**headers):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://testserver") as http:
            return (await http.get(wire.SUPPORTED_MODELS.path(), headers=headers)).status_code

    assert asyncio.run(ask()) == 401
    assert asyncio.run(ask(Authorization="Bearer wrong")) == 401
    assert asyncio.run(ask(Authorization="Bearer s3cret")) == 200


def test_a_state_directory_serves_one_service_and_one_model(loaded, tmp_path):
    with (
        LocalService(model=loaded, state_dir=tmp_path),
        pytest.raises(ServiceError, match=r"a service already runs on .*: stop it first"),
    ):
        LocalService(model=loaded, state_dir=tmp_path).start()
    other = type(loaded)("other/model", *list(loaded.__dict__.values())[1:])
    with pytest.raises(ServiceError, match="samplekit/tiny"):
        LocalService(model=other, state_dir=tmp_path).start()


def test_a_service_that_was_stopped_goes_on_with_its_sessions(loaded, tmp_path):
    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        kept, stopped = (open_plain(http, lora={"rank": 2}) for _ in range(2))
        kept.accumulate()
        assert kept.output("optim-step", ADAM) == {"step": "1"}
        kept.accumulate()
        http.post(wire.STOP_SESSION.path(session_id=stopped.session_id))
        path = wire.UPLOAD_URL.path(session_id=kept.session_id)
        waiting = http.post(path).json()["upload_url"].removeprefix(service.url)
        http.patch(wire.UPDATE_SESSION.path(session_id=kept.session_id), json={"display_name": "kept"})
    assert (tmp_path / "payloads" / "secret").stat().st_mode & 0o077 == 0
    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        kept.http = stopped.http = http
        shown = http.get(wire.GET_SESSION.path(session_id=kept.session_id)).json()
        assert shown["display_name"] == "kept"
        assert kept.output("optim-step", ADAM) == {"step": "2"}  # what was accumulated came back
        assert state_of(http, stopped)[0] == wire.SessionStatus.STOPPED
        assert http.put(waiting, content=b"{}").status_code == 200  # a URL that was given out still holds
        assert len(list((tmp_path / "policies").iterdir())) == 1


def test_a_session_runs_though_it_cannot_be_recorded_that_it_is_open(loaded, tmp_path, monkeypatch, caplog):
    from samplekit.server.state_directory import StateDirectory

    keep = StateDirectory.keep_session

    def full(self, session):
        if session.status is wire.SessionStatus.RUNNING:
            raise sqlite3.OperationalError("database or disk is full")
        keep(self, session)

    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        with monkeypatch.context() as broken:
            broken.setattr(StateDirectory, "keep_session", full)
            session = open_plain(http, lora={"rank": 2})
        assert "cannot be written" in caplog.text
        session.accumulate()
        assert session.output("optim-step", ADAM) == {"step": "1"}
