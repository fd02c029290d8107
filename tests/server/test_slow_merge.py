"""An adapter that is merged takes its time: nobody but who asked for it waits."""

import threading

import httpx
import pytest
from plain_caller import open_plain

from samplekit.server import LocalService, checkpoints
from samplekit.wire import names as wire

MERGED, ADAPTER = wire.CheckpointVariant.MERGED, wire.CheckpointVariant.ADAPTER


def listed(http, identifier, variant):
    path = wire.DOWNLOAD_CHECKPOINT.path(checkpoint_id=identifier)
    return http.get(path, params={"variant": variant}).json()["data"]


@pytest.fixture
def saved(loaded):
    """A service with a session and two of its checkpoints."""
    with LocalService(model=loaded) as service, httpx.Client(base_url=service.url, timeout=20) as http:
        session = open_plain(http, lora={"rank": 2})
        session.accumulate()
        found = [session.output("inference-checkpoint", {})["checkpoint"]["id"] for _ in range(2)]
        yield service, session, found


def test_a_merge_holds_up_no_file_and_no_operation(saved, monkeypatch):
    service, session, found = saved
    url = next(item["url"] for item in listed(session.http, found[0], ADAPTER))
    begun, go, merged = threading.Event(), threading.Event(), checkpoints.merged

    def slowly(*given):
        begun.set()
        assert go.wait(60)
        return merged(*given)

    monkeypatch.setattr(checkpoints, "merged", slowly)
    answers = []

    def ask(identifier):
        answers.append(httpx.get(
            f"{service.url}{wire.DOWNLOAD_CHECKPOINT.path(checkpoint_id=identifier)}",
            params={"variant": MERGED}, timeout=60,
        ))  # fmt: skip

    threads = [threading.Thread(target=ask, args=(item,)) for item in [*found, *found]]
    for thread in threads:
        thread.start()
    try:
        assert begun.wait(30)
        assert session.http.get(url).status_code == 200
        assert session.output("optim-step", {"adam_params": {"learning_rate": 1e-3}}) == {"step": "1"}
        assert answers == []
    finally:
        go.set()
        for thread in threads:
            thread.join()
    assert [answer.status_code for answer in answers] == [200] * 4
    names = {tuple(item["filename"] for item in answer.json()["data"]) for answer in answers}
    assert len(names) == 1
    assert "model.safetensors" in names.pop()


def test_a_file_that_is_gone_is_none(saved):
    service, session, found = saved
    files = listed(session.http, found[0], ADAPTER)
    store = service.service.checkpoints
    (store.folder_of(store.records[found[0]], ADAPTER) / files[0]["filename"]).unlink()
    answer = session.http.get(files[0]["url"])
    assert (answer.status_code, files[0]["filename"] in answer.json()["error"]["message"]) == (404, True)
    assert session.http.get(files[1]["url"]).status_code == 200
