"""`samplekit pack`: rows that readers of npz and Parquet open, and a report that adds up."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from samplekit import PackingError, SampleError, build_sample, write_samples
from samplekit.cli.pack import pack_command

LENGTHS = (7, 5, 4, 3, 2)


@pytest.fixture
def samples(tmp_path):
    path = tmp_path / "samples.jsonl"
    write_samples(path, [build_sample(range(10, 10 + n), [0, *[1] * (n - 1)]) for n in LENGTHS])
    return path


def run(*arguments):
    return CliRunner().invoke(pack_command, [str(argument) for argument in arguments], catch_exceptions=False)


def test_every_token_and_weight_is_in_the_rows(samples, tmp_path):
    output = tmp_path / "rows.npz"
    done = run(samples, "-o", output, "--max-length", 9, "--pad-id", 0, "--json")
    report = json.loads(done.stdout)
    assert report["num_tokens_in"] == report["num_tokens_out"] == sum(LENGTHS)
    assert sum(item["count"] for item in report["histogram"]) == len(LENGTHS)
    with np.load(output) as rows:
        assert rows["input_ids"].shape == (report["num_rows"], 9)
        assert np.count_nonzero(rows["document_ids"]) == sum(LENGTHS)
        assert rows["loss_mask"].sum() == sum(LENGTHS) - len(LENGTHS)


def test_parquet_holds_lists_that_say_where_documents_end(samples, tmp_path):
    output = tmp_path / "rows.parquet"
    done = run(samples, "-o", output, "--max-length", 4, "--pad-id", 0, "--oversize", "truncate")
    assert "truncated" in done.stdout
    found = pq.read_table(output).to_pydict()
    assert sorted(n for row in found["seq_lengths"] for n in row) == [2, 3, 4, 4, 4]
    assert all(len(row) == 4 for row in found["input_ids"])


def test_what_cannot_be_packed_is_refused_before_anything_is_written(samples, tmp_path):
    with pytest.raises(PackingError, match="sample 0 holds 7 tokens"):
        run(samples, "-o", tmp_path / "rows.npz", "--max-length", 6, "--pad-id", 0)
    assert not (tmp_path / "rows.npz").exists()
    assert run(samples, "-o", tmp_path / "rows.txt", "--max-length", 6, "--pad-id", 0).exit_code == 2


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_no_rows_are_an_error_and_leave_the_older_file(tmp_path, suffix):
    empty, long, output = tmp_path / "empty.jsonl", tmp_path / "long.jsonl", tmp_path / f"rows.{suffix}"
    empty.touch()
    write_samples(long, [build_sample([1, 2, 3], [0, 1, 1])])
    output.write_bytes(b"older")
    with pytest.raises(SampleError, match="gave no row to write: there is no sample in it"):
        run(empty, "-o", output, "--max-length", 9, "--pad-id", 0)
    with pytest.raises(SampleError, match="gave no row to write: every sample was dropped: raise --max-length"):
        run(long, "-o", output, "--max-length", 2, "--pad-id", 0, "--oversize", "drop")
    assert output.read_bytes() == b"older"


class DiskFullError(OSError):
    """Stands for a disk that fills up while the rows are written."""


def fails_half_way(output_of):
    """Give a writer that leaves some bytes where it writes, then fails."""

    def write(*arguments, **columns):
        output_of(arguments).write(b"half")
        raise DiskFullError

    return write


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
@pytest.mark.parametrize("before", [None, b"rows of an earlier run"])
def test_an_interrupted_write_leaves_what_stood_there_and_nothing_beside_it(samples, monkeypatch, suffix, before):
    monkeypatch.setattr(np, "savez_compressed", fails_half_way(lambda arguments: arguments[0]))
    monkeypatch.setattr(pq, "write_table", fails_half_way(lambda arguments: arguments[1]))
    output = samples.with_name(f"rows.{suffix}")
    if before is not None:
        output.write_bytes(before)
    names = sorted(path.name for path in samples.parent.iterdir())
    with pytest.raises(DiskFullError):
        run(samples, "-o", output, "--max-length", 9, "--pad-id", 0)
    assert sorted(path.name for path in samples.parent.iterdir()) == names
    assert before is None or output.read_bytes() == before
