"""Model resources on their own: created, kept up, listed, shared by sessions, stopped."""

from __future__ import annotations

import gc
import json
import warnings
from pathlib import Path

import httpx
import pytest
from body_comparison import differences
from service_double import READY, RUNNING, SESSION

import samplekit as sk

EXCHANGES = json.loads((Path(__file__).parents[1] / "data" / "wire" / "exchanges.json").read_text())
STOP = "/v1/rl/model-resources/res-1/stop?force=true"


def recorded(call, method):
    (found,) = {
        json.dumps(item): item for item in EXCHANGES if (item["call"], item["method"]) == (call, method)
    }.values()
    return found


def stops(side):
    return [item.path for item in side.double.seen if "/stop" in item.path]


def test_resources_are_created_as_the_sdk_creates_them(side):
    expected = recorded("ModelResourcesClient.create", "POST")["request_body"]
    with side.client().create_resources(
        base_model=expected["base_model"], lora=True, optimizer="adam", inactive_timeout=3600
    ) as made:
        assert (made.id, made.status) == ("res-1", "READY")
    (seen,) = side.double.calls("POST .*/model-resources")
    assert seen.body == expected
    assert stops(side) == [STOP]


def test_every_setting_of_resources_is_spelled_as_the_protocol_does(side):
    side.client().create_resources(
        base_model="m", num_generators=0, gpu_type="B200-SXM", optimizer="muon", muon_scaling="original",
        inactive_timeout=300, base_weights="ml_1",
    ).detach()  # fmt: skip
    assert side.double.calls("POST .*/model-resources")[0].body == {
        "base_model": "m",
        "base_weights_ref": "ml_1",
        "compute_config": {"gpu_type": "B200-SXM", "num_generator_replicas": 0},
        "inactive_timeout": 300,
        "lora_enabled": False,
        "optimizer_config": {"muon": {"scaling_strategy": "MUON_SCALING_STRATEGY_ORIGINAL"}},
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"inactive_timeout": 299}, "inactive_timeout is 299, expected a whole number of 300 to 86400"),
        ({"inactive_timeout": 86_401}, "inactive_timeout is 86401"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd', expected one of None, adam, muon"),
        ({"muon_scaling": "original"}, "optimizer is not 'muon'"),
        ({"optimizer": "muon", "muon_scaling": "x"}, "muon_scaling is 'x'"),
        ({"lora": 1}, "lora is 1"),
        ({"num_generators": -1}, "num_generators is -1"),
        ({"gpu_type": ""}, "gpu_type is ''"),
    ],
)
def test_a_setting_out_of_range_is_refused_before_anything_is_asked(side, options, words):
    with pytest.raises(sk.SampleError, match=words):
        side.client().create_resources(base_model="m", **options)
    assert side.double.seen == []


def test_resources_are_waited_for_and_extended(side):
    pending = {**READY, "status": "MODEL_RESOURCES_STATUS_PENDING", "status_details": {"queue_position": 2}}
    side.double.answer("POST .*/model-resources", pending)
    side.double.answer("GET .*/res-1", pending, READY)
    side.double.answer("POST .*/res-1/extend-expiry", {**READY, "expires_at": "2026-01-02T01:00:00Z"})
    made = side.client().create_resources(base_model="m")
    assert made.status == "PENDING"
    made.wait()
    assert made.status == "READY"
    made.extend(600)
    assert made.info.expires_at == "2026-01-02T01:00:00Z"
    (seen,) = side.double.calls("POST .*/extend-expiry")
    assert seen.body == recorded("ModelResourcesClient.extend_expiry", "POST")["request_body"]
    for bad in (59, 86_401, "600", 60.0):
        with pytest.raises(sk.SampleError, match="seconds is"):
            made.extend(bad)
    made.detach()


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("MODEL_RESOURCES_ERROR_CODE_CAPACITY_WAIT_TIMEOUT", "try again later, or with fewer generators"),
        ("MODEL_RESOURCES_ERROR_CODE_RESOURCE_UNAVAILABLE", "another model or gpu_type"),
        ("MODEL_RESOURCES_ERROR_CODE_PROVISIONING_FAILED", "the service is at fault"),
        ("BRAND_NEW", "open a new session"),
    ],
)
def test_resources_that_cannot_be_had_say_what_to_do(side, code, advice):
    error = {"code": code, "message": "none"}
    side.double.answer("GET .*/res-1", {**READY, "status": "MODEL_RESOURCES_STATUS_ERROR", "error": error})
    with pytest.raises(sk.ServiceError, match=advice):
        side.client().session(base_model="m")
    assert stops(side) == [STOP]


def test_sessions_on_shared_resources_stop_alone(side):
    with side.client().create_resources(base_model="m", lora=True) as made:
        with made.session(lora_rank=8, name="a") as session:
            assert (session.resources_id, session.limits.max_rank) == ("res-1", 64)
        assert stops(side) == [f"/v1/rl/training-sessions/{SESSION}/stop"]
        body = side.double.calls("POST .*/training-sessions")[0].body
        assert body == {"model_resources_id": "res-1", "display_name": "a", "lora_config": {"rank": 8}}
    assert len(stops(side)) == 2


def test_a_session_that_fails_on_shared_resources_is_stopped_and_they_run_on(side):
    side.double.answer(f"GET .*/{SESSION}", {**RUNNING, "status": "TRAINING_SESSION_STATUS_ERROR"})
    found = side.client().attach_resources("res-1")
    with pytest.raises(sk.ServiceError, match="is ERROR"):
        found.session()
    assert stops(side) == [f"/v1/rl/training-sessions/{SESSION}/stop"]


def test_attached_resources_run_on(side):
    with side.client().attach_resources("res-1") as found:
        assert found.refresh() == "READY"
    assert stops(side) == []


def test_resources_that_nobody_stopped_are_warned_of(side):
    client = side.client()
    made = client.create_resources(base_model="m")
    with pytest.warns(ResourceWarning, match=r"resources res-1 were never stopped.*POST https://service.example/v1"):
        client.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del made
        gc.collect()


def test_lists_are_asked_for_as_the_sdk_asks(side):
    side.double.answer("GET /v1/rl/training-sessions", recorded("sessions.list", "GET")["response_body"])
    side.double.answer("GET /v1/rl/model-resources", recorded("model_resources.list", "GET")["response_body"])
    client = side.client()
    (session,) = client.sessions(status=["running", "TRAINING_SESSION_STATUS_ERROR"], limit=5)
    (found,) = client.resources(status=["ready", "pending"], created_by="me", limit=5)
    assert (session.step, session.lora_rank, found.expires_at) == (0, 32, "2026-01-02T01:00:00Z")
    paths = [item.path for item in side.double.seen]
    assert paths == [recorded("sessions.list", "GET")["path"], recorded("model_resources.list", "GET")["path"]]
    for ask in (client.sessions, client.resources):
        with pytest.raises(sk.SampleError, match="status is 'gone', expected one of"):
            ask(status="gone")


def test_a_session_is_renamed(side):
    side.double.answer(f"PATCH .*/{SESSION}", RUNNING)
    session = side.session()
    session.rename("renamed")
    (seen,) = side.double.seen
    assert list(differences(seen.body, recorded("sessions.update", "PATCH")["request_body"])) == []
    session.rename("")
    assert side.double.seen[1].body == {"display_name": ""}
    with pytest.raises(sk.SampleError, match="name is None"):
        session.rename(None)


@pytest.mark.parametrize("status", ["STOPPED", "STOPPING", "ERROR", "EXPIRED"])
def test_a_session_that_has_ended_cannot_be_attached_to(side, status):
    side.double.answer(f"GET .*/{SESSION}", {**RUNNING, "status": f"TRAINING_SESSION_STATUS_{status}"})
    with pytest.raises(sk.ServiceError, match=f"is {status}, expected RUNNING: open a new one.*resume_from"):
        side.client().attach(SESSION)


def test_a_session_that_is_still_made_is_waited_for(side):
    side.double.answer(f"GET .*/{SESSION}", {**RUNNING, "status": "TRAINING_SESSION_STATUS_CREATING"}, RUNNING)
    assert side.client().attach(SESSION).id == SESSION


@pytest.mark.parametrize(
    ("base_url", "fault", "seconds"),
    [
        ("http://127.0.0.1:9", httpx.ConnectError, 1.0),
        ("https://service.example", httpx.ConnectError, 45.0),
        ("https://service.example", httpx.ConnectTimeout, 45.0),
    ],
)
def test_stopping_against_a_service_that_is_gone_ends_soon_and_says_so(side, base_url, fault, seconds):
    session = side.client(base_url=base_url).session(base_model="m")

    def gone(request):
        raise fault("gone", request=request)

    side.double.answer(".*", gone)
    began = side.time.now
    with pytest.raises(sk.ConnectionFailedError, match=r"samplekit serve starts a local one.*may still cost"):
        session.stop()
    assert side.time.now - began == pytest.approx(seconds)
