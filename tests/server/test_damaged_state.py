"""A state directory that was damaged: what is whole is served, what is not is refused by name, nothing begins anew."""

import shutil
import sqlite3
from contextlib import contextmanager

import httpx
import pytest
from plain_caller import Caller, open_plain

from samplekit import ServiceError
from samplekit.server import LocalService
from samplekit.wire import names as wire

ADAM = {"adam_params": {"learning_rate": 1e-3}}
TRAINING, INFERENCE = wire.CheckpointType.TRAINING, wire.CheckpointType.INFERENCE


@contextmanager
def serving(loaded, folder):
    with LocalService(model=loaded, state_dir=folder) as service, httpx.Client(base_url=service.url) as http:
        yield http


@pytest.fixture(scope="module")
def whole(loaded, tmp_path_factory):
    """A state directory with a session after two steps, two checkpoints of it, and a session resumed from each."""
    folder = tmp_path_factory.mktemp("whole") / "state"
    with serving(loaded, folder) as http:
        session = open_plain(http, lora={"rank": 2})
        for _ in range(2):
            session.accumulate()
            session.output("optim-step", ADAM)
        saved = [
            session.output(kind, {})["checkpoint"]["id"] for kind in ("training-checkpoint", "inference-checkpoint")
        ]
        resources = http.post(wire.CREATE_RESOURCES.path(), json={"base_model": "samplekit/tiny"}).json()["id"]
        for identifier in saved:
            body = {"model_resources_id": resources, "resume_from_checkpoint_id": identifier}
            assert http.post(wire.CREATE_SESSION.path(), json=body).json()["status"] == wire.SessionStatus.RUNNING
    settle_journal(folder)
    return folder, session, saved


def taken_up(http, session):
    again = Caller(http, session.session_id, session.resources_id)
    again._number = 100  # the keys of operations to come
    return again


def settle_journal(folder):
    """Write into the journal what waits beside it."""
    journal = sqlite3.connect(folder / "journal.sqlite")
    journal.execute("PRAGMA journal_mode=DELETE")
    journal.close()


@pytest.fixture
def state(whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "state")
    return tmp_path / "state"


def change(state, statement, *values):
    journal = sqlite3.connect(state / "journal.sqlite")
    with journal:
        journal.execute(statement, values)
    journal.close()


@pytest.mark.parametrize("record", [b"", b"[1]", b"{}", b'{"lora":null,"type":"nope"}', b"null", b"\xff", None])
def test_a_damaged_checkpoint_costs_the_service_no_other(loaded, whole, state, caplog, record):
    _, session, (training, inference) = whole
    damaged = state / "checkpoints" / inference / "record.json"
    damaged.unlink()
    if record is not None:
        damaged.write_bytes(record)
    with serving(loaded, state) as http:
        listed = http.get(wire.LIST_CHECKPOINTS.path()).json()["data"]
        shown = http.get(wire.LIST_SESSIONS.path()).json()["data"]
        again = taken_up(http, session)
        again.accumulate()
        assert again.output("optim-step", ADAM) == {"step": "3"}
        states = http.get(wire.LIST_SESSIONS.path()).json()["data"]
    assert [item["id"] for item in listed] == [training]
    assert [item.get("resume_from_checkpoint_id") for item in shown] == [None, training, inference]
    assert [item["status"] for item in states] == [*[wire.SessionStatus.RUNNING] * 2, wire.SessionStatus.ERROR]
    assert "start the service again" in states[2]["error"]["message"]
    assert f"{damaged.parent} is left out" in caplog.text
    shutil.copy(whole[0] / "checkpoints" / inference / "record.json", damaged)
    with serving(loaded, state) as http:  # put back, it is as before
        assert {item["status"] for item in http.get(wire.LIST_SESSIONS.path()).json()["data"]} == {
            wire.SessionStatus.RUNNING
        }


@pytest.mark.parametrize("damage", ["gone", "cut", "empty", "junk"])
def test_a_session_whose_policy_is_damaged_says_which_file_and_goes_on_once_it_is_back(
    loaded, whole, state, caplog, damage
):
    _, session, _ = whole
    (policy,) = (state / "policies").glob("*-trained.safetensors")
    kept = policy.read_bytes()
    policy.unlink()
    if damage != "gone":
        policy.write_bytes({"cut": kept[: len(kept) // 2], "empty": b"", "junk": b"junk" * 100}[damage])
    with serving(loaded, state) as http:
        again = taken_up(http, session)
        path = wire.GET_SESSION.path(session_id=session.session_id)
        while (shown := http.get(path).json())["status"] == wire.SessionStatus.RUNNING:
            pass
        assert shown["status"] == wire.SessionStatus.ERROR
        assert policy.name in shown["error"]["message"]
        assert again.submit("optim-step", ADAM, "refused").status_code == 400
        http.patch(wire.UPDATE_SESSION.path(session_id=session.session_id), json={"display_name": "kept"})
    assert "Traceback" not in caplog.text
    policy.write_bytes(kept)
    with serving(loaded, state) as http:
        again = taken_up(http, session)
        again.accumulate()
        assert again.output("optim-step", ADAM) == {"step": "3"}
        assert http.get(path).json()["display_name"] == "kept"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sessions SET record = x'7b'",
        "UPDATE sessions SET record = '{}'",
        "UPDATE sessions SET record = replace(record, 'TRAINING_SESSION_STATUS_RUNNING', 'zzz')",
        "UPDATE resources SET record = '[]'",
        "UPDATE resources SET record = '{}'",
        "DELETE FROM resources",
        "UPDATE operations SET kind = 'zzz' WHERE number = 3",
        "UPDATE operations SET status = 'zzz' WHERE number = 3",
        "UPDATE operations SET session = 'zzz' WHERE number = 3",
        "UPDATE operations SET output = x'00' WHERE kind = 'optim-step'",
        "DELETE FROM sessions",
    ],
)
def test_a_damaged_journal_is_refused_by_name(loaded, state, statement):
    change(state, statement)
    with pytest.raises(ServiceError, match=r"journal\.sqlite is damaged .*: put a copy of the whole folder back"):
        LocalService(model=loaded, state_dir=state).start()


@pytest.mark.parametrize("seed", range(6))
def test_bytes_of_a_journal_that_changed_are_refused_or_harm_nothing(loaded, state, make_samples, seed):
    import numpy as np

    rng = np.random.default_rng(seed)
    content = bytearray((state / "journal.sqlite").read_bytes())
    for place in rng.integers(0, len(content), 40):
        content[place] ^= int(rng.integers(1, 256))
    (state / "journal.sqlite").write_bytes(content)
    try:
        with serving(loaded, state) as http:
            assert http.get(wire.LIST_SESSIONS.path()).status_code == 200
    except ServiceError as error:
        assert str(state) in str(error)  # noqa: PT017 - either will do


def test_a_journal_of_none_of_the_policies_beside_it_is_refused(loaded, state):
    (state / "journal.sqlite").write_bytes(b"")
    with pytest.raises(ServiceError, match=r"knows nothing of ts-.*-trained\.safetensors"):
        LocalService(model=loaded, state_dir=state).start()


def test_a_journal_that_is_older_than_a_policy_is_refused(loaded, state):
    (policy,) = (state / "policies").glob("*-trained.safetensors")
    number = policy.stem.split("-")[2]
    change(state, "DELETE FROM operations WHERE number >= ?", int(number))
    change(state, "UPDATE sessions SET trained = '', covered = 0")
    with pytest.raises(ServiceError, match="knows nothing of"):
        LocalService(model=loaded, state_dir=state).start()


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33, None])
def test_a_secret_that_others_could_guess_is_refused(loaded, state, content):
    secret = state / "payloads" / "secret"
    secret.unlink()
    if content is None:
        secret.mkdir()
    else:
        secret.write_bytes(content)
    with pytest.raises(ServiceError, match="secret"):
        LocalService(model=loaded, state_dir=state).start()
