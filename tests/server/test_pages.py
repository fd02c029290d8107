"""Lists a page at a time, while what they hold goes on living."""

import httpx
import pytest
from plain_caller import open_plain

from samplekit.server import LocalService
from samplekit.wire import names as wire

RUNNING, STOPPED = wire.SessionStatus.RUNNING, wire.SessionStatus.STOPPED


@pytest.fixture(scope="module")
def sessions(loaded):
    with LocalService(model=loaded) as service, httpx.Client(base_url=service.url) as http:
        yield [open_plain(http, lora={"rank": 2}) for _ in range(4)]


def asked(http, route, **query):
    answer = http.get(route.path(), params=query)
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["data"]], answer.json()["meta"]


def test_a_cursor_holds_whatever_becomes_of_its_item(sessions):
    http = sessions[0].http
    ids, resources = [item.session_id for item in sessions], [item.resources_id for item in sessions]
    first, meta = asked(http, wire.LIST_SESSIONS, status=RUNNING, limit=1)
    first_ready, ready_meta = asked(http, wire.LIST_RESOURCES, status="MODEL_RESOURCES_STATUS_READY", limit=1)
    assert (first, first_ready) == (ids[:1], resources[:1])
    http.post(wire.STOP_RESOURCES.path(resources_id=resources[0]), params={"force": "true"})
    http.post(wire.STOP_SESSION.path(session_id=ids[2]))
    second, meta = asked(http, wire.LIST_SESSIONS, status=RUNNING, limit=1, after=meta["next_cursor"])
    assert second == ids[1:2]
    assert meta == {"limit": 1, "has_more": True, "next_cursor": ids[1]}
    last, meta = asked(http, wire.LIST_SESSIONS, status=RUNNING, limit=1, after=meta["next_cursor"])
    assert last == ids[3:]
    assert meta == {"limit": 1, "has_more": False}
    assert asked(http, wire.LIST_SESSIONS, status=STOPPED, after=ids[0])[0] == ids[2:3]
    rest = asked(http, wire.LIST_RESOURCES, status="MODEL_RESOURCES_STATUS_READY", after=ready_meta["next_cursor"])[0]
    assert rest == resources[1:]
    assert asked(http, wire.LIST_RESOURCES)[0] == resources


@pytest.mark.parametrize(
    ("route", "query", "taken"),
    [
        (wire.LIST_SESSIONS, {"status": "foo"}, RUNNING),
        (wire.LIST_SESSIONS, {"status": f"{RUNNING},foo"}, STOPPED),
        (wire.LIST_SESSIONS, {"status": "running"}, RUNNING),
        (wire.LIST_RESOURCES, {"status": RUNNING}, wire.ResourcesStatus.READY),
        (wire.LIST_CHECKPOINTS, {"type": "foo"}, wire.CheckpointType.TRAINING),
        (wire.LIST_SESSIONS, {"after": "ts-none"}, "start again"),
    ],
)
def test_a_choice_that_nothing_can_meet_is_refused_with_what_is_taken(sessions, route, query, taken):
    answer = sessions[0].http.get(route.path(), params=query)
    assert answer.status_code == 400
    assert taken in answer.json()["error"]["message"]


@pytest.mark.parametrize("route", [wire.LIST_SESSIONS, wire.LIST_RESOURCES, wire.LIST_CHECKPOINTS])
def test_a_choice_left_empty_is_none(sessions, route):
    everything = asked(sessions[0].http, route)
    assert asked(sessions[0].http, route, status="", type="", after="") == everything
