"""A state directory whose journal lost its latest part: nothing begins anew what was answered as accepted."""

import shutil

import httpx
import pytest
from plain_caller import open_plain

from samplekit import ServiceError
from samplekit.server import LocalService
from samplekit.server.journal import open_journal
from samplekit.server.listening import refuse_unusable
from samplekit.wire import names as wire


@pytest.fixture(scope="module")
def left(loaded, tmp_path_factory):
    """What a service leaves that is killed before its first step."""
    folder = tmp_path_factory.mktemp("left")
    with LocalService(model=loaded, state_dir=folder / "whole") as service, httpx.Client(base_url=service.url) as http:
        open_plain(http, lora={"rank": 2}).accumulate()
        shutil.copytree(folder / "whole", folder / "killed")
    return folder / "killed"


@pytest.fixture
def state(left, tmp_path):
    shutil.copytree(left, tmp_path / "state")
    return tmp_path / "state"


def sessions(loaded, state):
    with LocalService(model=loaded, state_dir=state) as service, httpx.Client(base_url=service.url) as http:
        return len(http.get(wire.LIST_SESSIONS.path()).json()["data"])


@pytest.mark.parametrize("lose", [lambda wal: wal.unlink(), lambda wal: wal.write_bytes(b"")], ids=["gone", "empty"])
def test_a_journal_whose_latest_part_is_gone_is_refused(loaded, left, state, lose):
    wal = state / "journal.sqlite-wal"
    lose(wal)
    before = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    for _ in range(2):
        with pytest.raises(ServiceError, match=r"journal\.sqlite-wal .*put .* back.* remove .*journal\.open"):
            refuse_unusable(0, state, "samplekit/tiny")
        with pytest.raises(ServiceError, match=r"journal\.sqlite-wal"):
            LocalService(model=loaded, state_dir=state).start()
    assert {path: path.read_bytes() for path in state.rglob("*") if path.is_file()} == before
    shutil.copy(left / wal.name, wal)
    assert sessions(loaded, state) == 1


def test_who_knows_better_goes_on_with_what_is_left(loaded, state):
    (state / "journal.sqlite-wal").unlink()
    (state / "journal.open").unlink()
    assert sessions(loaded, state) == 0


def test_starts_that_are_refused_or_only_tried_leave_a_journal_that_opens(loaded, state):
    with pytest.raises(ServiceError, match="not of 'another'"):
        open_journal(state, "another")
    for _ in range(2):
        refuse_unusable(0, state, "samplekit/tiny")
    for _ in range(2):
        assert sessions(loaded, state) == 1
    assert [path.name for path in state.iterdir() if path.is_file()] == ["journal.sqlite"]


def test_a_service_that_is_killed_before_its_first_write_starts_again(loaded, state, tmp_path):
    journal = open_journal(state, "samplekit/tiny")
    shutil.copytree(state, tmp_path / "killed")
    journal.close()
    assert sessions(loaded, tmp_path / "killed") == 1
