"""`samplekit serve`: whose fault it is when it does not start."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from samplekit.server.journal import close_journal, open_journal

COMMAND = [sys.executable, "-c", "from samplekit.cli import main; main()", "serve"]
ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1"}


def serve(*arguments):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120, env=ENVIRONMENT, check=False,
    )  # fmt: skip


@pytest.fixture
def no_weights(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    return str(tmp_path)


@pytest.mark.parametrize("model", ["nope/nope", "/nowhere/at/all", "no_weights"])
def test_a_model_that_cannot_be_loaded_is_named_in_one_line(model, request):
    model = request.getfixturevalue(model) if model == "no_weights" else model
    ended = serve("--model", model, "--port", 0)
    assert ended.returncode == 1
    assert repr(model) in ended.stderr
    assert "folder" in ended.stderr
    assert "port" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_state_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    ended = serve("--port", 0, "--state-dir", tmp_path / "file" / "state")
    assert ended.returncode == 3
    assert str(tmp_path / "file" / "state") in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_operation_log_that_cannot_be_written_is_named(tmp_path):
    ended = serve("--port", 0, "--operation-log", tmp_path / "missing" / "operations.jsonl")
    assert ended.returncode == 2
    assert "operations.jsonl" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("token", ["", " s3cret", "s3cret\n"])
def test_a_token_that_nobody_can_send_is_a_fault_of_usage(token):
    ended = serve("--port", 0, "--token", token)
    assert ended.returncode == 2
    assert "--token" in ended.stderr
    assert "None" not in ended.stderr
    assert "s3cret" not in ended.stderr
    assert "loading" not in ended.stderr


def test_what_would_stop_it_is_found_before_a_model_is_loaded(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = serve("--port", taken.getsockname()[1])
    assert busy.returncode == 3
    assert "cannot be listened on" in busy.stderr
    journal = open_journal(tmp_path / "used", "samplekit/tiny")
    used = serve("--port", 0, "--state-dir", tmp_path / "used")
    close_journal(tmp_path / "used", journal)
    assert used.returncode == 3
    assert "a service already runs on" in used.stderr
    other = serve("--port", 0, "--state-dir", tmp_path / "used", "--model", "other/model")
    assert other.returncode == 3
    assert "holds sessions of 'samplekit/tiny'" in other.stderr
    for ended in (busy, used, other):
        assert "loading" not in ended.stderr
        assert "Traceback" not in ended.stderr


def test_a_model_that_is_none_leaves_the_state_directory_free_for_another(tmp_path):
    assert serve("--port", 0, "--state-dir", tmp_path / "new", "--model", "/nowhere/at/all").returncode == 1
    assert not (tmp_path / "new" / "journal.sqlite").exists()


def test_json_logs_are_json_alone_and_any_number_of_signals_ends_it_the_same():
    running = subprocess.Popen(
        [*COMMAND, "--port", "0", "--log-format", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    while "TOGETHER_BASE_URL" not in running.stdout.readline():
        assert running.poll() is None
    for _ in range(3):
        running.send_signal(signal.SIGTERM)
    _, written = running.communicate(timeout=60)
    assert running.returncode == 130
    lines = [json.loads(line) for line in written.splitlines()]
    assert [line["model"] for line in lines if line["event"] == "started"] == ["samplekit/tiny"]


def test_an_interrupt_while_the_address_is_shown_is_one_like_any_other():
    early = """
import sys
from samplekit.cli.main import main
from samplekit.cli.screen import results
def interrupted(*_, **__):
    raise KeyboardInterrupt
results.print = interrupted
sys.argv = ["samplekit", "serve", "--port", "0", "--log-format", "json"]
main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", early], check=False, capture_output=True, text=True, timeout=60, env=ENVIRONMENT
    )
    assert ended.returncode == 130
    messages = [json.loads(line)["message"] for line in ended.stderr.splitlines()]
    assert any(message.startswith("stopping") for message in messages)
