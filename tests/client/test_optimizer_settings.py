"""Settings of an optimizer step: sent under the service's names, refused by name and range before anything is sent."""

from __future__ import annotations

import math

import numpy as np
import pytest
from service_double import OPERATIONS, operation

import samplekit as sk

MUON = {
    "learning_rate": 0.02, "momentum": 0.95, "newton_schulz_steps": 5, "weight_decay": 0.1, "grad_clip_norm": 0,
    "adam": {"learning_rate": 1e-4, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0, "grad_clip_norm": 1},
}  # fmt: skip


def test_every_setting_of_muon_is_sent_under_its_name(side):
    side.double.answer(f"POST {OPERATIONS}/optim-step", operation("PENDING"))
    side.session().optim_step(muon=MUON)
    assert side.double.seen[0].body == {"muon_params": MUON}


@pytest.mark.parametrize(
    ("muon", "sent"),
    [
        ({}, {}),
        ({"adam": {}}, {"adam": {}}),
        ({"adam": None, "momentum": None}, {}),
        (
            {"newton_schulz_steps": np.int64(3), "momentum": np.float32(0.5)},
            {"newton_schulz_steps": 3, "momentum": 0.5},
        ),
    ],
)
def test_settings_left_out_are_left_to_the_service(side, muon, sent):
    side.double.answer(f"POST {OPERATIONS}/optim-step", operation("PENDING"))
    side.session().optim_step(muon=muon)
    assert side.double.seen[0].body == {"muon_params": sent}


@pytest.mark.parametrize(
    ("muon", "words"),
    [
        ({"lr": 0.1}, r"muon\['lr'\] is no setting, expected one of learning_rate, momentum, newton_schulz_steps"),
        ({"beta1": 0.9}, r"muon\['beta1'\] is no setting"),
        ({3: 0.1}, "is no setting"),
        ({"learning_rate": -1}, r"muon\['learning_rate'\] is -1, expected a finite number of 0 or more"),
        ({"learning_rate": math.nan}, "learning_rate"),
        ({"learning_rate": "0.1"}, r"learning_rate'\] is '0.1'"),
        ({"learning_rate": True}, "learning_rate"),
        ({"momentum": 1.0}, r"momentum'\] is 1.0, expected a finite number of 0 or more and below 1"),
        ({"newton_schulz_steps": 0}, r"newton_schulz_steps'\] is 0, expected a whole number of 1 to 99"),
        ({"newton_schulz_steps": 5.0}, "newton_schulz_steps"),
        ({"weight_decay": math.inf}, "weight_decay"),
        ({"adam": 3}, r"muon\['adam'\] is 3, expected a mapping"),
        (
            {"adam": {"momentum": 0.9}},
            r"muon\['adam'\]\['momentum'\] is no setting, expected one of learning_rate, beta1",
        ),
        ({"adam": {"beta2": 1.5}}, r"muon\['adam'\]\['beta2'\] is 1.5"),
        ({"newton_schulz_steps": 100}, "expected a whole number of 1 to 99"),
        ({"learning_rate": 1e16}, "expected a finite number of 0 or more and at most 1e\\+15"),
        ({"adam": {"eps": 0.0}}, r"muon\['adam'\]\['eps'\] is 0.0, expected a finite number of 1e-30 or more"),
        ([], "muon is"),
        ("adam", "muon is 'adam'"),
    ],
)
def test_a_setting_of_muon_that_is_none_is_refused_by_name(side, muon, words):
    session = side.session()
    with pytest.raises(sk.SampleError, match=words):
        session.optim_step(muon=muon)
    assert side.double.seen == []


@pytest.mark.parametrize("name", ["learning_rate", "beta1", "beta2", "eps", "weight_decay", "grad_clip_norm"])
@pytest.mark.parametrize("value", [-1e-9, 1.1e15, math.nan, math.inf, "1", True])
def test_a_setting_of_adam_out_of_range_is_refused_by_name(side, name, value):
    session = side.session()
    with pytest.raises(sk.SampleError, match=f"{name} is"):
        session.optim_step(**{name: value})
    assert side.double.seen == []


def test_adam_s_settings_beside_muon_s_are_refused(side):
    with pytest.raises(sk.SampleError, match=r"put Adam's settings in muon\['adam'\]"):
        side.session().optim_step(learning_rate=1e-4, muon={"learning_rate": 0.1})


@pytest.mark.parametrize("value", [0, 0.0, 1e-31])
def test_an_epsilon_that_is_zero_in_float32_is_refused(side, value):
    with pytest.raises(sk.SampleError, match=r"eps is .*, expected a finite number of 1e-30 or more"):
        side.session().optim_step(learning_rate=1.0, eps=value)
    assert side.double.seen == []


@pytest.mark.parametrize("given", [{}, {"learning_rate": None}])
def test_a_step_without_settings_leaves_all_to_the_service(side, given):
    side.double.answer(f"POST {OPERATIONS}/optim-step", operation("PENDING"))
    side.session().optim_step(**given)
    assert side.double.seen[0].body == {}
