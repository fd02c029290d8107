"""Samples in files: whole or absent, exact both ways, held to their lock."""

import os
import pickle

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import samplekit as sk
from samplekit.files import check_lock, lock_path, read_lock

ENDINGS = ["jsonl", "jsonl.gz", "jsonl.zst"]


def some_samples():
    return [
        sk.build_sample([1, 2, 3], [0, 0, 1], info={"source": "a", "reward": np.float32(0.5)}),
        sk.build_sample(range(9), [0] + [0.25] * 8, advantages=0.1, logprobs=[0] + [-0.3] * 8, routed_experts_key="k"),
    ]


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_written_reads_back_equal_with_its_info(tmp_path, ending):
    path = tmp_path / f"samples.{ending}"
    assert sk.write_samples(path, iter(some_samples())) == 2
    found = list(sk.read_samples(path))
    assert found == some_samples()
    assert [sample.info for sample in found] == [{"source": "a", "reward": 0.5}, {}]


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_same_samples_give_the_same_bytes(tmp_path, ending):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        sk.write_samples(tmp_path / folder / f"samples.{ending}", some_samples())
    assert len({(tmp_path / folder / f"samples.{ending}").read_bytes() for folder in ("one", "two")}) == 1


def interrupted():
    yield some_samples()[0]
    raise KeyboardInterrupt


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    ("samples", "kind"),
    [
        (lambda: [*some_samples(), "no sample"], sk.SampleError),
        (lambda: [sk.build_sample([1, 2], [0, 1], info={"x": object()})], sk.SampleError),
        (interrupted, KeyboardInterrupt),
    ],
)
def test_a_write_that_fails_leaves_the_older_file_and_nothing_beside_it(tmp_path, ending, samples, kind):
    path = tmp_path / f"samples.{ending}"
    sk.write_samples(path, some_samples())
    before = path.read_bytes()
    with pytest.raises(kind):
        sk.write_samples(path, samples(), lock={"fingerprint": "new"})
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(sk.FileFormatError, match="create its folder"):
        sk.write_samples(tmp_path / "none" / "samples.jsonl", some_samples())


def test_samples_in_the_place_of_the_path_are_refused(tmp_path):
    with pytest.raises(sk.SampleError, match=r"call write_samples\(path, samples\)"):
        sk.write_samples(some_samples(), tmp_path / "samples.jsonl")  # type: ignore[arg-type]


def test_a_link_is_written_through(tmp_path):
    real, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    real.touch()
    link.symlink_to(real)
    sk.write_samples(link, some_samples())
    assert link.is_symlink()
    assert list(sk.read_samples(real)) == some_samples()


@pytest.mark.parametrize("line", [b"{}", b'{"model_input":5,"loss_fn_inputs":{}}', b'{"tokens":[1]}', b"x", b"7"])
def test_a_line_that_is_no_sample_is_named(tmp_path, line):
    path = tmp_path / "samples.jsonl"
    path.write_bytes(some_samples()[0].to_json() + b"\n" + line + b"\n")
    with pytest.raises(sk.FileFormatError) as caught:
        list(sk.read_samples(path))
    assert str(caught.value).startswith(f"{path}:2")
    assert pickle.loads(pickle.dumps(caught.value)).line == 2


class Template:
    def __init__(self, fingerprint):
        self.fingerprint = fingerprint

    def settings(self):
        return {}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_lock_holds_the_file_it_stands_beside(tmp_path, ending):
    path = tmp_path / f"samples.{ending}"
    sk.write_samples(path, some_samples(), lock={"fingerprint": "f"})
    assert check_lock(path, Template("f"))["samples"]["num_samples"] == 2
    with pytest.raises(sk.FileFormatError, match="built with the tokenizer and template f, and this one is g"):
        check_lock(path, Template("g"))
    lock = lock_path(path).read_bytes()
    sk.write_samples(path, some_samples()[:1])
    lock_path(path).write_bytes(lock)
    with pytest.raises(sk.FileFormatError, match="changed since"):
        check_lock(path)


def test_no_lock_is_no_fault_and_a_broken_one_is(tmp_path):
    path = tmp_path / "samples.jsonl"
    sk.write_samples(path, some_samples())
    assert check_lock(path) is None
    lock_path(path).write_bytes(b"{")
    with pytest.raises(sk.FileFormatError, match="is not JSON"):
        read_lock(path)
    lock_path(path).write_bytes(orjson.dumps([1]))
    with pytest.raises(sk.FileFormatError, match="no JSON object"):
        read_lock(path)


def test_writing_without_a_lock_removes_the_older_one(tmp_path):
    path = tmp_path / "samples.jsonl"
    sk.write_samples(path, some_samples(), lock={"fingerprint": "f"})
    sk.write_samples(path, some_samples()[:1])
    assert not lock_path(path).exists()
    assert check_lock(path) is None


def test_a_folder_is_no_file_to_write(tmp_path):
    with pytest.raises(sk.FileFormatError, match="is a folder"):
        sk.write_samples(tmp_path, some_samples())


def test_a_lock_with_other_contents_is_a_fault(tmp_path):
    path = tmp_path / "samples.jsonl"
    sk.write_samples(path, some_samples())
    lock_path(path).write_bytes(orjson.dumps({"samples": []}))
    with pytest.raises(sk.FileFormatError, match="changed since"):
        check_lock(path)


def test_a_pipe_is_refused_and_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(sk.FileFormatError, match="is a device or a pipe"):
        sk.write_samples(pipe, some_samples())
    assert pipe.is_fifo()


@pytest.mark.parametrize("lock", [{"x": object()}, {"x": float("nan")}, {"x": [{"y": float("inf")}]}])
def test_a_lock_that_json_cannot_say_is_refused_before_anything_is_written(tmp_path, lock):
    with pytest.raises(sk.SampleError, match="lock"):
        sk.write_samples(tmp_path / "samples.jsonl", some_samples(), lock=lock)
    assert list(tmp_path.iterdir()) == []


def test_info_that_is_not_finite_is_refused_by_its_place(tmp_path):
    sample = sk.build_sample([1, 2], [0, 1], info={"rewards": [0.5, float("nan")]})
    with pytest.raises(sk.SampleError, match=r"samples\[0\].info\['rewards'\]\[1\] is not finite"):
        sk.write_samples(tmp_path / "samples.jsonl", [sample])


@pytest.mark.parametrize("ending", ["gz", "zst", "parquet"])
def test_a_file_whose_name_hides_what_it_is_gets_the_ending_it_needs(tmp_path, ending):
    hidden = tmp_path / "samples.jsonl"
    if ending == "parquet":
        pq.write_table(pa.table({"text": ["x"]}), hidden)
    else:
        sk.write_samples(tmp_path / f"samples.jsonl.{ending}", some_samples())
        (tmp_path / f"samples.jsonl.{ending}").rename(hidden)
    with pytest.raises(sk.FileFormatError, match=rf"samples\.jsonl:1 is \w+ data.* ends in \.{ending}"):
        list(sk.read_samples(hidden))
