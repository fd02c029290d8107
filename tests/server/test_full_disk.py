"""A disk that fills: nothing is called done, or failed, that a later start may decide otherwise."""

import json
import sqlite3
import threading
import time

import httpx
import pytest
from plain_caller import open_plain
from safetensors import SafetensorError

import samplekit as sk
from samplekit.server import LocalService
from samplekit.server.state_directory import StateDirectory
from samplekit.wire import names as wire

ADAM = {"adam_params": {"learning_rate": 1e-3}}
SCORED = {
    "loss": {"type": "LOSS_TYPE_CROSS_ENTROPY"},
    "samples": [sk.build_sample([5, 6, 7, 8], [0, 1, 1, 1]).to_wire()],
}


def state_of(http, session):
    return http.get(wire.GET_SESSION.path(session_id=session.session_id)).json()["status"]


def halted(session, kind, identifier):
    """Give why an operation does not end in this process."""
    path = wire.GET_OPERATION.path(session_id=session.session_id, kind=kind, operation_id=identifier)
    for _ in range(100):
        answer = session.http.get(path)
        if answer.status_code != 200:
            assert answer.status_code == 503
            assert answer.headers["x-should-retry"] == "false"
            return answer.json()["error"]["message"]
        assert answer.json()["status"] not in wire.TERMINAL_OPERATIONS, answer.text
    raise AssertionError(f"{kind} {identifier} is asked for in vain")


def full(*_, **__):
    raise sqlite3.OperationalError("database or disk is full")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("No space left on device")])
def test_what_cannot_be_recorded_is_neither_done_nor_failed_and_ends_after_the_next_start(
    loaded, tmp_path, monkeypatch, error
):
    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        session = open_plain(http, lora={"rank": 2})
        session.accumulate()

        def full(policy_state, path):
            time.sleep(0.5)  # long enough for the next one to be accepted
            raise error

        upload = http.post(wire.UPLOAD_URL.path(session_id=session.session_id)).json()
        http.put(upload["upload_url"], content=json.dumps(SCORED)).raise_for_status()
        scored = {**SCORED, "payload_id": upload["payload_id"]}
        with monkeypatch.context() as broken:
            broken.setattr("samplekit.server.policy_state.PolicyState.write", full)
            answers = [session.submit("optim-step", ADAM, key=key).json()["id"] for key in ("step", "next")]
            waiting = session.submit("forward-backward", scored, key="uploaded").json()["id"]
            assert all("cannot be written" in halted(session, "optim-step", item) for item in answers)
        assert "start the service again" in halted(session, "forward-backward", waiting)
        assert state_of(http, session) == wire.SessionStatus.ERROR
        refused = session.submit("optim-step", ADAM, key="new")
        assert refused.status_code == 400
        assert "cannot be written" in refused.json()["error"]["message"]
        renamed = http.patch(wire.UPDATE_SESSION.path(session_id=session.session_id), json={"display_name": "renamed"})
        assert renamed.json()["status"] == wire.SessionStatus.ERROR
    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        session.http = http
        assert session.run("optim-step", ADAM, key="step")["output"] == {"step": "1"}
        assert session.run("optim-step", ADAM, key="next")["error"]["code"] == wire.OperationErrorCode.INVALID_INPUT
        assert session.run("forward-backward", scored, key="uploaded")["output"]["loss"] > 0  # its upload was kept


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_pass_whose_result_cannot_be_written_counts_once_or_never(
    loaded, tmp_path, monkeypatch, make_samples, forward_body, on_disk
):
    many = forward_body(make_samples([140] * 400), return_loss_fn_outputs=True)
    state_dir = tmp_path / "state" if on_disk else None
    with LocalService(model=loaded, state_dir=state_dir) as service, httpx.Client(base_url=service.url) as http:
        session = open_plain(http, lora={"rank": 2})
        with monkeypatch.context() as broken:
            broken.setattr(
                "samplekit.server.payloads.PayloadStore.store", lambda *_: (_ for _ in ()).throw(OSError(28, "full"))
            )
            if on_disk:
                assert "cannot be written" in halted(
                    session, "forward-backward", session.submit("forward-backward", many, "many").json()["id"]
                )
            else:
                assert session.run("forward-backward", many)["status"] == wire.OperationStatus.FAILED
        assert state_of(http, session) == wire.SessionStatus.ERROR  # its gradient is in the policy
        assert session.submit("optim-step", ADAM).status_code == 400
    if on_disk:
        with LocalService(model=loaded, state_dir=state_dir) as service, httpx.Client(base_url=service.url) as http:
            session.http = http
            assert "payload_id" in session.run("forward-backward", many, "many")["output"]
            assert session.output("optim-step", ADAM) == {"step": "1"}


def test_a_halted_session_is_stopped_by_who_asks_and_what_waits_then_fails_for_good(loaded, tmp_path, monkeypatch):
    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        session = open_plain(http, lora={"rank": 2})
        with monkeypatch.context() as broken:
            broken.setattr(StateDirectory, "settle", full)
            accepted = session.submit("forward-backward", SCORED, "k").json()["id"]
            assert "cannot be written" in halted(session, "forward-backward", accepted)
        later = service.service.clock() + 100_000
        service.service.clock = lambda: later
        assert state_of(http, session) == wire.SessionStatus.ERROR  # what waits is in use
        stopped = http.post(wire.STOP_SESSION.path(session_id=session.session_id)).json()
        assert stopped["status"] == wire.SessionStatus.STOPPED
        failed = session.wait("forward-backward", accepted)
        assert failed["error"]["code"] == wire.OperationErrorCode.SESSION_NOT_ACTIVE
    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        session.http = http
        assert session.wait("forward-backward", accepted) == failed


def test_a_policy_that_was_half_written_takes_no_room(tmp_path, monkeypatch):
    from samplekit.server.policy_state import PolicyState

    def half(_tensors, path, _counters):
        path.write_bytes(b"half")
        raise SafetensorError("No space left on device")

    monkeypatch.setattr("samplekit.server.policy_state.save_file", half)
    with pytest.raises(SafetensorError):
        PolicyState({}, {}, 1).write(tmp_path / "policy.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_an_upload_that_two_operations_read_stays_until_both_have_ended(loaded, tmp_path, monkeypatch):
    settle, go = StateDirectory.settle, threading.Event()

    def first_only(self, session, operation, outcome, policy):
        assert go.wait(30)  # both are accepted
        if operation.key == "second":
            raise sqlite3.OperationalError("killed")
        return settle(self, session, operation, outcome, policy)

    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        session = open_plain(http, lora={"rank": 2})
        upload = http.post(wire.UPLOAD_URL.path(session_id=session.session_id)).json()
        http.put(upload["upload_url"], content=json.dumps(SCORED)).raise_for_status()
        scored = {**SCORED, "payload_id": upload["payload_id"]}
        with monkeypatch.context() as broken:
            broken.setattr(StateDirectory, "settle", first_only)
            session.submit("forward-backward", scored, "first")
            step = session.submit("optim-step", ADAM, "step").json()["id"]
            second = session.submit("forward-backward", scored, "second").json()["id"]
            go.set()
            assert session.wait("optim-step", step)["output"] == {"step": "1"}
            assert "killed" in halted(session, "forward-backward", second)
    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        session.http = http
        assert session.wait("forward-backward", second)["status"] == wire.OperationStatus.COMPLETED
        assert session.output("optim-step", ADAM) == {"step": "2"}
    assert list((tmp_path / "payloads").glob("pl-*")) == []


def test_a_checkpoint_whose_outcome_was_not_recorded_is_listed_once_when_it_was(loaded, tmp_path, monkeypatch):
    def killed(*_):
        raise OSError("killed between the files and the record")

    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        session = open_plain(http, lora={"rank": 2})
        monkeypatch.setattr(StateDirectory, "settle", killed)
        accepted = session.submit("training-checkpoint", {}, "training-checkpoint").json()["id"]
        assert "killed between" in halted(session, "training-checkpoint", accepted)
        assert http.get(wire.LIST_CHECKPOINTS.path()).json()["data"] == []
    monkeypatch.undo()
    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        session.http = http
        done = session.run("training-checkpoint", {}, "training-checkpoint")["output"]["checkpoint"]
        shown = http.get(wire.GET_SESSION.path(session_id=session.session_id)).json()
        assert shown["training_checkpoints"] == [done]
        assert [item["id"] for item in http.get(wire.LIST_CHECKPOINTS.path()).json()["data"]] == [done["id"]]
