"""The command line run in this process, with its exit code and both streams."""

import orjson
import pytest

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
