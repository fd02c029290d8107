"""Sessions: opened, left, stopped whatever happens; nothing left behind."""

from __future__ import annotations

import asyncio
import warnings

import httpx
import pytest
from service_double import MODELS, OPERATIONS, READY, RUNNING, SESSION, STATUS, operation

import samplekit as sk
from samplekit.wire.offers import Limits

SUBMIT = f"POST {OPERATIONS}/.*"
STOPS = [f"/v1/rl/training-sessions/{SESSION}/stop", "/v1/rl/model-resources/res-1/stop?force=true"]


def resources(status, **more):
    return {**READY, "status": f"MODEL_RESOURCES_STATUS_{status}", **more}


def session_is(status, **more):
    return {**RUNNING, "status": f"TRAINING_SESSION_STATUS_{status}", **more}


def stops(side):
    return [item.path for item in side.double.seen if "/stop" in item.path]


def test_a_session_waits_for_its_resources_and_itself(side):
    side.double.answer("POST .*/model-resources", resources("PENDING"))
    side.double.answer(
        "GET .*/res-1", httpx.Response(404), resources("PENDING"), resources("CREATING"), resources("ODD"), READY
    )
    side.double.answer("POST .*/training-sessions", session_is("CREATING"))
    side.double.answer(f"GET .*/{SESSION}", session_is("CREATING"), RUNNING)
    with side.client().session(base_model="m") as session:
        assert session.id == SESSION
        assert session.limits.max_batch_size == 256
    assert stops(side) == STOPS


def test_full_weights_and_lora_are_asked_for_as_such(side):
    side.client().session(base_model="m").detach()
    side.client().session(base_model="m", lora_rank=8, lora_alpha=16, num_generators=0).detach()
    first, second = (item.body for item in side.double.calls("POST .*/model-resources"))
    assert (first["lora_enabled"], second["lora_enabled"]) == (False, True)
    assert second["compute_config"] == {"num_generator_replicas": 0}
    first, second = (item.body for item in side.double.calls("POST .*/training-sessions"))
    assert "lora_config" not in first
    assert second["lora_config"] == {"rank": 8, "alpha": 16}


def test_the_only_model_is_taken_and_several_are_not_guessed_between(side):
    side.client().session().detach()
    assert side.double.calls("POST .*/model-resources")[0].body["base_model"] == "m"
    side.double.answer("GET .*/supported-models", {"data": [*MODELS["data"], {"base_model": "other"}]})
    with pytest.raises(sk.ServiceError, match="m, other"):
        side.client().session()


def test_a_checkpoint_decides_the_model(side):
    side.double.answer("GET .*/checkpoints/ck-1", {"id": "ck-1", "base_model": "m2"})
    side.client().session(resume_from="ck-1").detach()
    assert side.double.calls("POST .*/model-resources")[0].body["base_model"] == "m2"
    assert side.double.calls("POST .*/training-sessions")[0].body["resume_from_checkpoint_id"] == "ck-1"


def test_a_rank_over_the_limit_is_refused_before_anything_is_created(side):
    with pytest.raises(sk.ServiceError, match="at most 64"):
        side.client().session(base_model="m", lora_rank=65)
    assert [item.method for item in side.double.seen] == ["GET"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lora_rank": "a"}, "lora_rank is 'a', expected a whole number of 1 or more"),
        ({"lora_rank": -1}, "lora_rank is -1"),
        ({"lora_rank": 0}, "lora_rank is 0"),
        ({"lora_rank": True}, "lora_rank is True"),
        ({"lora_rank": 8.0}, "lora_rank is 8.0"),
        ({"lora_alpha": 16}, "lora_alpha is 16 and lora_rank is None"),
        ({"lora_seed": 0}, "lora_seed is 0 and lora_rank is None"),
        ({"lora_rank": 8, "lora_alpha": 0}, "lora_alpha is 0"),
        ({"lora_rank": 8, "lora_seed": 2**70}, "lora_seed"),
        ({"num_generators": -1}, "num_generators is -1, expected a whole number of 0 or more"),
        ({"num_generators": None}, "num_generators is None"),
        ({"base_model": 5}, "base_model is 5, expected a non-empty string"),
        ({"name": ""}, "name is ''"),
        ({"resume_from": 7}, "resume_from is 7"),
    ],
)
def test_a_setting_out_of_range_is_refused_before_anything_is_asked_or_paid(side, options, words):
    with pytest.raises(sk.SampleError, match=words):
        side.client().session(**{"base_model": "m", **options})
    assert side.double.seen == []


@pytest.mark.parametrize("bad", ["", None, 5])
def test_an_id_that_is_none_is_refused_before_any_request(side, bad):
    with pytest.raises(sk.SampleError, match="session_id"):
        side.client().attach(bad)
    session = side.session()
    with pytest.raises(sk.SampleError, match="id is"):
        session.operation(bad, "optim-step")
    assert side.double.seen == []


LIMITS = {"max_batch_size": 8, "max_seq_length": 64}


def offered(*trainers):
    configs = [{"gpu_type": f"G{index}", "trainer_config": trainer} for index, trainer in enumerate(trainers)]
    return {"data": [{"base_model": "m", "default_gpu_type": "G0", "compute_configs": configs}]}


@pytest.mark.parametrize(
    ("trainer", "rank", "words"),
    [
        ({"lora": LIMITS}, None, "lora_rank is None.*m offers LoRA only: pass lora_rank="),
        ({"full": LIMITS}, 8, "lora_rank is 8 and m offers full weights only: leave lora_rank out"),
    ],
)
def test_a_way_of_training_that_a_model_does_not_offer_is_refused_before_anything_is_created(
    side, trainer, rank, words
):
    side.double.answer("GET .*/supported-models", offered(trainer))
    for ask in (side.client().session, side.client().estimate_cost):
        with pytest.raises(sk.ServiceError, match=words):
            ask(base_model="m", lora_rank=rank)
    assert {item.method for item in side.double.seen} == {"GET"}


@pytest.mark.parametrize(
    ("models", "limits"),
    [
        (offered({}), None),
        ({"data": []}, None),
        ({"data": [{"base_model": "m"}]}, None),
        (offered({"full": LIMITS}, {"lora": LIMITS}), 8),  # on other hardware than the default one
    ],
)
def test_what_is_not_known_of_a_model_is_left_to_the_service(side, models, limits):
    side.double.answer("GET .*/supported-models", models)
    with side.client().session(base_model="m", lora_rank=8) as session:
        assert session.limits == (None if limits is None else Limits(8, 64))


@pytest.mark.parametrize("where", ["resources", "session create", "session"])
def test_resources_are_stopped_when_the_session_cannot_be_had(side, where):
    error = {"code": "X_CAPACITY", "message": "none left"}
    if where == "resources":
        side.double.answer("GET .*/res-1", resources("PENDING"), resources("ERROR", error=error))
    elif where == "session create":
        side.double.answer("POST .*/training-sessions", httpx.Response(400, json={"error": {"message": "none left"}}))
    else:
        side.double.answer(f"GET .*/{SESSION}", session_is("ERROR", error=error))
    with pytest.raises(sk.ServiceError, match="none left"):
        side.client().session(base_model="m")
    assert stops(side) == STOPS[1:]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, MemoryError])
def test_an_interruption_while_waiting_stops_the_resources(side, interruption):
    side.double.answer("GET .*/res-1", resources("PENDING"))
    client = side.client()

    def interrupt(seconds):
        side.time.sleep = lambda _: None
        raise interruption

    side.time.sleep = interrupt
    if side.kind == "blocking":
        client._driver._runtime = side.time.runtime()
    with pytest.raises(interruption):
        client.session(base_model="m")
    assert stops(side) == STOPS[1:]


@pytest.mark.parametrize("side", ["async"], indirect=True)
def test_a_cancelled_task_stops_the_resources(side):
    side.double.answer("GET .*/res-1", resources("PENDING"))
    client = side.client()._inner

    async def main():
        task = asyncio.ensure_future(client.session(base_model="m")._open())
        for _ in range(50):
            await asyncio.sleep(0)
            if side.double.calls("GET .*/res-1"):
                break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def slow(seconds):
        await asyncio.sleep(3600)

    side.time.async_sleep = slow
    client._driver._runtime = side.time.runtime()
    side.loop.run_until_complete(main())
    assert stops(side) == STOPS[1:]


def test_resources_that_never_get_ready_are_given_up_and_stopped(side):
    side.double.answer("GET .*/res-1", resources("PENDING"))
    with pytest.raises(sk.ServiceError, match="did not become READY within 3600 s"):
        side.client().session(base_model="m")
    assert stops(side) == STOPS[1:]


def test_leaving_stops_the_resources_even_where_the_session_cannot_be_stopped(side):
    side.double.answer(f"POST .*/{SESSION}/stop", httpx.Response(403))
    session = side.client().session(base_model="m")
    with pytest.raises(sk.StatusError), session:
        pass
    assert stops(side) == STOPS


def test_an_attached_session_is_left_running(side):
    with side.client().attach(SESSION) as session:
        assert session.base_model == "m"
    assert stops(side) == []


def test_a_session_that_was_adopted_is_stopped_with_its_resources(side):
    with side.client().attach(SESSION) as session:
        session.adopt()
    assert stops(side) == STOPS


def test_a_detached_session_is_left_running_and_a_stopped_one_is_not_stopped_twice(side):
    with side.client().session(base_model="m") as session:
        session.detach()
    assert stops(side) == []
    with side.client().session(base_model="m") as session:
        session.stop()
    assert stops(side) == STOPS


def test_a_detached_session_works_on_inside_its_block_and_is_left_afterwards(side):
    side.double.answer(SUBMIT, operation("COMPLETED", {"step": 1}))
    with side.client().session(base_model="m") as session:
        session.detach()
        assert session.optim_step(learning_rate=1.0).result() == 1
    assert stops(side) == []
    with pytest.raises(sk.ServiceError, match="was left"):
        session.optim_step(learning_rate=1.0)


def test_a_session_that_was_left_submits_nothing(side, sample):
    with side.client().session(base_model="m") as session:
        pass
    before = len(side.double.seen)
    with pytest.raises(sk.ServiceError, match="was left"):
        session.forward_backward([sample], sk.CrossEntropy())
    assert len(side.double.seen) == before


def test_failures_that_nobody_collected_are_warned_of(side):
    failed = operation("FAILED", error={"code": "X_INVALID_INPUT", "message": "bad luck"})
    side.double.answer(SUBMIT, {"id": "op-1", "status": STATUS + "PENDING"})
    side.double.answer(f"GET {OPERATIONS}/optim-step/op-1", failed)
    with pytest.warns(RuntimeWarning, match="bad luck"), side.client().session(base_model="m") as session:
        session.optim_step(learning_rate=1.0)
    assert stops(side) == STOPS


def test_collected_failures_and_successes_are_not_warned_of(side):
    done = operation("COMPLETED", {"step": 1})
    side.double.answer(SUBMIT, operation("FAILED", error={}), {**done, "id": "op-2"})
    with warnings.catch_warnings(), side.client().session(base_model="m") as session:
        warnings.simplefilter("error")
        with pytest.raises(sk.OperationFailedError):
            session.optim_step(learning_rate=1.0).result()
        session.optim_step(learning_rate=1.0)


def test_an_error_inside_the_block_stops_the_session_and_is_raised(side):
    with pytest.raises(ZeroDivisionError), side.client().session(base_model="m"):
        raise ZeroDivisionError
    assert stops(side) == STOPS


def test_a_service_without_a_list_of_models_leaves_limits_unknown(side, sample):
    side.double.answer("GET .*/supported-models", httpx.Response(404))
    side.double.answer(SUBMIT, operation("PENDING"))
    session = side.session()
    assert session.limits is None
    session.forward_backward([sample] * 600, sk.CrossEntropy())


def test_supported_models_are_read(side):
    (model,) = side.client().supported_models()
    assert (model.base_model, model.gpu_type, model.context_length) == ("m", "B200-SXM", 32_768)
    assert (model.lora.max_rank, model.full.max_rank) == (64, None)
