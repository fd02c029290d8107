"""Several downloads of one checkpoint into one folder, as the ranks of a run start: one fetches, the others wait."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from service_double import KEY, URL

import samplekit as sk
from samplekit.client import AsyncClient, Client
from samplekit.client.part_files import PartFile
from samplekit.wire.listings import CheckpointFile

DATA = bytes(range(256)) * 40
NAME = "adapter_model.safetensors"
ITEM = CheckpointFile(NAME, len(DATA), f"{URL}/file")
ASK = "GET .*/checkpoints/ck-1/download"
SOURCE = "ck-1/adapter"
LISTING = {"data": [{"filename": NAME, "size": str(len(DATA)), "url": f"{URL}/file"}]}


class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The rest of a file, a kilobyte at a time, with something done before each."""

    def __init__(self, start=0, before=lambda place: None):
        self.start, self.before = start, before

    def __iter__(self):
        for place in range(self.start, len(DATA), 1000):
            self.before(place)
            yield DATA[place : place + 1000]

    async def __aiter__(self):
        for piece in self:
            await asyncio.sleep(0)
            yield piece


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr("samplekit.client.drivers._PIECE_BYTES", 1000)


@pytest.fixture
def first(tmp_path):
    """Another process that has the file, and half of it."""
    part = PartFile(tmp_path, ITEM, SOURCE)
    assert part.hold()
    part.append(DATA[:5000])
    yield part
    part.close()


def finish(part):
    part.append(DATA[part.num_bytes :])
    part.publish()
    part.close()


def vanish(part):
    part.discard()
    part.close()


def serve(request):
    start = int(request.headers.get("range", "bytes=0-").removeprefix("bytes=")[:-1])
    head = {"content-range": f"bytes {start}-{len(DATA) - 1}/{len(DATA)}"}
    return httpx.Response(206 if start else 200, headers=head, stream=Pieces(start))


@pytest.mark.parametrize(("ends", "ranges"), [(finish, []), (PartFile.close, ["bytes=5000-"]), (vanish, [None])])
def test_a_second_download_waits_for_the_first_and_goes_on_from_what_it_left(side, tmp_path, first, ends, ranges):
    heard = []
    side.time.listener = heard.append
    side.double.answer(ASK, LISTING)
    side.double.answer("GET /file", serve)
    nap, asked = side.time.sleep, []

    def sleep(seconds):
        nap(seconds)
        asked.append(len(side.double.calls("GET /file")))
        if len(asked) == 3:
            ends(first)

    side.time.sleep = sleep
    paths = side.client().download("ck-1", tmp_path)
    assert asked == [0, 0, 0]
    assert [item.headers.get("range") for item in side.double.calls("GET /file")] == ranges
    assert [path.read_bytes() for path in paths] == [DATA]
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert "which another download fetches: WAITING" in str(heard[0])


@pytest.mark.parametrize("number", [2, 4])
def test_threads_that_download_at_once_fetch_once_and_all_find_the_file_whole(tmp_path, number):
    waiting, fetched = threading.Barrier(number), []

    def serve(request):
        if request.url.path == "/file":
            fetched.append(request)
            return httpx.Response(200, stream=Pieces(before=lambda place: release.wait(0.2) if place == 5000 else None))
        waiting.wait()  # all of them ask before one has the file
        return httpx.Response(200, json=LISTING)

    release = threading.Event()  # never set: it lets the others run into the file that is half there

    def download(_):
        with Client(base_url=URL, api_key=KEY, transport=httpx.MockTransport(serve)) as client:
            return [path.read_bytes() for path in client.download("ck-1", tmp_path)]

    with ThreadPoolExecutor(number) as pool:
        assert list(pool.map(download, range(number))) == [[DATA]] * number
    assert len(fetched) == 1
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_tasks_that_download_at_once_fetch_once_and_all_find_the_file_whole(tmp_path):
    fetched = []

    def serve(request):
        if request.url.path != "/file":
            return httpx.Response(200, json=LISTING)
        fetched.append(request)
        return httpx.Response(200, stream=Pieces())

    async def main():
        async with AsyncClient(base_url=URL, api_key=KEY, transport=httpx.MockTransport(serve)) as client:
            return await asyncio.gather(*(client.download("ck-1", tmp_path) for _ in range(3)))

    assert [path.read_bytes() for paths in asyncio.run(main()) for path in paths] == [DATA] * 3
    assert len(fetched) == 1


def test_a_piece_of_a_cancelled_download_that_comes_late_reaches_no_file(tmp_path, monkeypatch):
    """The thread that writes it cannot be cancelled, and the same download is asked for again meanwhile."""
    append, late, begun, written = PartFile.append, threading.Event(), threading.Event(), threading.Event()

    def slow_once(part, piece):
        if part.num_bytes == 3000 and not begun.is_set():
            begun.set()
            late.wait(10)
            append(part, piece)
            written.set()
        else:
            append(part, piece)

    def meanwhile(place):
        if begun.is_set() and place == 6000:
            late.set()
            written.wait(10)

    def serve(request):
        if request.url.path != "/file":
            return httpx.Response(200, json=LISTING)
        return httpx.Response(200, stream=Pieces(before=meanwhile))

    async def main():
        monkeypatch.setattr(PartFile, "append", slow_once)
        async with AsyncClient(base_url=URL, api_key=KEY, transport=httpx.MockTransport(serve)) as client:
            task = asyncio.create_task(client.download("ck-1", tmp_path))
            await asyncio.to_thread(begun.wait, 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await client.download("ck-1", tmp_path)

    (path,) = asyncio.run(main())
    assert written.is_set()
    assert path.read_bytes() == DATA


@pytest.mark.parametrize("size", [0, 4096, len(DATA) + 1])
def test_a_file_that_something_else_wrote_to_is_not_published(tmp_path, first, size):
    first.append(DATA[5000:])
    (path,) = tmp_path.iterdir()
    os.truncate(path, size)
    with pytest.raises(sk.ServiceError, match=f"holds {size} bytes, expected the {len(DATA)}.*download it again"):
        first.publish()
    first.close()
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_another_checkpoint_is_not_gone_on_with(tmp_path, first):
    other = PartFile(tmp_path, ITEM, "ck-2/adapter")
    assert other.hold()
    assert other.num_missing == len(DATA)
    other.close()
    first.close()
    again = PartFile(tmp_path, ITEM, SOURCE)
    assert again.hold()
    assert again.num_bytes == 5000
    again.close()


def test_where_a_file_system_has_no_locks_a_download_says_so_and_goes_on(tmp_path, monkeypatch, caplog):
    def no_locks(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", no_locks)
    one, other = (PartFile(tmp_path, ITEM, SOURCE) for _ in range(2))
    assert one.hold()
    assert other.hold()
    assert "one process at a time" in caplog.text
    for place in range(0, len(DATA), 1000):
        one.append(DATA[place : place + 1000])
        other.append(DATA[place : place + 1000])
    assert [part.publish().read_bytes() for part in (one, other)] == [DATA] * 2
    one.close()
    other.close()
