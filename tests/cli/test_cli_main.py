"""What every command shares: help with an example, the version, exit codes, Ctrl-C."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import httpx
import pytest
from chats import CHATS

import samplekit as sk
from samplekit.cli.main import _exit_code, samplekit


def test_the_version_is_the_package_s(run):
    assert run("--version")[:2] == (0, f"samplekit, version {sk.__version__}\n")


@pytest.mark.parametrize("command", [[], *[[name] for name in sorted(samplekit.commands)]])
def test_every_help_has_an_example(run, command):
    code, shown, _ = run(*command, "--help")
    assert code == 0
    assert "Example:" in shown
    before, _, example = shown.partition("Example:")
    assert "\\b" not in shown
    assert before.endswith("\n  ")
    assert example.startswith("\n    samplekit ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (sk.SampleError("x"), 1),
        (sk.FileFormatError("x"), 1),
        (sk.TemplateError("x", code="c"), 1),
        (sk.StatusError("x", status=500), 3),
        (sk.ConnectionFailedError("x"), 3),
        (sk.MissingExtraError("x"), 2),
    ],
)
def test_the_exit_code_says_who_is_at_fault(error, code):
    assert _exit_code(error) == code


def test_an_unknown_command_is_a_wrong_call(run):
    code, _, shown = run("biuld")
    assert code == 2
    assert "biuld" in shown


def test_a_model_that_is_not_there_is_an_error_in_one_line(run, write, tmp_path):
    code, _, shown = run("build", write("chats.jsonl", *CHATS), "-m", tmp_path / "none", "-o", tmp_path / "s.jsonl")
    assert code == 1
    assert "Traceback" not in shown
    assert str(tmp_path / "none") in shown


@contextmanager
def spawn(*arguments, **options):
    """Start the command line; it hears Ctrl-C even where the tests run in the background, and never outlives its test."""
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from samplekit.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1", "TERM": "xterm"},
        **{"stderr": subprocess.PIPE, **options},
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def test_ctrl_c_during_a_build_leaves_the_older_file_and_no_part_of_a_new_one(write, tmp_path):
    out = write("samples.jsonl", b"older")
    fifo = tmp_path / "chats.jsonl"
    os.mkfifo(fifo)
    with spawn("build", fifo, "-m", "samplekit/tiny", "-o", out) as process:
        with fifo.open("wb"):  # opens once the build reads, so the part file is there
            deadline = time.monotonic() + 30
            while not list(tmp_path.glob(".samples.jsonl.*.part")) and time.monotonic() < deadline:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
        _, shown = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in shown
    assert sorted(item.name for item in tmp_path.iterdir()) == ["chats.jsonl", "samples.jsonl"]
    assert out.read_bytes() == b"older\n"


def seen_in_a_terminal(*arguments):
    """Run to the end with stderr in a terminal, and give what is shown there, read while it is: a terminal holds little."""
    watched, terminal = pty.openpty()
    shown = bytearray()

    def read():
        with contextlib.suppress(OSError):  # on Linux the end of a terminal is an error
            while piece := os.read(watched, 65_536):
                shown.extend(piece)

    reader = threading.Thread(target=read)
    reader.start()
    with spawn(*arguments, stderr=terminal) as process:
        os.close(terminal)
        process.communicate(timeout=120)
    reader.join(60)
    os.close(watched)
    return process.returncode, shown.decode()


def test_a_terminal_sees_progress_and_a_pipe_sees_none(write, tmp_path):
    arguments = ["build", write("chats.jsonl", *CHATS), "-m", "samplekit/tiny", "-o", tmp_path / "samples.jsonl"]
    with spawn(*arguments) as process:
        _, shown = process.communicate(timeout=60)
    assert (process.returncode, shown) == (0, "")
    code, shown = seen_in_a_terminal(*arguments)
    assert code == 0
    assert "loading samplekit/tiny" in shown
    assert "building samples" in shown


def test_a_terminal_sees_how_far_a_run_is_and_a_pipe_does_not(samples, tmp_path):
    def arguments(name):
        return ["submit", samples, "-m", "samplekit/tiny", "--run-dir", tmp_path / name, "--batch-size", 10,
                "--held-out", 4, "--evaluate-every", 1]  # fmt: skip

    with spawn(*arguments("piped")) as process:
        _, shown = process.communicate(timeout=120)
    assert process.returncode == 0
    assert shown.splitlines() == [shown.strip()]
    assert shown.startswith("16 samples, 2 steps on http://127.0.0.1:")
    code, shown = seen_in_a_terminal(*arguments("watched"))
    assert code == 0
    assert "loading samplekit/tiny" in shown
    assert "training" in shown
    assert re.search(r"2/2\b.*held-out loss \d\.\d{3}", shown)  # the last step, and what came of it


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_serve_says_where_it_listens_and_ends_when_asked(how):
    with spawn("serve", "--port", 0) as process:
        banner = process.stdout.readline()
        url = banner.split(" on ")[1].split()[0]
        assert httpx.get(f"{url}/healthz").json()["base_model"] == "samplekit/tiny"
        process.send_signal(how)
        process.communicate(timeout=60)
    assert process.returncode == 130


def test_a_port_in_use_is_the_service_s_fault():
    with spawn("serve", "--port", 0) as first:
        port = first.stdout.readline().split(" on ")[1].split()[0].rpartition(":")[2]
        with spawn("serve", "--port", port) as second:
            _, shown = second.communicate(timeout=60)
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=60)
    assert second.returncode == 3
    assert f"port {port} cannot be listened on" in shown
