"""`samplekit pack`: rows that readers of npz and Parquet open, and a report that adds up."""

import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner
from datasets import Dataset

from samplekit import (
    FileFormatError,
    PackingError,
    Record,
    SampleError,
    build_sample,
    pack,
    read_samples,
    write_samples,
)
from samplekit.cli.build import build
from samplekit.cli.pack import pack_command
from samplekit.training import PackingCollator

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


CHAT = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}] * 2}


@pytest.fixture
def chats(tmp_path):
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(CHAT) + "\n" for _ in range(5)))
    return path


@pytest.mark.parametrize("options", [[], ["--turns", "last"], ["--thinking", "off"]])
def test_conversations_are_built_and_packed_as_in_two_steps(chats, tmp_path, options):
    built, one, two = tmp_path / "samples.jsonl", tmp_path / "one.npz", tmp_path / "two.npz"
    packing = ["--max-length", 99, "--pad-id", 0]
    run(chats, "--model", "samplekit/tiny", "-o", one, *packing, *options)
    arguments = [str(chats), "--model", "samplekit/tiny", "-o", str(built), *options]
    assert CliRunner().invoke(build, arguments, catch_exceptions=False).exit_code == 0
    run(built, "-o", two, *packing)
    with np.load(one) as found, np.load(two) as expected:
        assert found.files == expected.files
        for name in found.files:
            assert np.array_equal(found[name], expected[name])
        assert np.count_nonzero(found["loss_mask"])


def test_conversations_without_a_model_and_settings_without_one_are_refused(chats, samples, tmp_path):
    packing = ["-o", tmp_path / "rows.npz", "--max-length", 99, "--pad-id", 0]
    assert "pass --model" in run(chats, *packing).stderr
    assert "pass --model" in run(samples, *packing, "--turns", "last").stderr
    assert not (tmp_path / "rows.npz").exists()
    with pytest.raises(FileFormatError, match=r"samples\.jsonl:1 holds no 'messages'"):
        run(samples, "--model", "samplekit/tiny", *packing)
    broken = tmp_path / "broken.jsonl"
    broken.write_text(samples.read_text() + '{"model_input"')
    with pytest.raises(FileFormatError, match=r"broken\.jsonl:6"):
        run(broken, *packing)
    assert not (tmp_path / "rows.npz").exists()


def test_a_samples_file_that_was_changed_after_it_was_built_is_refused(chats, tmp_path):
    built = tmp_path / "samples.jsonl"
    arguments = [str(chats), "--model", "samplekit/tiny", "-o", str(built)]
    assert CliRunner().invoke(build, arguments, catch_exceptions=False).exit_code == 0
    built.write_text("".join(built.read_text().splitlines(keepends=True)[:3]))
    with pytest.raises(FileFormatError, match="it was changed since"):
        run(built, "-o", tmp_path / "rows.npz", "--max-length", 99, "--pad-id", 0)


@pytest.mark.parametrize("strategy", ["best", "ffd", "first_fit", "next_fit"])
@pytest.mark.parametrize(
    ("oversize", "dropped", "truncated"),
    [("drop", (12, 2), (0, 0)), ("truncate", (0, 0), (4, 2)), ("truncate_left", (0, 0), (4, 2))],
)
def test_the_report_counts_what_an_oversize_policy_leaves_out(
    samples, tmp_path, oversize, strategy, dropped, truncated
):
    output = tmp_path / "rows.npz"
    options = ["--oversize", oversize, "--strategy", strategy, "--json"]
    done = run(samples, "-o", output, "--max-length", 4, "--pad-id", 0, *options)
    report = json.loads(done.stdout)
    assert (report["num_dropped"], report["num_dropped_samples"]) == dropped
    assert (report["num_truncated"], report["num_truncated_samples"]) == truncated
    assert report["num_tokens_in"] == sum(LENGTHS) == report["num_tokens_out"] + dropped[0] + truncated[0]
    assert report["num_rows"] >= report["lower_bound"]
    assert report["utilization"] == pytest.approx(report["num_tokens_out"] / (4 * report["num_rows"]))
    with np.load(output) as rows:
        full = sorted(tuple(row) for row in rows["input_ids"].tolist() if 0 not in row and row[0] + 3 == row[3])
    alone = [(10, 11, 12, 13)]  # the sample of 4; those of 7 and 5 keep their first or last 4
    kept = {"drop": [], "truncate": alone * 2, "truncate_left": [(11, 12, 13, 14), (13, 14, 15, 16)]}
    assert full == sorted(alone + kept[oversize])


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_the_rows_of_the_file_are_those_of_pack_for_the_collator(samples, tmp_path, suffix):
    output = tmp_path / f"rows.{suffix}"
    run(samples, "-o", output, "--max-length", 9, "--pad-id", 3)
    if suffix == "parquet":
        items = Dataset.from_parquet(str(output), cache_dir=str(tmp_path / "cache")).to_list()
    else:
        with np.load(output) as found:
            items = [
                dict(zip(found.files, arrays, strict=True))
                for arrays in zip(*(found[name] for name in found.files), strict=True)
            ]
    rows = pack([Record.from_sample(sample) for sample in read_samples(samples)], 9, pad_id=3, seed=0)
    found, expected = (PackingCollator(9, pad_id=3)(given) for given in (items, rows))
    assert [row.padding_length for row in rows] != [0] * len(rows)
    for name, values in expected.items():
        assert torch.equal(torch.as_tensor(found[name]), torch.as_tensor(values)), name


def test_what_cannot_be_packed_is_refused_before_anything_is_written(samples, tmp_path):
    with pytest.raises(PackingError, match=r"samples\.jsonl:1 holds 7 tokens, a row holds --max-length 6 \(1 of 5"):
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


def test_files_of_another_kind_are_told_what_is_expected(samples, tmp_path):
    rows, table, array = tmp_path / "rows.npz", tmp_path / "rows.parquet", tmp_path / "tokens.npy"
    for output in (rows, table):
        run(samples, "-o", output, "--max-length", 9, "--pad-id", 0)
    np.save(array, [1, 2])
    packing = ["-o", tmp_path / "out.npz", "--max-length", 9, "--pad-id", 0]
    kinds = {rows: r"rows\.npz is a \.npz file", table: "is a Parquet file", array: r"is a \.npy file"}
    for path, words in kinds.items():
        with pytest.raises(FileFormatError, match=rf"{words}.*packed already.*expected samples as JSON lines"):
            run(path, *packing)
    with pytest.raises(FileFormatError, match=r"rows\.npz is a \.npz file"):
        run(rows, "--model", "samplekit/tiny", *packing)
    with pytest.raises(FileFormatError, match=r"rows\.parquet:row 1 holds no 'messages'"):
        run(table, "--model", "samplekit/tiny", *packing)
    with pytest.raises(FileFormatError, match=r"nowhere\.jsonl does not exist"):
        run(tmp_path / "nowhere.jsonl", *packing)
    chats = tmp_path / "chats.parquet"
    pq.write_table(pa.Table.from_pylist([CHAT]), chats)
    assert "pass --model" in run(chats, *packing).stderr
    assert run(chats, "--model", "samplekit/tiny", "-o", tmp_path / "o.npz", "--max-length", 99, "--pad-id", 0).stdout


def test_a_sample_at_fault_is_named_by_its_line(tmp_path):
    path = tmp_path / "samples.jsonl"
    packing = ["-o", tmp_path / "rows.npz", "--max-length", 9, "--pad-id", 0]
    plain, scored = build_sample([1, 2], [0, 1]), build_sample([1, 2], [0, 1], logprobs=[0.0, -0.5])
    write_samples(path, [plain, plain, scored])
    path.write_text(path.read_text().replace("\n", "\n\n", 1))  # blank lines count as lines
    with pytest.raises(PackingError, match=r"samples\.jsonl:4 records\[0\] has no logprobs, records\[2\] has one"):
        run(path, *packing)
    strayed = json.loads(build_sample([1, 2, 3], [0, 1, 1]).to_json())
    strayed["loss_fn_inputs"]["target_tokens"]["data"] = [7, 3]
    path.write_text("\n" + json.dumps(strayed) + "\n")
    with pytest.raises(FileFormatError, match=r"samples\.jsonl:2 .*holds 7 at index 0, where the next input token"):
        run(path, *packing)


@pytest.mark.parametrize("policy", ["keep", "drop"])
def test_samples_that_train_nothing_once_cut_are_counted_named_and_can_be_dropped(tmp_path, policy):
    path, output = tmp_path / "samples.jsonl", tmp_path / "rows.npz"
    masks = [[0, 0, 0, 0, 1, 1], [0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1], [0, 1]]
    write_samples(path, [build_sample(range(5, 5 + len(mask)), mask) for mask in masks])
    options = ["--max-length", 4, "--pad-id", 0, "--oversize", "truncate", "--untrained", policy]
    done = run(path, "-o", output, *options, "--json")
    report = json.loads(done.stdout)
    assert report["untrained"] == [f"{path}:1", f"{path}:3"]
    assert report["num_untrained_samples"] == 2
    assert (report["num_trained_in"], report["num_trained_out"]) == (8, 4)
    assert f"warning: 2 samples train nothing once cut ({path}:1, {path}:3)" in done.stderr.replace("\n", "")
    assert report["num_dropped_samples"] == (2 if policy == "drop" else 0)
    assert report["num_tokens_in"] == 19
    assert report["num_tokens_out"] + report["num_dropped"] + report["num_truncated"] == 19
    with np.load(output) as rows:
        assert rows["loss_mask"].sum() == 4
        assert np.count_nonzero(rows["document_ids"]) == (6 if policy == "drop" else 14)
    assert "4 of 8" in run(path, "-o", output, *options).stdout
    assert "warning" not in run(path, "-o", output, "--max-length", 9, "--pad-id", 0).stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ("--seed", -1), ("--pad-id", -1), ("--pad-id", 99999999999999999999), ("--max-length", 1),
        ("--max-length", 4000000000), ("--untrained", "mask"),
    ],
)  # fmt: skip
def test_numbers_beyond_all_measure_are_usage_errors(samples, tmp_path, wrong):
    done = run(samples, "-o", tmp_path / "rows.npz", "--max-length", 9, "--pad-id", 0, *wrong)
    assert done.exit_code == 2
    assert f"Invalid value for '{wrong[0]}'" in done.stderr
    assert not (tmp_path / "rows.npz").exists()


@pytest.mark.parametrize("lengths", [LENGTHS, (23, 2), (2,), (10, 10), (101, 7, 55)])
def test_the_histogram_ends_at_the_longest_and_counts_every_sample_where_it_belongs(tmp_path, lengths):
    path = tmp_path / "samples.jsonl"
    write_samples(path, [build_sample(range(length), [1] * length) for length in lengths])
    done = run(path, "-o", tmp_path / "rows.npz", "--max-length", 128, "--pad-id", 0, "--json")
    steps = json.loads(done.stdout)["histogram"]
    assert steps[0]["from"] == 1
    assert steps[-1]["to"] == max(lengths)
    assert len(steps) <= 10
    assert all(one["to"] + 1 == two["from"] for one, two in pairwise(steps))
    for step in steps:
        assert step["count"] == sum(step["from"] <= length <= step["to"] for length in lengths)


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
