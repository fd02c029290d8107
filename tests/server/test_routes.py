import httpx
import pytest

from samplekit.server import LocalService
from samplekit.wire import names as wire
from samplekit.wire.lifecycles import parse_lifecycle
from samplekit.wire.offers import parse_cost, parse_supported_models

TINY = {"base_model": "samplekit/tiny"}


def create(http, **members):
    answer = http.post(wire.CREATE_RESOURCES.path(), json={**TINY, **members})
    assert answer.status_code == 200, answer.text
    return answer.json()


def stop(http, identifier):
    return http.post(wire.STOP_RESOURCES.path(resources_id=identifier), params={"force": "true"})


def refused(answer, status, *mentioned):
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == status
    for word in mentioned:
        assert word in error["message"]


def test_the_one_model_and_its_limits_are_listed(http):
    (model,) = parse_supported_models(http.get(wire.SUPPORTED_MODELS.path()).content)
    assert model.base_model == "samplekit/tiny"
    assert model.context_length == 4096
    assert model.full.max_seq_length == model.lora.max_seq_length == 4096
    assert model.full.max_batch_size >= 64
    assert model.lora.max_rank >= 64


def test_it_costs_nothing(http):
    body = {**TINY, "compute_config": {"num_generator_replicas": 1}, "lora_enabled": True}
    assert parse_cost(http.post(wire.ESTIMATE_COST.path(), json=body).content).price_per_hour == 0
    refused(http.post(wire.ESTIMATE_COST.path(), json={"base_model": "other"}), 400, "other", "samplekit/tiny")


def test_resources_are_ready_at_once_and_shown_completely(http):
    shown = create(http, lora_enabled=False, inactive_timeout=600, optimizer_config={"adam": {}})
    assert shown["status"] == wire.ResourcesStatus.READY
    assert shown["status_details"] == {}
    assert shown["compute_config"]["num_generator_replicas"] == 1
    assert shown["inactive_timeout"] == 600
    assert shown["lora_enabled"] is False
    assert http.get(wire.GET_RESOURCES.path(resources_id=shown["id"])).json() == shown
    longer = http.post(wire.EXTEND_EXPIRY.path(resources_id=shown["id"]), json={"seconds": 7200}).json()
    assert longer["expires_at"] > shown["expires_at"]
    assert stop(http, shown["id"]).json()["status"] == wire.ResourcesStatus.STOPPED
    refused(stop(http, shown["id"]), 400, "STOPPED")
    refused(http.post(wire.EXTEND_EXPIRY.path(resources_id=shown["id"]), json={"seconds": 60}), 400, "READY")


@pytest.mark.parametrize(
    ("body", "mentioned"),
    [
        ({}, "base_model"),
        ({"base_model": "Qwen/Qwen3.8-27B"}, "Qwen/Qwen3.8-27B"),
        ({**TINY, "inactive_timeout": 10}, "inactive_timeout"),
        ({**TINY, "compute_config": {"num_generator_replicas": -1}}, "compute_config.num_generator_replicas"),
        ({**TINY, "lora_enabled": "yes"}, "lora_enabled"),
        ({**TINY, "lora": True}, "lora"),
        ({**TINY, "base_weights_ref": "ml_1"}, "base_weights_ref"),
        ({**TINY, "optimizer_config": {"adam": {}, "muon": {}}}, "expected one"),
        ({**TINY, "optimizer_config": {"sgd": {}}}, "optimizer_config.sgd"),
        (
            {**TINY, "optimizer_config": {"muon": {"scaling_strategy": "none"}}},
            "optimizer_config.muon.scaling_strategy",
        ),
        ([], "the body"),
    ],
)
def test_faulty_resources_are_refused(http, body, mentioned):
    refused(http.post(wire.CREATE_RESOURCES.path(), json=body), 400, mentioned)


def test_a_session_is_running_at_once_and_shown_completely(http):
    resources = create(http)
    lora = {"rank": 8, "alpha": 16, "dropout": 0.1, "seed": "9", "train_unembed": False}
    body = {"model_resources_id": resources["id"], "display_name": "first", "lora_config": lora,
            "metadata": {"wandb": {"entity": "me"}}}  # fmt: skip
    answer = http.post(wire.CREATE_SESSION.path(), json=body)
    read = parse_lifecycle(answer.content)
    assert (read.status, read.lora_rank, read.step) == (wire.SessionStatus.RUNNING, 8, 0)
    shown = answer.json()
    assert shown["lora_config"] == lora
    assert shown["step"] == "0"  # int64 in JSON
    assert shown["policy_state"]["pending_publish"] is False
    assert shown["display_name"] == "first"
    path = wire.UPDATE_SESSION.path(session_id=shown["id"])
    assert http.patch(path, json={"display_name": "second"}).json()["display_name"] == "second"
    assert "display_name" not in http.patch(path, json={"display_name": ""}).json()
    assert http.get(path).json()["metadata"] == {"wandb": {"entity": "me"}}
    refused(http.post(wire.STOP_RESOURCES.path(resources_id=resources["id"])), 400, "1 sessions")
    stop(http, resources["id"])
    assert http.get(path).json()["status"] == wire.SessionStatus.STOPPED
    refused(http.post(wire.CREATE_SESSION.path(), json=body), 400, "STOPPED")


def test_lora_defaults_are_the_services(http):
    resources = create(http)
    shown = http.post(wire.CREATE_SESSION.path(), json={"model_resources_id": resources["id"]}).json()
    assert {name: shown["lora_config"][name] for name in wire.LORA_DEFAULTS} == dict(wire.LORA_DEFAULTS)
    stop(http, resources["id"])


@pytest.mark.parametrize(
    ("lora", "mentioned"),
    [
        ({"rank": 0}, "lora_config.rank"),
        ({"rank": 100_000}, "lora_config.rank"),
        ({"dropout": 1.0}, "lora_config.dropout"),
        ({"rank": True}, "lora_config.rank"),
        ({"target_modules": "all"}, "lora_config.target_modules"),
    ],
)
def test_a_faulty_adapter_is_refused(http, lora, mentioned):
    resources = create(http)
    body = {"model_resources_id": resources["id"], "lora_config": lora}
    refused(http.post(wire.CREATE_SESSION.path(), json=body), 400, mentioned)
    stop(http, resources["id"])


def test_full_weight_resources_hold_one_session_without_adapter(http):
    resources = create(http, lora_enabled=False)
    body = {"model_resources_id": resources["id"]}
    refused(http.post(wire.CREATE_SESSION.path(), json={**body, "lora_config": {"rank": 4}}), 400, "lora_config")
    session = http.post(wire.CREATE_SESSION.path(), json=body).json()
    assert "lora_config" not in session
    refused(http.post(wire.CREATE_SESSION.path(), json=body), 400, "one full-weight session")
    http.post(wire.STOP_SESSION.path(session_id=session["id"]))
    assert http.post(wire.CREATE_SESSION.path(), json=body).status_code == 200
    stop(http, resources["id"])


def test_lists_come_in_pages_and_filter(http):
    made = [create(http)["id"] for _ in range(3)]
    listed, after = [], {}
    while True:
        page = http.get(wire.LIST_RESOURCES.path(), params={"limit": 2, **after}).json()
        listed += [item["id"] for item in page["data"]]
        if not page["meta"]["has_more"]:
            break
        after = {"after": page["meta"]["next_cursor"]}
    assert [item for item in listed if item in made] == made
    assert len(listed) == len(set(listed))
    stop(http, made[0])
    ready = http.get(wire.LIST_RESOURCES.path(), params={"limit": 100, "status": wire.ResourcesStatus.READY}).json()
    assert [item["id"] for item in ready["data"] if item["id"] in made] == made[1:]
    session = http.post(wire.CREATE_SESSION.path(), json={"model_resources_id": made[1]}).json()
    found = http.get(wire.LIST_SESSIONS.path(), params={"model_resources_id": made[1]}).json()["data"]
    assert [item["id"] for item in found] == [session["id"]]
    assert http.get(wire.LIST_SESSIONS.path(), params={"model_resources_id": made[2]}).json()["data"] == []
    theirs = http.get(wire.LIST_SESSIONS.path(), params={"created_by": "somebody"}).json()["data"]
    mine = http.get(wire.LIST_SESSIONS.path(), params={"created_by": "me", "limit": 100}).json()["data"]
    assert theirs == []
    assert session["id"] in [item["id"] for item in mine]
    for identifier in made[1:]:
        stop(http, identifier)
    for query in ({"limit": "0"}, {"limit": "101"}, {"limit": "many"}, {"after": "nothing"}):
        refused(http.get(wire.LIST_RESOURCES.path(), params=query), 400)


def test_what_does_not_exist_is_a_json_404(http):
    refused(http.get(wire.GET_RESOURCES.path(resources_id="mr-none")), 404, "mr-none")
    refused(http.get(wire.GET_SESSION.path(session_id="ts-none")), 404, "ts-none")
    refused(http.post(wire.CREATE_SESSION.path(), json={"model_resources_id": "mr-none"}), 404, "mr-none")
    refused(http.get("/v1/chat/completions"), 404, "/v1/chat/completions")
    refused(http.delete(wire.SUPPORTED_MODELS.path()), 405)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b'{"base_model": NaN}', b"[" * 5000])
def test_a_body_that_is_no_json_is_refused(http, content):
    refused(http.post(wire.CREATE_RESOURCES.path(), content=content), 400, "JSON")


def test_a_body_over_the_limit_is_refused_with_and_without_a_length(http, monkeypatch):
    monkeypatch.setattr("samplekit.server.requests.MAX_BODY_BYTES", 100)
    refused(http.post(wire.CREATE_RESOURCES.path(), content=b" " * 101), 413, "100 bytes")
    pieces = (b" " * 60 for _ in range(2))
    refused(http.post(wire.CREATE_RESOURCES.path(), content=pieces), 413, "100 bytes")


def test_every_answer_has_a_request_id(http):
    ids = {http.get("/healthz").headers[wire.REQUEST_ID] for _ in range(3)}
    assert len(ids) == 3


def test_health_tells_the_model(http):
    assert http.get("/healthz").json()["base_model"] == "samplekit/tiny"


def test_a_token_keeps_everybody_else_out(loaded):
    with LocalService(model=loaded, token="s3cret") as service, httpx.Client(base_url=service.url) as http:
        path = wire.SUPPORTED_MODELS.path()
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret"}):
            answer = http.get(path, headers=headers)
            refused(answer, 401, "Authorization")
            assert "s3cret" not in answer.text
        assert http.get(path, headers={"Authorization": "Bearer s3cret"}).status_code == 200
        assert http.get("/healthz").status_code == 200
