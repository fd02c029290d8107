"""What outlasts a loss of power: files are on disk before the journal, or the name of a folder, says that they are."""

import json

import httpx
import pytest
from plain_caller import open_plain

import samplekit as sk
from samplekit.server import LocalService, checkpoints, payloads
from samplekit.server.engine import INLINE_LIMIT_BYTES
from samplekit.server.state_directory import StateDirectory
from samplekit.wire import names as wire

PASS = {
    "loss": {"type": "LOSS_TYPE_CROSS_ENTROPY"},
    "samples": [sk.build_sample([5, 6, 7, 8], [0, 1, 1, 1]).to_wire()],
}


@pytest.fixture
def told(monkeypatch):
    """What was flushed, and when operations were accepted and settled, in order."""
    events = []
    for module in (payloads, checkpoints):
        flush = module.flush
        monkeypatch.setattr(module, "flush", lambda path, flush=flush: (flush(path), events.append(path.name)))
    for name in ("accept", "settle"):
        method = getattr(StateDirectory, name)

        def noted(*given, name=name, method=method):
            events.append(name)
            return method(*given)

        monkeypatch.setattr(StateDirectory, name, noted)
    return events


def test_uploads_and_results_are_on_disk_before_the_journal_names_them(loaded, tmp_path, told, monkeypatch):
    monkeypatch.setattr("samplekit.server.engine.INLINE_LIMIT_BYTES", 100)
    assert INLINE_LIMIT_BYTES > 100
    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        session = open_plain(http, lora={"rank": 2})
        announced = http.post(wire.UPLOAD_URL.path(session_id=session.session_id)).json()
        http.put(announced["upload_url"], content=json.dumps(PASS)).raise_for_status()
        told.clear()
        flags = {"return_loss_fn_outputs": True}
        output = session.output("forward-backward", {**PASS, **flags, "payload_id": announced["payload_id"]})
    upload, result = (f"{item['payload_id']}.{session.session_id}.json" for item in (announced, output))
    assert told == [upload, "payloads", "accept", result, "payloads", "settle"]


def test_a_checkpoint_has_its_name_when_all_of_it_is_on_disk(loaded, tmp_path, told):
    with LocalService(model=loaded, state_dir=tmp_path) as service, httpx.Client(base_url=service.url) as http:
        session = open_plain(http, lora={"rank": 2})
        told.clear()
        saved = session.output("training-checkpoint", {})["checkpoint"]["id"]
    assert sorted(told[1:3]) == ["record.json", checkpoints.STATE_FILE]
    assert [told[0], *told[3:]] == ["accept", f"{saved}.partial", "checkpoints", "settle"]


def test_a_service_that_keeps_nothing_flushes_no_payloads(loaded, told, monkeypatch):
    monkeypatch.setattr("samplekit.server.engine.INLINE_LIMIT_BYTES", 100)
    with LocalService(model=loaded) as service, httpx.Client(base_url=service.url) as http:
        session = open_plain(http, lora={"rank": 2})
        assert "payload_id" in session.output("forward-backward", {**PASS, "return_loss_fn_outputs": True})
    assert told == []
