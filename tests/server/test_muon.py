"""Muon: Newton-Schulz for hidden matrices, Adam for the others; checked against the formula and torch's Adam."""

import json
from pathlib import Path

import pytest
import torch
from plain_caller import opened_session

from samplekit.server.adapters import copy_whole
from samplekit.server.optimizers import HAS_MUON, StepOptimizer
from samplekit.server.settings import AdamSettings, MuonSettings

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "wire" / "exchanges.json").read_text())
MUON = {"optimizer_config": {"muon": {"scaling_strategy": "MUON_SCALING_STRATEGY_MATCH_ADAM"}}}
needs_muon = pytest.mark.skipif(not HAS_MUON, reason="torch before 2.9 has no Muon")
RATE = 0.02


def orthogonalised(matrix):
    """The quintic iteration of Muon's authors, in float64."""
    flipped = matrix.shape[0] > matrix.shape[1]
    found = matrix.double().T if flipped else matrix.double()
    found = found / found.norm()
    for _ in range(5):
        square = found @ found.T
        found = 3.4445 * found + (-4.775 * square + 2.0315 * square @ square) @ found
    return (found.T if flipped else found).float()


def with_drawn_gradients(loaded):
    """A copy of the model whose gradients have no tiny singular values, which bfloat16 would lose."""
    module = copy_whole(loaded.module)
    generator = torch.Generator().manual_seed(4)
    for weight in module.parameters():
        weight.grad = torch.randn(weight.shape, generator=generator)
    return module


@needs_muon
def test_hidden_matrices_move_by_the_orthogonalised_gradient_and_the_others_as_by_adam(loaded):
    adam = AdamSettings(learning_rate=1e-3, grad_clip_norm=0)
    by_muon, by_adam = with_drawn_gradients(loaded), with_drawn_gradients(loaded)
    before = {name: weight.detach().clone() for name, weight in by_muon.named_parameters()}
    muon = MuonSettings(learning_rate=RATE, adam=adam, grad_clip_norm=0)
    StepOptimizer(by_muon, muon_scaling="original").step(muon)
    StepOptimizer(by_adam).step(adam)
    moved = {"muon": 0, "adam": 0}
    for (name, weight), other in zip(by_muon.named_parameters(), by_adam.parameters(), strict=True):
        if weight.ndim == 2 and "embed" not in name and "lm_head" not in name:
            moved["muon"] += 1
            taller = max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
            wanted = -RATE * taller * orthogonalised(weight.grad)
            change = weight.detach() - before[name]
            assert torch.cosine_similarity(change.flatten(), wanted.flatten(), 0) > 0.99, name
            assert float(change.norm()) == pytest.approx(float(wanted.norm()), rel=0.05), name
        else:
            moved["adam"] += 1
            assert torch.equal(weight, other), name
    assert min(moved.values()) > 2


@needs_muon
def test_the_recorded_step_is_taken_and_lowers_the_loss(http, forward_body, make_samples):
    (body,) = [
        item["request_body"]
        for item in RECORDED
        if item["call"] == "trainer.optim_step (muon)" and item["method"] == "POST"
    ]
    request = forward_body(make_samples([20]))
    with opened_session(http, lora={"rank": 4}, **MUON) as session:
        first = session.output("forward-backward", request)["loss"]
        for step in ("1", "2", "3"):
            assert session.output("optim-step", body) == {"step": step}
            last = session.output("forward-backward", request)["loss"]
    assert last < first


@needs_muon
@pytest.mark.parametrize(
    ("config", "body", "mentioned"),
    [
        (MUON, {"adam_params": {"learning_rate": 1e-3}}, "muon_params"),
        (MUON, {}, "learning_rate"),
        (MUON, {"muon_params": {"learning_rate": 1e-3}}, "muon_params.adam"),
        (MUON, {"muon_params": {"learning_rate": 1e-3, "momentum": 1.0}}, "muon_params.momentum"),
        (MUON, {"muon_params": {"learning_rate": 1e-3, "newton_schulz_steps": 0}}, "newton_schulz_steps"),
        ({}, {"muon_params": {"learning_rate": 1e-3, "adam": {"learning_rate": 1e-3}}}, "optimizer_config"),
    ],
)
def test_a_step_of_the_other_optimizer_or_without_a_rate_is_refused_by_name(http, config, body, mentioned):
    with opened_session(http, lora={"rank": 2}, **config) as session:
        answer = session.submit("optim-step", body)
    assert answer.status_code == 400
    assert mentioned in answer.json()["error"]["message"]
