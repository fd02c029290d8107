import logging
import socket
import subprocess
import sys
import textwrap
import threading
import time

import httpx
import pytest
from plain_caller import open_plain

from samplekit import SampleError, ServiceError
from samplekit.server import LocalService
from samplekit.wire import names as wire


def test_it_starts_quickly_answers_and_leaves_no_thread(loaded):
    before = set(threading.enumerate())
    started = time.monotonic()
    with LocalService(model=loaded) as service:
        assert time.monotonic() - started < 3
        url = service.url
        assert url.startswith("http://127.0.0.1:")
        assert httpx.get(f"{service.url}/healthz").json()["status"] == "ok"
    assert set(threading.enumerate()) <= before
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz")


def test_stopping_with_open_connections_and_work_ends_cleanly(loaded):
    before = set(threading.enumerate())
    with LocalService(model=loaded) as service, httpx.Client(base_url=service.url, timeout=60) as http:
        session = open_plain(http)
        prompt = {"chunks": [{"encoded_text": {"tokens": [5, 6, 7]}}]}
        for _ in range(3):
            session.submit("sample", {"model_inputs": [prompt], "sampling_params": {"max_tokens": 50}})
        operations = service.service.operations
        service.stop()
        assert set(threading.enumerate()) <= before
        assert all(operation.status in wire.TERMINAL_OPERATIONS for operation in operations)


def test_two_services_do_not_meet(loaded):
    with LocalService(model=loaded) as first, LocalService(model=loaded) as second:
        assert first.url != second.url
        assert first.service is not second.service


def test_a_port_is_kept_and_free_again_after_stopping(loaded):
    with LocalService(model=loaded) as service:
        port = int(service.url.rpartition(":")[2])
        with pytest.raises(ServiceError, match=f"port {port} cannot"), LocalService(model=loaded, port=port):
            pass
    with LocalService(model=loaded, port=port) as again:
        assert again.url.endswith(f":{port}")


def test_a_failed_start_leaves_nothing_and_starting_again_works(loaded, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # payloads without a state directory go here
    before = set(threading.enumerate())
    service = LocalService(model=loaded)

    async def refuse(server, sockets=None):
        server.should_exit = True

    with monkeypatch.context() as broken:
        broken.setattr("uvicorn.Server.startup", refuse)
        for _ in range(2):
            with pytest.raises(ServiceError, match="did not start"):
                service.start()
            assert set(threading.enumerate()) <= before
            assert list(tmp_path.iterdir()) == []
            with pytest.raises(RuntimeError, match="not running"):
                _ = service.url
    with service:
        assert httpx.get(f"{service.url}/healthz").status_code == 200


def test_a_model_that_cannot_be_loaded_frees_the_port(loaded, tmp_path):
    with LocalService(model=loaded) as service:
        port = int(service.url.rpartition(":")[2])
    with pytest.raises(SampleError, match="nowhere"):
        LocalService(model=str(tmp_path / "nowhere"), port=port).start()
    with LocalService(model=loaded, port=port):
        pass


def test_asking_before_it_runs_says_how(loaded):
    service = LocalService(model=loaded)
    with pytest.raises(RuntimeError, match="with LocalService"):
        _ = service.url
    with pytest.raises(RuntimeError, match="with LocalService"):
        _ = service.service


@pytest.mark.parametrize("port", [-1, 99999, "80", 1.5, True, None])
def test_a_port_that_is_none_is_refused_by_name(port):
    with pytest.raises(SampleError, match=f"port is {port!r}"):
        LocalService(port=port)


@pytest.mark.parametrize("token", ["", " secret", "secret\n", "schlüssel", 5])
def test_a_token_that_nobody_can_send_is_refused_without_showing_it(token):
    with pytest.raises(SampleError, match="token") as caught:
        LocalService(token=token)
    assert "secret" not in str(caught.value)


def test_starting_twice_is_refused(loaded):
    with LocalService(model=loaded) as service, pytest.raises(RuntimeError, match="running already"):
        service.start()


@pytest.mark.parametrize("path", ["/v1/rl/model-resources", "payload"])
def test_a_client_that_goes_away_in_its_body_is_one_line_of_the_log(loaded, caplog, path):
    with LocalService(model=loaded) as service, httpx.Client(base_url=service.url, timeout=60) as http:
        method = "POST"
        if path == "payload":
            asked = http.post(wire.UPLOAD_URL.path(session_id=open_plain(http).session_id)).json()
            method, path = "PUT", asked["upload_url"].removeprefix(service.url)
        port = int(service.url.rpartition(":")[2])
        caplog.clear()
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{{".encode())
            time.sleep(0.2)
        deadline = time.monotonic() + 5
        while "went away" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.01)
        assert http.get("/healthz").status_code == 200
    warned = [item for item in caplog.records if item.levelno >= logging.WARNING]
    assert [item.getMessage().partition(": ")[2] for item in warned] == [
        "the client went away before its body was here"
    ]
    assert warned[0].exc_info is None


def test_a_state_directory_holds_the_payloads(loaded, tmp_path):
    with LocalService(model=loaded, state_dir=tmp_path / "state") as service:
        assert (
            service.service.payloads.path(service.service.payloads.create("s")).parent
            == tmp_path / "state" / "payloads"
        )
    assert (tmp_path / "state" / "payloads").is_dir()


@pytest.mark.parametrize("missing", ["torch", "starlette", "uvicorn", "peft"])
def test_a_missing_extra_names_the_command_that_installs_it(missing):
    code = f"""
        import sys
        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] == {missing!r}:
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        sys.meta_path.insert(0, Absent())
        import samplekit.server
        from samplekit.errors import MissingExtraError
        try:
            samplekit.server.LocalService
        except MissingExtraError as error:
            assert error.extra == "local"
            print(error)
    """
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert missing in found.stdout
    assert 'pip install "samplekit[local]"' in found.stdout


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, samplekit.server, samplekit.training; print([n for n in ('torch', 'starlette', 'uvicorn') if n in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_a_state_directory_is_private_to_its_user(loaded, tmp_path):
    folder = tmp_path / "state"
    (folder / "payloads").mkdir(parents=True)
    with LocalService(model=loaded, state_dir=tmp_path / "new"):
        modes = {path.name: path.stat().st_mode & 0o777 for path in [tmp_path / "new", *(tmp_path / "new").iterdir()]}
    assert {name for name, mode in modes.items() if mode == 0o700} == {"new", "payloads", "policies", "checkpoints"}
    assert {mode for mode in modes.values() if mode != 0o700} == {0o600}
    with LocalService(model=loaded, state_dir=folder):
        assert (folder / "payloads").stat().st_mode & 0o777 == 0o700  # one that was there before


def test_a_script_that_sets_up_no_logging_sees_no_line_of_the_service():
    program = (
        "import logging, samplekit.server.local\n"
        "for name in ('samplekit.server.service', 'uvicorn.error'):\n"
        "    logging.getLogger(name).warning('line of the service')\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "line of the service" not in found.stdout + found.stderr
