"""Ctrl-C and SIGTERM wherever they come: what runs is finished, what waits is neither lost nor failed."""

import os
import signal
import threading
import time

import httpx
import pytest
from plain_caller import open_plain

from samplekit.server import LocalService
from samplekit.server.state_directory import StateDirectory
from samplekit.wire import names as wire

DRAW = {"model_inputs": [{"chunks": [{"encoded_text": {"tokens": [5, 6]}}]}], "sampling_params": {"max_tokens": 20}}


def test_an_interrupt_while_waiting_finishes_what_runs_and_fails_nothing(loaded, tmp_path, monkeypatch):
    settle, runs, go = StateDirectory.settle, threading.Event(), threading.Event()

    def slow(self, *arguments):
        runs.set()
        assert go.wait(30)
        return settle(self, *arguments)

    def interrupt():
        assert runs.wait(30)
        time.sleep(0.5)  # until the test waits for the service
        os.kill(os.getpid(), signal.SIGINT)

    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        session = open_plain(http, lora={"rank": 2})
        monkeypatch.setattr(StateDirectory, "settle", slow)
        accepted = [session.submit("sample", DRAW).json()["id"] for _ in range(3)]
        operations = service.service.operations
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            service.wait()
        threading.Timer(0.5, go.set).start()
        service.stop()
        assert operations[0].status is wire.OperationStatus.COMPLETED  # stopping waited for it
        assert {operation.status for operation in operations[1:]} <= {wire.OperationStatus.PENDING}
    monkeypatch.undo()
    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        session.http = http
        for identifier in accepted:
            assert session.wait("sample", identifier)["status"] == wire.OperationStatus.COMPLETED


def test_an_interpreter_that_ends_fails_no_operation(loaded, tmp_path, monkeypatch):
    """As when a script ends that never stopped its service: executors take nothing any more."""

    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        session = open_plain(http, lora={"rank": 2})
        with monkeypatch.context() as ending:
            ending.setattr("concurrent.futures.thread._shutdown", True)
            found = service.service.find_session(session.session_id)
            thread = service.service._runner._thread
            ending.setattr(thread, "_shutdown", True)
            # accepted on the loop itself, for parsing has no thread any more either
            accepted = session_accepts(service, found)
            time.sleep(0.3)
            assert found.operations[accepted].outcome is None
    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        session.http = http
        assert session.wait("weights-sync", accepted)["status"] == wire.OperationStatus.COMPLETED


def session_accepts(service, found):
    """Let a session take an operation, and give its id."""
    from samplekit.server.records import Operation

    done, loop = threading.Event(), found_loop(service)
    operation = Operation("op-late", wire.OperationKind.WEIGHTS_SYNC, "late", b"", None)

    def accept():
        service.service.accept(found, operation, b'{"weight_sync_type": "WEIGHT_SYNC_TYPE_SYNCHRONOUS"}')
        done.set()

    loop.call_soon_threadsafe(accept)
    assert done.wait(30)
    return operation.id


def found_loop(service):
    return service._server.servers[0].get_loop()
