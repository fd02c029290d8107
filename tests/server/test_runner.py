"""A queue goes on whatever happens to one of its operations."""

import json

import httpx
import pytest

from samplekit.wire import names as wire

RATE = {"adam_params": {"learning_rate": 1e-3}}


@pytest.fixture
def uploaded(open_session, forward_body, make_samples):
    session = open_session()
    body = forward_body(make_samples([5]))
    announced = session.http.post(wire.UPLOAD_URL.path(session_id=session.session_id)).json()
    with httpx.Client() as bare:
        bare.put(announced["upload_url"], content=json.dumps(body).encode())
    return session, {**body, "payload_id": announced["payload_id"]}


def test_an_upload_that_cannot_be_removed_changes_no_outcome_and_stops_no_queue(uploaded, monkeypatch):
    session, body = uploaded

    def stuck(*_, **__):
        raise PermissionError("busy")

    monkeypatch.setattr("samplekit.server.payloads.PayloadStore.discard", stuck)
    assert session.output("forward-backward", body)["loss"] > 0
    assert session.output("optim-step", RATE) == {"step": "1"}


def test_an_operation_that_cannot_be_run_fails_and_the_next_one_runs(open_session, monkeypatch):
    session = open_session()
    session.accumulate()

    def broken(*_):
        raise OSError("no more threads")

    with monkeypatch.context() as patched:
        patched.setattr("samplekit.server.engine.Engine.carry_out", broken)
        shown = session.run("optim-step", RATE)
    assert shown["status"] == wire.OperationStatus.FAILED
    assert shown["error"]["code"] == wire.OperationErrorCode.INTERNAL_ERROR
    assert "no more threads" in shown["error"]["message"]
    assert session.output("optim-step", RATE) == {"step": "1"}
