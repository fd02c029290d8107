"""`samplekit serve`: whose fault it is when it does not start."""

import os
import subprocess
import sys

import pytest


def serve(*arguments):
    return subprocess.run(
        [sys.executable, "-c", "from samplekit.cli import main; main()", "serve", *map(str, arguments)],
        capture_output=True, text=True, timeout=120, env={**os.environ, "HF_HUB_OFFLINE": "1"}, check=False,
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
