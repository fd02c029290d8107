"""What requests look at changes on the event loop alone, in one piece, and not before it is recorded."""

import asyncio
import json
import threading
from types import SimpleNamespace

import httpx
import pytest
from plain_caller import open_plain

from samplekit.server import LocalService, Service
from samplekit.server.operation_routes import _shown
from samplekit.server.records import Operation, Outcome, Resources, Session
from samplekit.wire import names as wire

ADAM = {"adam_params": {"learning_rate": 1e-3}}
DRAW = {"model_inputs": [{"chunks": [{"encoded_text": {"tokens": [5, 6]}}]}], "sampling_params": {"max_tokens": 2}}
DONE = Outcome(wire.OperationStatus.COMPLETED, b'{"step":"1"}')


class Watched(dict):
    """A mapping that notes which thread changes it."""

    threads: set

    def __setitem__(self, key, value):
        self.threads.add(threading.current_thread().name)
        super().__setitem__(key, value)


@pytest.fixture
def writers(monkeypatch):
    """Names of the threads that changed a record."""
    threads = set()

    def noted(record, name, value):
        threads.add(threading.current_thread().name)
        object.__setattr__(record, name, value)

    for kind in (Operation, Resources, Session):
        monkeypatch.setattr(kind, "__setattr__", noted)
    return threads


def watched_checkpoints(service, threads):
    service.checkpoints.records = Watched(service.checkpoints.records)
    service.checkpoints.records.threads = threads


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_engine_thread_changes_nothing_that_requests_look_at(
    loaded, tmp_path, writers, on_disk, make_samples, forward_body
):
    state_dir = tmp_path / "state" if on_disk else None
    many = forward_body(make_samples([140] * 400), forward_only=True, return_loss_fn_outputs=True)
    with LocalService(model=loaded, state_dir=state_dir) as service, httpx.Client(base_url=service.url) as http:
        watched_checkpoints(service.service, writers)
        service.service.outcomes._max_outcomes = 2
        session = open_plain(http, lora={"rank": 2})
        session.accumulate()
        for kind, body in (("optim-step", ADAM), ("weights-sync", {"weight_sync_type": "WEIGHT_SYNC_TYPE_PIPELINE"}),
                           ("forward-backward", many), ("sample", DRAW), ("training-checkpoint", {}),
                           ("inference-checkpoint", {})):  # fmt: skip
            session.output(kind, body)
        assert session.run("optim-step", ADAM)["status"] == wire.OperationStatus.FAILED
        session.accumulate()
    if on_disk:
        with LocalService(model=loaded, state_dir=state_dir) as service, httpx.Client(base_url=service.url) as http:
            session.http = http
            assert session.run("optim-step", ADAM, key="after")["output"] == {"step": "2"}
    assert writers <= {"samplekit-service", threading.current_thread().name}
    assert "samplekit-service" in writers


def test_an_answer_shows_one_moment_whatever_ends_meanwhile():
    operation = Operation("op-1", wire.OperationKind.OPTIM_STEP, "k", b"", None)
    before = operation.outcome
    operation.end(DONE)
    assert json.loads(operation.to_json(before)) == {"id": "op-1", "status": wire.OperationStatus.PENDING}
    shown = {"id": "op-1", "status": wire.OperationStatus.COMPLETED, "output": {"step": "1"}}
    assert json.loads(operation.to_json(operation.outcome)) == shown
    operation.end(Outcome(DONE.status, None))

    async def parse(read):
        return read()

    service = SimpleNamespace(parse=parse, outcomes=SimpleNamespace(read=lambda _: DONE.output))
    assert json.loads(asyncio.run(_shown(service, operation)).body) == shown


def test_a_step_is_counted_once_it_is_recorded(loaded, tmp_path, monkeypatch):
    from samplekit.server.state_directory import StateDirectory

    waiting, go = threading.Event(), threading.Event()
    settle = StateDirectory.settle

    def slow(self, session, operation, outcome, policy):
        if operation.kind == "optim-step":
            waiting.set()
            assert go.wait(30)
        return settle(self, session, operation, outcome, policy)

    monkeypatch.setattr(StateDirectory, "settle", slow)
    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        session = open_plain(http, lora={"rank": 2})
        session.accumulate()
        accepted = session.submit("optim-step", ADAM).json()["id"]
        assert waiting.wait(30)
        path = wire.GET_SESSION.path(session_id=session.session_id)
        assert http.get(path).json()["step"] == "0"
        http.patch(path, json={"display_name": "renamed"})  # recorded as it is shown
        go.set()
        assert session.wait("optim-step", accepted)["output"] == {"step": "1"}
        assert http.get(path).json()["step"] == "1"
    again = Service(loaded, state_dir=tmp_path)  # nothing was run again yet
    (found,) = again.sessions.values()
    assert (found.step, found.display_name) == (1, "renamed")
    again.close()


@pytest.mark.parametrize("on_disk", [False, True])
def test_stopping_ends_what_runs_and_begins_nothing(loaded, tmp_path, on_disk):
    state_dir = tmp_path / "state" if on_disk else None
    drawing = {**DRAW, "sampling_params": {"max_tokens": 200}}
    with LocalService(model=loaded, state_dir=state_dir) as service, httpx.Client(base_url=service.url) as http:
        sessions = [open_plain(http, lora={"rank": 2}) for _ in range(3)]
        accepted = [(session, session.submit("sample", drawing).json()["id"]) for session in sessions * 2]
        operations = service.service.operations
        service.stop()
    ended = [operation for operation in operations if operation.outcome is not None]
    completed = [operation for operation in ended if operation.status is wire.OperationStatus.COMPLETED]
    assert 1 <= len(completed) < len(operations) == 6
    assert len(ended) == (len(completed) if on_disk else 6)
    if on_disk:
        with LocalService(model=loaded, state_dir=state_dir) as service, httpx.Client(base_url=service.url) as http:
            for session, identifier in accepted:
                session.http = http
                assert session.wait("sample", identifier)["status"] == wire.OperationStatus.COMPLETED
