"""What a state directory keeps of bodies and uploads: what a later start runs again, and nothing else."""

import json
import sqlite3

import httpx
import pytest
from plain_caller import open_plain

import samplekit as sk
from samplekit.server import LocalService
from samplekit.server.policy import Policy
from samplekit.server.state_directory import StateDirectory
from samplekit.wire import names as wire

ADAM = {"adam_params": {"learning_rate": 1e-3}}
PASS = {
    "loss": {"type": "LOSS_TYPE_CROSS_ENTROPY"},
    "samples": [sk.build_sample([5, 6, 7, 8], [0, 1, 1, 1]).to_wire()],
}


def uploaded(session, **flags):
    announced = session.http.post(wire.UPLOAD_URL.path(session_id=session.session_id)).json()
    session.http.put(announced["upload_url"], content=json.dumps(PASS)).raise_for_status()
    return session.output("forward-backward", {**PASS, **flags, "payload_id": announced["payload_id"]})


def kept(folder):
    """Give the kinds of operations whose bodies are kept, and how many uploads are."""
    journal = sqlite3.connect(f"file:{folder / 'journal.sqlite'}?mode=ro", uri=True)
    kinds = [kind for (kind,) in journal.execute("SELECT kind FROM operations WHERE body IS NOT NULL ORDER BY number")]
    journal.close()
    return kinds, len(list((folder / "payloads").glob("pl-*")))


@pytest.fixture
def serving(loaded, tmp_path):
    return lambda: LocalService(model=loaded, state_dir=tmp_path)


def test_a_pass_that_only_scores_is_kept_no_longer_than_it_runs_and_never_run_again(serving, tmp_path, monkeypatch):
    with serving() as service, httpx.Client(base_url=service.url) as http:
        session = open_plain(http, lora={"rank": 2, "dropout": 0.5})
        scores = [uploaded(session, forward_only=True, return_loss_fn_outputs=True) for _ in range(3)]
        uploaded(session)
        session.output("weights-sync", {"weight_sync_type": "WEIGHT_SYNC_TYPE_SYNCHRONOUS"})
    assert kept(tmp_path) == (["forward-backward"], 1)
    passes, run = [], Policy.run

    def counted(policy, samples, rule, *, backward):
        passes.append(backward)
        return run(policy, samples, rule, backward=backward)

    monkeypatch.setattr(Policy, "run", counted)
    with serving() as service, httpx.Client(base_url=service.url) as http:
        session.http = http
        assert uploaded(session, forward_only=True, return_loss_fn_outputs=True) == scores[0] == scores[2]
        assert session.output("optim-step", ADAM) == {"step": "1"}
    assert passes == [True, False]
    assert kept(tmp_path) == ([], 0)


@pytest.mark.parametrize("is_killed", [False, True])
def test_nothing_is_kept_of_a_session_that_was_stopped(serving, tmp_path, monkeypatch, is_killed):
    with serving() as service, httpx.Client(base_url=service.url) as http:
        session, other = (open_plain(http, lora={"rank": 2}) for _ in range(2))
        for item in (session, other):
            uploaded(item)
            item.accumulate()
        assert len(list((tmp_path / "payloads").glob("pl-*"))) == 2
        with monkeypatch.context() as broken:
            if is_killed:  # after that it is stopped was recorded
                broken.setattr(StateDirectory, "forget", lambda *_: (_ for _ in ()).throw(OSError("killed")))
            stopped = http.post(wire.STOP_SESSION.path(session_id=session.session_id)).json()
        assert stopped["status"] == wire.SessionStatus.STOPPED
    with serving():
        pass
    assert kept(tmp_path) == (["forward-backward"] * 2, 1)
    with serving() as service, httpx.Client(base_url=service.url) as http:
        other.http = http
        assert other.output("optim-step", ADAM) == {"step": "1"}


@pytest.mark.parametrize("on_disk", [False, True])
def test_uploads_that_no_operation_took_go_with_their_session(loaded, tmp_path, on_disk):
    state_dir = tmp_path if on_disk else None
    with LocalService(model=loaded, state_dir=state_dir) as service, httpx.Client(base_url=service.url) as http:
        session, other = (open_plain(http, lora={"rank": 2}) for _ in range(2))
        payloads = service.service.payloads
        result = payloads.store(session.session_id, b"{}")
        paths = []
        for owner, content in ((session, PASS), (session, {**PASS, "loss": 1}), (session, None), (other, PASS)):
            announced = http.post(wire.UPLOAD_URL.path(session_id=owner.session_id)).json()
            if content is not None:
                http.put(announced["upload_url"], content=json.dumps(content)).raise_for_status()
            paths.append(payloads.path(announced["payload_id"]).with_suffix(".json" if content else ".waiting"))
        refused = {"payload_id": paths[1].name.partition(".")[0]}
        assert session.submit("forward-backward", refused).status_code == 400
        assert all(path.exists() for path in paths)
        http.post(wire.STOP_SESSION.path(session_id=session.session_id))
        assert [path.exists() for path in paths] == [False, False, False, True]
        assert payloads.owned(result, session.session_id) is not None
