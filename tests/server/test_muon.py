"""Muon: Newton-Schulz for hidden matrices, Adam for the others; checked against the formula and torch's Adam."""

import json
from pathlib import Path

import pytest
import torch
from plain_caller import opened_session

from samplekit import CrossEntropy
from samplekit.server.loss_rules import ReferenceRule
from samplekit.server.optimizers import HAS_MUON
from samplekit.server.policy import Policy
from samplekit.server.settings import AdamSettings, MuonSettings

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "wire" / "exchanges.json").read_text())
MUON = {"optimizer_config": {"muon": {"scaling_strategy": "MUON_SCALING_STRATEGY_MATCH_ADAM"}}}
needs_muon = pytest.mark.skipif(not HAS_MUON, reason="torch before 2.9 has no Muon")
RATE = 0.02


def orthogonalised(matrix):
    """The quintic iteration of Muon's authors, in bfloat16 as they run it: small singular values depend on it."""
    flipped = matrix.shape[0] > matrix.shape[1]
    found = matrix.T if flipped else matrix
    found = (found / found.norm()).bfloat16()
    for _ in range(5):
        square = found @ found.T
        found = 3.4445 * found + (-4.775 * square + 2.0315 * square @ square) @ found
    return (found.T if flipped else found).float()


def accumulated(policy, samples):
    policy.run(samples, ReferenceRule(samples, CrossEntropy()), backward=True)
    return {name: weight.grad.clone() for name, weight in policy.trained.named_parameters() if weight.grad is not None}


@needs_muon
def test_hidden_matrices_move_by_the_orthogonalised_gradient_and_the_others_as_by_adam(loaded, make_samples):
    samples = make_samples([12, 9])
    policy, by_adam = Policy(loaded, muon_scaling="original"), Policy(loaded)
    gradients = accumulated(policy, samples)
    accumulated(by_adam, samples)
    before = {name: weight.detach().clone() for name, weight in policy.trained.named_parameters()}
    adam = AdamSettings(learning_rate=1e-3, grad_clip_norm=0)
    policy.optim_step(MuonSettings(learning_rate=RATE, adam=adam, grad_clip_norm=0))
    by_adam.optim_step(adam)
    adam_weights = dict(by_adam.trained.named_parameters())
    moved = {"muon": 0, "adam": 0}
    for name, weight in policy.trained.named_parameters():
        if weight.ndim == 2 and "embed" not in name and "lm_head" not in name:
            moved["muon"] += 1
            taller = max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
            wanted = -RATE * taller * orthogonalised(gradients[name])
            change = weight.detach() - before[name]
            assert torch.cosine_similarity(change.flatten(), wanted.flatten(), 0) > 0.99, name
            assert float(change.norm()) == pytest.approx(float(wanted.norm()), rel=0.03), name
        else:
            moved["adam"] += 1
            assert torch.equal(weight, adam_weights[name]), name
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
