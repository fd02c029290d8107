"""The seven losses: their wire spelling, bounds, and which inputs they read."""

import dataclasses
import inspect
import json
import math
from pathlib import Path

import numpy as np
import pytest

import samplekit as sk
from samplekit.losses import LOSSES, Loss

EXCHANGES = json.loads((Path(__file__).parent / "data/wire/exchanges.json").read_text())
RECORDED = [
    exchange["request_body"]["loss"]
    for exchange in EXCHANGES
    if isinstance(exchange["request_body"], dict) and "loss" in exchange["request_body"]
]
FULL = {
    "LOSS_TYPE_CROSS_ENTROPY": sk.CrossEntropy(),
    "LOSS_TYPE_IMPORTANCE_SAMPLING": sk.ImportanceSampling(),
    "LOSS_TYPE_PPO": sk.PPO(clip_low=0.7, clip_high=1.5),
    "LOSS_TYPE_GRPO": sk.GRPO(clip_low=0.8, clip_high=1.28, beta=0.1, aggregation="sequence_mean", ratio="sequence"),
    "LOSS_TYPE_CISPO": sk.CISPO(clip_low=0.5, clip_high=5.0),
    "LOSS_TYPE_DPPO": sk.DPPO(delta_low=0.1, delta_high=0.2),
    "LOSS_TYPE_DRO": sk.DRO(beta=0.05),
}
MASKS = {"weights", "mask"}
POLICY = {"target_tokens", "logprobs", "advantages"}


def test_there_are_seven_losses_and_each_was_recorded():
    assert {loss.wire_type for loss in LOSSES} == set(FULL) == {loss["type"] for loss in RECORDED}


@pytest.mark.parametrize("recorded", RECORDED, ids=json.dumps)
def test_our_spelling_equals_the_recorded_one_with_every_setting_sent(recorded):
    loss = Loss.from_wire(recorded)
    sent = loss.to_wire()
    assert sent["type"] == recorded["type"]
    params = type(loss).wire_params
    for name, value in recorded.get(params, {}).items():
        assert sent[params][name] == value
    assert len(sent.get(params, {})) == len(dataclasses.fields(loss))
    assert set(recorded) <= {"type", params}


def test_grpo_is_spelled_out():
    assert sk.GRPO(beta=0.05, aggregation="token_mean", ratio="sequence").to_wire() == {
        "type": "LOSS_TYPE_GRPO",
        "grpo_params": {
            "clip_low_threshold": 0.8, "clip_high_threshold": 1.2, "beta": 0.05,
            "agg_type": "GRPO_LOSS_AGGREGATION_TYPE_TOKEN_MEAN", "ratio_type": "GRPO_LOSS_RATIO_TYPE_SEQUENCE",
        },
    }  # fmt: skip
    assert sk.CrossEntropy().to_wire() == {"type": "LOSS_TYPE_CROSS_ENTROPY"}


@pytest.mark.parametrize("aggregation", ["fixed_horizon", "token_mean", "sequence_mean"])
@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_every_enum_member_round_trips(aggregation, ratio):
    loss = sk.GRPO(aggregation=aggregation, ratio=ratio)
    assert Loss.from_wire(json.loads(json.dumps(loss.to_wire()))) == loss


@pytest.mark.parametrize("kind", FULL)
def test_every_loss_round_trips_through_json(kind):
    loss = FULL[kind]
    assert loss.wire_type == kind
    assert Loss.from_wire(json.loads(json.dumps(loss.to_wire()))) == loss
    assert hash(loss) == hash(dataclasses.replace(loss))


@pytest.mark.parametrize("kind", [kind for kind in FULL if kind != "LOSS_TYPE_DRO"])
def test_settings_left_out_take_our_defaults(kind):
    cls = type(FULL[kind])
    for mapping in ({"type": kind}, {"type": kind, cls.wire_params: {}}, {"type": kind, cls.wire_params: None}):
        assert Loss.from_wire(mapping) == cls()


def test_integers_and_numpy_numbers_are_sent_as_floats():
    sent = sk.PPO(clip_low=0, clip_high=np.float64(2)).to_wire()["ppo_params"]
    assert json.dumps(sent) == '{"clip_low_threshold": 0.0, "clip_high_threshold": 2.0}'
    assert sk.DRO(beta=np.float32(0.5)).to_wire()["dro_params"] == {"beta": 0.5}


@pytest.mark.parametrize("cls", [sk.PPO, sk.GRPO, sk.CISPO])
@pytest.mark.parametrize("bounds", [(0.2, 0.28), (0.8, 0.2), (1.1, 1.2), (1.2, 0.8), (0.8, 0.99999)])
def test_clip_bounds_on_the_wrong_side_of_1_are_refused_as_the_offsets_they_are(cls, bounds):
    low, high = bounds
    with pytest.raises(sk.SampleError, match="absolute ratios, not offsets") as caught:
        cls(clip_low=low, clip_high=high)
    assert f"{cls.__name__}(clip_low={low}, clip_high={high})" in str(caught.value)
    assert "1.28" in str(caught.value)


@pytest.mark.parametrize("cls", [sk.PPO, sk.GRPO, sk.CISPO])
def test_clip_bounds_may_touch_1_and_0(cls):
    assert cls(clip_low=1, clip_high=1).clip_high == 1
    assert cls(clip_low=0.0, clip_high=100).clip_low == 0.0


BAD_NUMBERS = [-0.1, math.nan, math.inf, -math.inf, "0.8", None, True, [1.0]]


@pytest.mark.parametrize("value", BAD_NUMBERS)
@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (sk.PPO, "clip_low"), (sk.PPO, "clip_high"), (sk.GRPO, "clip_low"), (sk.GRPO, "clip_high"), (sk.GRPO, "beta"),
        (sk.CISPO, "clip_low"), (sk.CISPO, "clip_high"), (sk.DPPO, "delta_low"), (sk.DPPO, "delta_high"),
        (sk.DRO, "beta"),
    ],
)  # fmt: skip
def test_a_setting_that_is_no_number_in_its_range_is_refused_by_name(cls, name, value):
    with pytest.raises(sk.SampleError, match=rf"{cls.__name__}\({name}=") as caught:
        cls(**{name: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("name", ["delta_low", "delta_high"])
def test_deltas_are_probabilities(name):
    assert getattr(sk.DPPO(**{name: 1.0}), name) == 1.0
    with pytest.raises(sk.SampleError, match=f"{name}=1.01.*0 to 1"):
        sk.DPPO(**{name: 1.01})


@pytest.mark.parametrize(("name", "value"), [("aggregation", "mean"), ("aggregation", None), ("ratio", "GSPO")])
def test_an_unknown_choice_is_refused_and_the_choices_named(name, value):
    with pytest.raises(sk.SampleError, match="use one of"):
        sk.GRPO(**{name: value})


def test_dro_has_no_default_beta():
    with pytest.raises(TypeError):
        sk.DRO()
    for mapping in ({"type": "LOSS_TYPE_DRO"}, {"type": "LOSS_TYPE_DRO", "dro_params": {"beta": None}}):
        with pytest.raises(sk.SampleError, match=r"loss\.dro_params lacks \['beta'\]"):
            Loss.from_wire(mapping)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"type": "LOSS_TYPE_DPO"}, "loss.type is 'LOSS_TYPE_DPO', expected one of LOSS_TYPE_CROSS_ENTROPY"),
        ({}, "loss.type is None"),
        (None, "loss is None"),
        ("LOSS_TYPE_PPO", "loss is a str"),
        ({"type": "LOSS_TYPE_PPO", "grpo_params": {}}, "loss holds ['grpo_params'], expected only 'type' and 'ppo_params'"),
        ({"type": "LOSS_TYPE_PPO", 1: 2, "x": 3, None: 4}, "loss holds ['x', 1, None], expected only 'type'"),
        ({"type": "LOSS_TYPE_PPO", "ppo_params": {1: 2, "x": 3}}, "loss.ppo_params holds ['x', 1], expected only"),
        ({"type": "LOSS_TYPE_PPO", "ppo_params": {"clip_low": 0.8}}, "loss.ppo_params holds ['clip_low'], expected only"),
        ({"type": "LOSS_TYPE_PPO", "ppo_params": {"clip_low_threshold": 0.2, "clip_high_threshold": 0.28}}, "PPO(clip_low=0.2"),
        ({"type": "LOSS_TYPE_PPO", "ppo_params": {"clip_low_threshold": "0.8"}}, "PPO(clip_low='0.8') is out of range"),
        ({"type": "LOSS_TYPE_PPO", "ppo_params": []}, "loss.ppo_params is a list"),
        ({"type": "LOSS_TYPE_CROSS_ENTROPY", "cross_entropy_params": {"x": 1}}, "loss.cross_entropy_params holds ['x']"),
        ({"type": "LOSS_TYPE_GRPO", "grpo_params": {"agg_type": "token_mean"}}, "loss setting aggregation is 'token_mean'"),
        ({"type": "LOSS_TYPE_GRPO", "grpo_params": {"agg_type": 1}}, "loss setting aggregation is 1"),
        ({"type": "LOSS_TYPE_GRPO", "grpo_params": {"agg_type": "GRPO_LOSS_RATIO_TYPE_TOKEN"}}, "loss setting aggregation"),
        ({"type": "LOSS_TYPE_GRPO", "grpo_params": {"agg_type": "GRPO_LOSS_AGGREGATION_TYPE_UNSPECIFIED"}},
         "GRPO(aggregation='unspecified') is unknown"),
    ],
)  # fmt: skip
def test_a_mapping_that_is_no_loss_is_refused(mapping, message):
    with pytest.raises(sk.SampleError) as caught:
        Loss.from_wire(mapping)
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    ("loss", "required", "optional"),
    [
        (sk.CrossEntropy(), {"target_tokens", "weights"}, set()),
        (sk.ImportanceSampling(), POLICY, MASKS),
        (sk.PPO(), POLICY, MASKS),
        (sk.GRPO(), POLICY, MASKS | {"reference_logprobs"}),
        (sk.GRPO(ratio="sequence"), POLICY, MASKS | {"reference_logprobs"}),
        (sk.GRPO(beta=0.1), POLICY | {"reference_logprobs"}, MASKS),
        (sk.CISPO(), POLICY, MASKS),
        (sk.DPPO(), POLICY, MASKS),
        (sk.DRO(beta=0.1), POLICY, MASKS),
    ],
    ids=repr,
)
def test_each_loss_says_what_it_reads(loss, required, optional):
    assert loss.required_inputs() == frozenset(required)
    assert loss.optional_inputs() == frozenset(optional)
    assert not loss.required_inputs() & loss.optional_inputs()


@pytest.mark.parametrize("cls", LOSSES)
def test_losses_are_frozen_and_documented(cls):
    loss = cls(beta=0.1) if cls is sk.DRO else cls()
    with pytest.raises(dataclasses.FrozenInstanceError):
        loss.beta = 2
    described = inspect.getdoc(cls)
    for item in dataclasses.fields(cls):
        assert f"{item.name}:" in described
