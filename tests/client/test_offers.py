"""What the service offers: prices of what would be created, and limits of the hardware that a session runs on."""

from __future__ import annotations

import inspect

import pytest
from service_double import MODELS, OPERATIONS, READY, RUNNING, SESSION, operation

import samplekit as sk
from samplekit.client import Client
from samplekit.wire.offers import Hardware, Limits

OPTIONS = {
    "base_model": "m", "lora": True, "num_generators": 0, "gpu_type": "B", "optimizer": "muon",
    "muon_scaling": "original", "inactive_timeout": 300, "base_weights": "ml_1",
}  # fmt: skip


def config(gpu_type, batch, length, *ways):
    ways = ways or ("lora", "full")
    limits = {"max_batch_size": batch, "max_seq_length": length}
    trainer = {way: {**limits, **({"max_rank": batch} if way == "lora" else {})} for way in ways}
    return {"gpu_type": gpu_type, "trainer_config": trainer, "generator_config": {"context_length": length}}


def models(*configs):
    return {"data": [{"base_model": "m", "default_gpu_type": "A", "compute_configs": list(configs)}]}


TWO = models(config("B", 64, 9000), config("A", 2, 100))


def on(gpu_type, **more):
    return {**READY, "compute_config": {"gpu_type": gpu_type, "num_generator_replicas": 1}, **more}


def test_every_setting_of_resources_is_in_the_list_above():
    assert set(OPTIONS) == set(inspect.signature(Client.create_resources).parameters) - {"self"}


@pytest.mark.parametrize("names", [[], *([name] for name in OPTIONS if name != "muon_scaling"), list(OPTIONS)])
def test_a_cost_is_asked_for_by_the_body_that_creates(side, names):
    side.double.answer("GET .*/supported-models", MODELS)
    side.double.answer("POST .*/estimate-cost", {"currency": "EUR", "price_per_hour": "2.5"})
    options = {name: OPTIONS[name] for name in names}
    client = side.client()
    client.create_resources(**options).detach()
    assert client.estimate_cost(**options).price_per_hour == 2.5
    created, asked = (item.body for item in side.double.calls("POST .*"))
    assert asked == created


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": "sgd"}, "optimizer is 'sgd'"), ({"muon_scaling": "original"}, "optimizer is not 'muon'"),
        ({"inactive_timeout": 299}, "inactive_timeout is 299"), ({"gpu_type": ""}, "gpu_type is ''"),
        ({"lora": 1}, "lora is 1"), ({"lora": None, "lora_rank": 2}, "lora is a NoneType|lora is None"),
        ({"lora_rank": 0}, "lora_rank is 0"), ({"num_generators": -1}, "num_generators is -1"),
    ],
)  # fmt: skip
def test_a_cost_of_what_cannot_be_is_not_asked_for(side, options, words):
    with pytest.raises(sk.SampleError, match=words):
        side.client().estimate_cost(base_model="m", **options)
    assert side.double.seen == []


@pytest.mark.parametrize(
    ("gpu_type", "rank", "fits"), [("A", 3, False), ("B", 3, True), ("B", 65, False), (None, 3, False)]
)
def test_a_rank_is_held_to_the_hardware_that_is_priced(side, gpu_type, rank, fits):
    side.double.answer("GET .*/supported-models", TWO)
    side.double.answer("POST .*/estimate-cost", {"currency": "EUR", "price_per_hour": 1})
    if fits:
        assert side.client().estimate_cost(base_model="m", gpu_type=gpu_type, lora_rank=rank).currency == "EUR"
    else:
        with pytest.raises(sk.ServiceError, match=f"lora_rank is {rank}, expected at most"):
            side.client().estimate_cost(base_model="m", gpu_type=gpu_type, lora_rank=rank)


def _created(side):
    made = side.client().create_resources(base_model="m", gpu_type="B", lora=True)
    made.detach()
    return made.session(lora_rank=4)


def _for_a_session(side):
    return side.client().session(base_model="m", lora_rank=2)


def _on_attached_resources(side):
    return side.client().attach_resources("res-1").session(lora_rank=4)


def _attached(side):
    return side.client().attach(SESSION)


WAYS = [_created, _for_a_session, _on_attached_resources, _attached]


@pytest.mark.parametrize("build", WAYS)
@pytest.mark.parametrize(
    ("gpu_type", "limits"), [("B", Limits(64, 9000, 64)), ("", Limits(2, 100, 2)), ("C", Limits(2, 100, 2))]
)
def test_limits_are_those_of_the_hardware_a_session_runs_on(side, build, gpu_type, limits):
    side.double.answer("GET .*/supported-models", TWO)
    waiting = on(gpu_type, status="MODEL_RESOURCES_STATUS_PENDING")
    side.double.answer("POST .*/model-resources", waiting)
    side.double.answer("GET .*/model-resources/res-1", *([waiting] * (build is not _attached)), on(gpu_type))
    side.double.answer("GET .*/training-sessions/.*", {**RUNNING, "lora_config": {"rank": "2"}})
    if limits.max_rank == 2 and build in {_created, _on_attached_resources}:
        with pytest.raises(sk.ServiceError, match="lora_rank is 4, expected at most 2"):
            build(side)
        return
    session = build(side)
    assert session.limits == limits
    session.detach()


def test_samples_are_held_to_the_hardware_a_session_runs_on(side):
    side.double.answer("GET .*/supported-models", TWO)
    side.double.answer(".* .*/model-resources(/res-1)?", on("B"))
    side.double.answer(f"POST {OPERATIONS}/.*", operation("PENDING"))
    session = _created(side)
    session.forward_backward([sk.build_sample([1, 2, 3], [0, 1, 1])] * 3, sk.CrossEntropy())
    (batch,) = session.batches([sk.build_sample(range(500), [1] * 500)])
    assert batch.num_tokens == 499
    session.detach()


def test_a_session_attached_to_where_there_is_one_kind_of_hardware_costs_no_further_question(side):
    side.client().attach(SESSION)
    assert [item.path for item in side.double.calls("GET .*/model-resources.*")] == []


def test_a_model_shows_all_hardware_the_default_first(side):
    side.double.answer("GET .*/supported-models", models(config("B", 64, 9000, "full"), config("A", 2, 100, "lora")))
    (found,) = side.client().supported_models()
    assert found.hardware == (Hardware("A", Limits(2, 100, 2), None, 100), Hardware("B", None, Limits(64, 9000), 9000))
    assert (found.gpu_type, found.lora, found.full, found.context_length) == (
        "A",
        *(Limits(2, 100, 2), Limits(64, 9000)),
        100,
    )
    assert found.limits("A", lora=False) is None
    assert found.limits("B", lora=False) == found.limits("", lora=False) == Limits(64, 9000)


@pytest.mark.parametrize(
    ("lora_enabled", "rank", "words"),
    [
        (True, None, r"lora_rank is None \(full weights\).*hold LoRA adapters: pass lora_rank=.*default is 32"),
        (False, 8, "lora_rank is 8 and these model resources train full weights: leave lora_rank out"),
    ],
)
def test_resources_train_nothing_else_than_asked(side, lora_enabled, rank, words):
    side.double.answer("GET .*/res-1", on("B", lora_enabled=lora_enabled))
    side.double.answer("POST .*/model-resources", on("B", lora_enabled=lora_enabled))
    client = side.client()
    with client.create_resources(base_model="m", lora=lora_enabled) as made:
        for held in (made, client.attach_resources("res-1")):
            with pytest.raises(sk.ServiceError, match=words):
                held.session(lora_rank=rank)
    assert side.double.calls("POST .*/training-sessions") == []


@pytest.mark.parametrize("lora_enabled", [True, None])
def test_a_checkpoint_decides_what_a_session_on_lora_resources_is(side, lora_enabled):
    side.double.answer("GET .*/res-1", on("B", lora_enabled=lora_enabled))
    side.double.answer("GET .*/checkpoints/ck-1", {"id": "ck-1", "lora_rank": 8})
    session = side.client().attach_resources("res-1").session(resume_from="ck-1")
    assert session.limits.max_rank == 64
    session.detach()


@pytest.mark.parametrize("kind", ["inference", "training"])
@pytest.mark.parametrize(("shown", "rank"), [({"lora_config": {"rank": 8}}, 8), ({}, None)])
def test_a_saved_checkpoint_says_all_that_its_session_knows(side, kind, shown, rank):
    side.double.answer("GET .*/training-sessions/.*", {**RUNNING, **shown})
    side.double.answer(f"POST {OPERATIONS}/.*", operation("COMPLETED", {"checkpoint": {"id": "ck-1", "step": "7"}}))
    attached = side.client().attach(SESSION)
    made = side.client().session(base_model="m", lora_rank=rank)
    for session in (attached, made):
        found = getattr(session, f"save_{kind}_checkpoint")().result()
        assert (found.base_model, found.session_id, found.kind, found.lora_rank) == ("m", SESSION, kind, rank)
    made.detach()


def test_a_session_of_a_service_that_shows_no_rank_knows_the_one_it_asked_for(side):
    side.double.answer(f"POST {OPERATIONS}/.*", operation("COMPLETED", {"checkpoint": {"id": "ck-1", "step": "7"}}))
    session = side.client().session(base_model="m", lora_rank=8)
    assert session.save_training_checkpoint().result().lora_rank == 8
    session.detach()
