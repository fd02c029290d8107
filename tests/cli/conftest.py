"""The command line run in this process, with its exit code and both streams."""

from dataclasses import replace

import orjson
import pytest
import respx
from service_double import FakeTime
from training_double import SAMPLES, URL, TrainingDouble

import samplekit as sk
from samplekit.cli.main import _run
from samplekit.cli.screen import errors, results


@pytest.fixture
def run(capsys, monkeypatch):
    """Run `samplekit` with arguments; gives (exit code, stdout, stderr)."""
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments):
        code = _run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    assert results.stderr is False
    assert errors.stderr is True
    return call


@pytest.fixture
def write(tmp_path):
    """Write rows as JSON lines; bytes stand as they are."""

    def call(name, *rows):
        path = tmp_path / name
        path.write_bytes(b"".join((row if isinstance(row, bytes) else orjson.dumps(row)) + b"\n" for row in rows))
        return path

    return call


@pytest.fixture
def samples(tmp_path):
    path = tmp_path / "samples.jsonl"
    sk.write_samples(path, SAMPLES)
    return path


@pytest.fixture
def service(monkeypatch):
    monkeypatch.setenv("TOGETHER_API_KEY", "sk-secret")
    monkeypatch.delenv("TOGETHER_BASE_URL", raising=False)
    monkeypatch.setattr("samplekit.cli.submit_session.Runtime", lambda **given: replace(FakeTime().runtime(), **given))
    double = TrainingDouble()
    with respx.mock(assert_all_called=False) as router:
        router.route(host="service.example").mock(side_effect=double)
        yield double


@pytest.fixture
def submit(run, samples, service, tmp_path):
    def call(*more, path=samples):
        return run(
            "submit", path, "-m", "samplekit/tiny", "--base-url", URL, "--run-dir", tmp_path / "run", "--epochs", 2,
            "--batch-size", 4, "--learning-rate", 0.5, *more,
        )  # fmt: skip

    return call
