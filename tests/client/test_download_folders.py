"""The folder of a download: it holds one checkpoint's files in the end, whatever it held before and wherever it ends."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from service_double import URL

import samplekit as sk
from samplekit.client.part_files import PartFile

ADAPTER = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"a" * 100}
NEWER = {"adapter_config.json": b"{ }", "adapter_model.safetensors": b"b" * 100}
MERGED = {"config.json": b"{}", "model.safetensors": b"m" * 100, "tokenizer.json": b"{}"}


def serve(side, files, checkpoint="ck-1"):
    listed = [{"filename": name, "size": len(body), "url": f"{URL}/files/{name}"} for name, body in files.items()]
    side.double.answer(f"GET .*/checkpoints/{checkpoint}/download", {"data": listed})
    for name, body in files.items():
        side.double.answer(f"GET /files/{name}", lambda _, body=body: whole(body))


def whole(body):
    return httpx.Response(200, stream=httpx.ByteStream(body))


def held(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


@pytest.mark.parametrize(
    ("before", "after", "variant", "named"),
    [
        (ADAPTER, MERGED, "merged", "'adapter_config.json', 'adapter_model.safetensors' beside the merged files"),
        (MERGED, ADAPTER, "adapter", "'config.json', 'model.safetensors', 'tokenizer.json' beside the adapter files"),
        (
            {**ADAPTER, "notes.txt": b"mine"},
            NEWER,
            "adapter",
            "holds 'notes.txt' beside the adapter files of checkpoint ck-2",
        ),
        ({f"{n}.bin": b"" for n in range(8)}, NEWER, "adapter", "'4.bin' and 3 more"),
    ],
)
def test_a_folder_with_other_files_is_refused_and_left_as_it_is(side, tmp_path, before, after, variant, named):
    for name, body in before.items():
        (tmp_path / name).write_bytes(body)
    serve(side, after, "ck-2")
    with pytest.raises(sk.SampleError, match=f"{named}.*new or empty folder, or move them away"):
        side.client().download("ck-2", tmp_path, variant=variant)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert side.double.calls("GET /files/.*") == []


def test_a_folder_within_the_folder_is_another_file(side, tmp_path):
    (tmp_path / "older").mkdir()
    serve(side, ADAPTER)
    with pytest.raises(sk.SampleError, match="holds 'older'"):
        side.client().download("ck-1", tmp_path)


def test_what_appears_meanwhile_is_refused_and_what_was_fetched_is_kept(side, tmp_path):
    serve(side, ADAPTER)
    body = ADAPTER["adapter_model.safetensors"]

    def answer(_):
        (tmp_path / "other.json").write_text("")
        return whole(body)

    side.double.answer("GET /files/adapter_model.safetensors", answer)
    with pytest.raises(sk.SampleError, match=r"holds 'other\.json'"):
        side.client().download("ck-1", tmp_path)
    assert set(held(tmp_path)) == {"other.json"}
    (tmp_path / "other.json").unlink()
    side.double.seen.clear()
    side.client().download("ck-1", tmp_path)
    assert held(tmp_path) == ADAPTER
    assert side.double.calls("GET /files/.*") == []


def test_files_of_the_same_names_and_what_hides_are_no_others(side, tmp_path):
    (tmp_path / ".gitignore").write_text("*")
    serve(side, ADAPTER)
    side.client().download("ck-1", tmp_path)
    side.client().download("ck-1", tmp_path)
    assert held(tmp_path) == ADAPTER
    serve(side, NEWER, "ck-2")
    side.client().download("ck-2", tmp_path)
    assert held(tmp_path) == NEWER
    assert (tmp_path / ".gitignore").read_text() == "*"


@pytest.mark.parametrize("number", [0, 1])
def test_where_it_breaks_off_between_two_files_nothing_of_an_older_checkpoint_is_there(
    side, tmp_path, monkeypatch, number
):
    serve(side, ADAPTER)
    side.client().download("ck-1", tmp_path)
    serve(side, NEWER, "ck-2")
    publish, left = PartFile.publish, [number]

    def crash(part):
        if not left[0]:
            raise OSError("the disk is gone")
        left[0] -= 1
        return publish(part)

    monkeypatch.setattr(PartFile, "publish", crash)
    with pytest.raises(OSError, match="the disk is gone"):
        side.client().download("ck-2", tmp_path)
    assert list(held(tmp_path).items()) == list(NEWER.items())[:number]
    monkeypatch.setattr(PartFile, "publish", publish)
    assert side.client().download("ck-2", tmp_path) == [Path(tmp_path / name) for name in NEWER]
    assert held(tmp_path) == NEWER
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
