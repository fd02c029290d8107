"""What a route cannot write is refused with what to do, and changed nothing."""

import sqlite3

import httpx
import pytest
from plain_caller import open_plain

from samplekit.server import LocalService
from samplekit.server.state_directory import StateDirectory
from samplekit.wire import names as wire

ADAM = {"adam_params": {"learning_rate": 1e-3}}


def full(*_, **__):
    raise sqlite3.OperationalError("database or disk is full")


@pytest.fixture(scope="module")
def kept(loaded, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    with LocalService(model=loaded, state_dir=folder) as service, httpx.Client(base_url=service.url) as http:
        session = open_plain(http, lora={"rank": 2})
        session.accumulate()
        yield session


def shown(session):
    everything = (wire.LIST_SESSIONS.path(), wire.LIST_RESOURCES.path())
    lists = [session.http.get(path).json()["data"] for path in everything]
    for item in lists[1]:
        item.pop("expires_at", None)
    return lists


CALLS = {
    "stop-session": (wire.STOP_SESSION, {}),
    "stop-resources": (wire.STOP_RESOURCES, {}),
    "extend": (wire.EXTEND_EXPIRY, {"seconds": 3600}),
    "rename": (wire.UPDATE_SESSION, {"display_name": "renamed", "metadata": {"a": 1}}),
    "resources": (wire.CREATE_RESOURCES, {"base_model": "samplekit/tiny"}),
    "session": (wire.CREATE_SESSION, {}),
    "operation": (wire.SUBMIT_OPERATION, ADAM),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_cannot_be_recorded_is_refused_and_changes_nothing(kept, monkeypatch, name):
    route, body = CALLS[name]
    ids = {"session_id": kept.session_id, "resources_id": kept.resources_id, "kind": "optim-step"}
    path = route.path(**{key: value for key, value in ids.items() if f"{{{key}}}" in route.template})
    if name == "session":
        body = {"model_resources_id": kept.resources_id}
    before = shown(kept)
    for call in ("keep_session", "keep_resources", "accept"):
        monkeypatch.setattr(StateDirectory, call, full)
    answer = kept.http.request(
        route.method, path, json=body, params={"force": "true"}, headers={"Idempotency-Key": "k"}
    )
    assert answer.status_code == 503
    assert answer.headers["x-should-retry"] == "true"  # nothing was done, so that a call without a key is repeated too
    assert "free its disk" in answer.json()["error"]["message"]
    assert shown(kept) == before


def test_an_upload_that_cannot_be_written_is_refused(kept, monkeypatch):
    def none(*_, **__):
        raise OSError(28, "No space left on device")

    upload = kept.http.post(wire.UPLOAD_URL.path(session_id=kept.session_id)).json()
    with monkeypatch.context() as broken:
        broken.setattr("samplekit.server.payloads.tempfile.NamedTemporaryFile", none)
        assert kept.http.put(upload["upload_url"], content=b"{}").status_code == 503
        broken.setattr("pathlib.Path.touch", none)
        assert kept.http.post(wire.UPLOAD_URL.path(session_id=kept.session_id)).status_code == 503
    assert kept.http.put(upload["upload_url"], content=b"{}").status_code == 200


def nested(depth, kind):
    value = "leaf"
    for _ in range(depth):
        value = {"a": value} if kind is dict else [value]
    return value


@pytest.mark.parametrize("kind", [dict, list])
@pytest.mark.parametrize("depth", [32, 64, 200, 260, 900])
@pytest.mark.parametrize("call", ["create", "update"])
def test_metadata_that_nests_too_deep_is_refused_and_hides_no_session(kept, kind, depth, call):
    body = {"metadata": {"m": nested(depth, kind)}}
    if call == "create":
        route, path = wire.CREATE_SESSION, wire.CREATE_SESSION.path()
        body["model_resources_id"] = kept.resources_id
    else:
        route, path = wire.UPDATE_SESSION, wire.UPDATE_SESSION.path(session_id=kept.session_id)
    before = shown(kept)
    answer = kept.http.request(route.method, path, json=body)
    assert answer.status_code == 400
    assert "metadata" in answer.json()["error"]["message"]
    assert "32" in answer.json()["error"]["message"]
    assert shown(kept) == before


def test_metadata_as_deep_as_the_client_sends_it_is_kept(kept):
    metadata = {"m": nested(31, dict)}
    path = wire.UPDATE_SESSION.path(session_id=kept.session_id)
    assert kept.http.patch(path, json={"metadata": metadata}).json()["metadata"] == metadata
    assert kept.http.patch(path, json={"metadata": {"m": ""}}).json()["metadata"] == {}


def test_empty_texts_clear_what_was_set(kept):
    path = wire.UPDATE_SESSION.path(session_id=kept.session_id)
    kept.http.patch(path, json={"display_name": "named", "metadata": {"a": "1", "b": "2"}})
    changed = kept.http.patch(path, json={"display_name": "", "metadata": {"a": "", "c": 0, "d": ""}}).json()
    assert changed["metadata"] == {"b": "2", "c": 0}
    assert "display_name" not in changed
    assert kept.http.patch(path, json={"metadata": {"b": "", "c": ""}}).json()["metadata"] == {}


@pytest.mark.parametrize("depth", [300, 1100, 50_000])
def test_json_that_nests_too_deep_is_told_so_and_nothing_else(kept, depth):
    answer = kept.http.post(wire.CREATE_RESOURCES.path(), content=b"[" * depth + b"]" * depth)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert "NaN" not in message
    assert depth < 1024 or "too deep" in message


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("GET", "/v1/rl/session", "/v1/rl/training-sessions"),
        ("GET", "/v1/v1/rl/checkpoints", "/v1/rl/checkpoints"),
        ("GET", "/health", "/healthz"),
        ("DELETE", "/v1/rl/checkpoints", "GET"),
        ("GET", "/" + "x" * 5000, "/"),
    ],
)
def test_a_path_that_is_none_is_told_the_nearest(kept, method, path, said):
    answer = kept.http.request(method, path)
    assert answer.status_code in {404, 405}
    assert said in answer.json()["error"]["message"].partition(" of this service")[2]
    assert len(answer.text) < 500


@pytest.mark.parametrize(
    ("route", "body", "taken"),
    [
        (wire.UPDATE_SESSION, {"name": "x"}, "display_name, metadata"),
        (wire.CREATE_SESSION, {"lora_config": {"r": 8}}, "rank, alpha, dropout, seed, train_unembed"),
        (wire.CREATE_RESOURCES, {"base_model": "m", "compute_config": {"gpus": 1}}, "gpu_type, num_generator_replicas"),
        (wire.CREATE_RESOURCES, {"base_model": "m", "optimizer_config": {"adam": {"lr": 1}}}, "beta1"),
        (wire.EXTEND_EXPIRY, {"seconds": 60, "hours": 1}, "seconds"),
    ],
)
def test_a_member_that_is_not_taken_is_told_which_are(kept, route, body, taken):
    ids = {"session_id": kept.session_id, "resources_id": kept.resources_id}
    path = route.path(**{key: value for key, value in ids.items() if f"{{{key}}}" in route.template})
    if route is wire.CREATE_SESSION:
        body = {**body, "model_resources_id": kept.resources_id}
    answer = kept.http.request(route.method, path, json=body)
    assert answer.status_code == 400
    assert taken in answer.json()["error"]["message"].partition("what is taken here: ")[2]
