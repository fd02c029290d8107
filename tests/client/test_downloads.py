"""Checkpoint files: resumed where they broke off, checked by size, seen only when all are whole, without the key."""

from __future__ import annotations

import re
import stat

import httpx
import pytest
from service_double import URL

import samplekit as sk
from samplekit.client.part_files import PartFile

STORE = "https://store.example"
DATA = bytes(range(256)) * 40
ASK = "GET .*/checkpoints/ck-1/download"


class Store:
    """An object store that breaks off as told."""

    def __init__(self, *, ranges=True, breaks=(), store=STORE):
        self.files = {"adapter_model.safetensors": DATA, "adapter_config.json": b"{}", "empty": b""}
        self.ranges, self.breaks, self.store = ranges, list(breaks), store
        self.asked = []

    def listing(self, request):
        data = [
            {"filename": name, "size": str(len(body)), "url": f"{self.store}/{name}?sig=s{len(self.asked)}"}
            for name, body in self.files.items()
        ]
        return httpx.Response(200, json={"data": data})

    def __call__(self, request):
        name = request.url.path.removeprefix("/")
        self.asked.append((name, request.headers.get("range")))
        body, status, headers = self.files[name], 200, {}
        if self.ranges and "range" in request.headers:
            start = int(re.fullmatch(r"bytes=(\d+)-", request.headers["range"])[1])
            status, headers = 206, {"content-range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
            body = body[start:]
        fault = self.breaks.pop(0) if self.breaks and name == "adapter_model.safetensors" else None
        if isinstance(fault, httpx.Response):
            return fault
        return httpx.Response(status, headers=headers, stream=Broken(body, fault))


class Broken(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that ends after so many bytes, by a reset or in silence."""

    def __init__(self, body, fault):
        self.body, self.fault = body, fault

    def __iter__(self):
        how, count = self.fault or ("whole", len(self.body))
        for start in range(0, count, 1000):
            yield self.body[start : min(start + 1000, count)]
        if how == "reset":
            raise httpx.ReadError("reset")
        if how == "slow":
            raise httpx.ReadTimeout("slow")

    async def __aiter__(self):
        for piece in self:
            yield piece


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr("samplekit.client.drivers._PIECE_BYTES", 1000)


def download(side, store, folder, **options):
    side.double.answer(ASK, store.listing)
    side.double.answer("GET /(adapter.*|empty)", store)
    return side.client(max_retries=7).download("ck-1", folder, **options)


def test_files_arrive_whole_under_their_names_and_nothing_else_is_there(side, tmp_path):
    store = Store()
    paths = download(side, store, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == list(store.files)
    assert {path.name: path.read_bytes() for path in (tmp_path / "new" / "folder").iterdir()} == store.files
    assert side.double.seen[0].path.endswith("/download?variant=CHECKPOINT_VARIANT_ADAPTER")


def test_the_key_is_never_sent_where_the_files_are(side, tmp_path):
    for store in (STORE, URL):
        side.double.seen.clear()
        download(side, Store(store=store), tmp_path)
        assert ["authorization" in item.headers for item in side.double.seen] == [True, False, False]


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("how", ["reset", "slow", "silent"])
def test_a_file_that_breaks_off_is_resumed_or_begun_again(side, tmp_path, how, ranges):
    store = Store(ranges=ranges, breaks=[(how, 3000), (how, 2000)])
    download(side, store, tmp_path)
    assert (tmp_path / "adapter_model.safetensors").read_bytes() == DATA
    asked = [found for name, found in store.asked if name.startswith("adapter_model")]
    assert asked == [None, "bytes=3000-", "bytes=5000-" if ranges else "bytes=2000-"]


def test_another_call_goes_on_where_the_last_one_gave_up(side, tmp_path):
    with pytest.raises(sk.ConnectionFailedError, match="download adapter_model"):
        download(side, Store(breaks=[("reset", 4000), *[("reset", 0)] * 9]), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [path.name for path in tmp_path.glob(".adapter_model*.part")]
    store = Store()
    download(side, store, tmp_path)
    assert store.asked[0] == ("adapter_model.safetensors", "bytes=4000-")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(store.files)
    assert (tmp_path / "adapter_model.safetensors").read_bytes() == DATA


def test_tries_are_counted_anew_after_progress(side, tmp_path):
    download(side, Store(breaks=[("reset", 1000)] * 9), tmp_path)
    assert (tmp_path / "adapter_model.safetensors").read_bytes() == DATA


def test_a_store_that_gives_nothing_is_tried_six_times_and_named_without_its_signature(side, tmp_path):
    store = Store(breaks=[httpx.Response(503, text="busy")] * 9)
    with pytest.raises(sk.StatusError, match=r"download adapter_model\.safetensors after 6 tries") as caught:
        download(side, store, tmp_path)
    assert "sig" not in str(caught.value)
    assert len(store.asked) == 6


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_url_that_has_run_out_is_asked_for_anew_once(side, tmp_path, status):
    store = Store(breaks=[("reset", 3000), httpx.Response(status)])
    download(side, store, tmp_path)
    assert (tmp_path / "adapter_model.safetensors").read_bytes() == DATA
    assert len(side.double.calls(rf"{ASK}\?.*")) == 2
    store = Store(breaks=[httpx.Response(status), httpx.Response(status)])
    with pytest.raises(sk.StatusError) as caught:
        download(side, store, tmp_path / "other")
    assert caught.value.status == status


def test_a_range_that_begins_elsewhere_is_not_joined(side, tmp_path):
    wrong = httpx.Response(206, headers={"content-range": "bytes 17-30/10240"}, content=b"x" * 14)
    store = Store(breaks=[("reset", 3000), wrong, httpx.Response(416)])
    download(side, store, tmp_path)
    assert (tmp_path / "adapter_model.safetensors").read_bytes() == DATA


def test_a_file_larger_than_the_service_said_is_refused(side, tmp_path):
    store = Store()
    side.double.answer(
        ASK, {"data": [{"filename": "adapter_config.json", "size": 1, "url": f"{STORE}/adapter_config.json"}]}
    )
    side.double.answer("GET /adapter.*", store)
    with pytest.raises(sk.ServiceError, match="more than the 1 bytes"):
        side.client().download("ck-1", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../up", "a/b", "/etc/passwd", "..", ".hidden", "c:\\x", "a\nb", "~/x/y"])
def test_a_name_that_leaves_the_folder_is_refused(side, tmp_path, name):
    side.double.answer(ASK, {"data": [{"filename": name, "size": 1, "url": f"{STORE}/x"}]})
    with pytest.raises(sk.ServiceError, match="plain file name"):
        side.client().download("ck-1", tmp_path / "inner")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["http://store.example/x", "file:///etc/passwd", "https://u:pw@store.example/x"])
def test_an_unsafe_url_is_refused(side, tmp_path, url):
    side.double.answer(ASK, {"data": [{"filename": "a", "size": 1, "url": url}]})
    with pytest.raises(sk.ServiceError):
        side.client().download("ck-1", tmp_path)


def test_what_cannot_be_asked_for_is_refused_before_anything_is_sent(side, tmp_path):
    (tmp_path / "file").write_text("")
    for arguments, options, words in (
        (("ck-1", tmp_path), {"variant": "full"}, "variant"),
        (("", tmp_path), {}, "checkpoint_id"),
        (("ck-1", tmp_path / "file"), {}, "folder"),
    ):
        with pytest.raises(sk.SampleError, match=words):
            side.client().download(*arguments, **options)
    assert side.double.seen == []


def test_no_files_and_files_named_twice_are_named_errors(side, tmp_path):
    twice = [{"filename": "a", "size": 1, "url": f"{STORE}/x"}] * 2
    for data in ([], twice):
        side.double.answer(ASK, {"data": data})
        with pytest.raises(sk.ServiceError, match="checkpoint ck-1"):
            side.client(max_retries=0).download("ck-1", tmp_path)


def test_a_disk_that_takes_nothing_ends_it_with_the_system_s_own_error(side, tmp_path, monkeypatch):
    def full(self, piece):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PartFile, "append", full)
    with pytest.raises(OSError, match="No space left"):
        download(side, Store(), tmp_path)


def test_an_older_file_stays_until_the_new_one_is_whole(side, tmp_path):
    (tmp_path / "adapter_model.safetensors").write_bytes(b"older")
    with pytest.raises(sk.ServiceError):
        download(side, Store(breaks=[httpx.Response(400)]), tmp_path)
    assert (tmp_path / "adapter_model.safetensors").read_bytes() == b"older"
    download(side, Store(), tmp_path)
    assert (tmp_path / "adapter_model.safetensors").read_bytes() == DATA
    assert stat.S_ISREG((tmp_path / "adapter_model.safetensors").stat().st_mode)


def test_progress_counts_up_to_the_size(side, tmp_path):
    seen = []
    side.time.listener = seen.append
    download(side, Store(), tmp_path)
    counts = [event.num_bytes for event in seen if event.what == "adapter_model.safetensors"]
    assert counts == sorted(counts)
    assert len(counts) > 5
    assert (counts[-1], seen[0].size, seen[-1].ended) == (len(DATA), len(DATA), True)
