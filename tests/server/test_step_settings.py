"""Settings of an optimizer step: each out of its range is a 400 that names it, and each end of a range takes a step."""

import itertools
import re

import pytest
import torch
from plain_caller import opened_session

from samplekit.server.bodies import OptimStepBody, parse_body
from samplekit.server.optimizers import HAS_MUON, StepOptimizer
from samplekit.server.refusals import Refusal
from samplekit.server.settings import AdamSettings, MuonSettings
from samplekit.wire import names as wire

NAN, INF = float("nan"), float("inf")
HOSTILE = [1e300, NAN, INF, -INF, -1, True, "1e-3", [1e-3], {"value": 1e-3}, 10**400]
ADAM = ("learning_rate", "beta1", "beta2", "eps", "weight_decay", "grad_clip_norm")
MUON = ("learning_rate", "momentum", "newton_schulz_steps", "weight_decay", "grad_clip_norm")
ENDS, DECAYS = (0.0, 1e15), (0.0, 1 - 2**-53)


def bodies(value):
    """Every setting of both optimizers set to a value, by the path that an error should name."""
    for name in ADAM:
        yield f"adam_params.{name}", {"adam_params": {name: value}}
        yield f"muon_params.adam.{name}", {"muon_params": {"adam": {name: value}}}
    for name in MUON:
        yield f"muon_params.{name}", {"muon_params": {name: value}}


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: f"{value!r:.20}")
def test_a_setting_out_of_its_range_is_refused_by_its_path(value):
    for path, body in bodies(value):
        with pytest.raises(Refusal) as caught:
            parse_body(OptimStepBody, body)
        assert caught.value.status == 400
        assert caught.value.message.startswith(f"{path} is ")


@pytest.mark.parametrize(("name", "value"), [("eps", 0), ("eps", 1e-320), ("beta1", 1), ("beta2", 1.0)])
def test_what_would_divide_by_0_is_refused(name, value):
    with pytest.raises(Refusal, match=f"adam_params.{name} is"):
        parse_body(OptimStepBody, {"adam_params": {name: value}})


@pytest.mark.parametrize("rate", [1e300, "1e-3"])
def test_a_step_that_torch_could_not_take_is_never_accepted(http, rate):
    with opened_session(http, lora={"rank": 2}) as session:
        answer = session.submit("optim-step", {"adam_params": {"learning_rate": rate}})
    assert answer.status_code == 400
    assert "adam_params.learning_rate is" in answer.json()["error"]["message"]


def test_a_rate_that_breaks_the_weights_fails_what_follows_by_sample_and_position(
    open_session, forward_body, make_samples
):
    session, body = open_session(), forward_body(make_samples([5, 9]))
    session.output("forward-backward", body)
    session.output("optim-step", {"adam_params": {"learning_rate": 1e15}})
    shown = session.run("forward-backward", body)
    assert shown["error"]["code"] == wire.OperationErrorCode.NON_FINITE_LOSS
    assert re.match(
        r"the logprob of samples\[\d\] at position \d is (nan|-inf), expected a finite", shown["error"]["message"]
    )


def with_a_gradient():
    """A small layer most of whose weights have gradient 0."""
    module = torch.nn.Linear(3, 4)
    for weight in module.parameters():
        weight.grad = torch.zeros_like(weight)
        weight.grad[0] = 1e-3
    return module


@pytest.mark.parametrize("eps", [1e-30, 1e15])
def test_adam_takes_a_step_at_both_ends_of_every_range(eps):
    for rate, beta1, beta2, decay, clip in itertools.product(ENDS, DECAYS, DECAYS, ENDS, ENDS):
        settings = AdamSettings(
            learning_rate=rate, beta1=beta1, beta2=beta2, eps=eps, weight_decay=decay, grad_clip_norm=clip
        )
        module = with_a_gradient()
        StepOptimizer(module).step(settings)
        assert not any(weight.isnan().any() for weight in module.parameters())


@pytest.mark.skipif(not HAS_MUON, reason="torch before 2.9 has no Muon")
@pytest.mark.parametrize("steps", [1, 99])
def test_muon_takes_a_step_at_both_ends_of_every_range(steps):
    adam = AdamSettings(learning_rate=1e15)
    for rate, momentum, decay, clip in itertools.product(ENDS, DECAYS, ENDS, ENDS):
        settings = MuonSettings(
            learning_rate=rate, momentum=momentum, newton_schulz_steps=steps, weight_decay=decay, grad_clip_norm=clip,
            adam=adam,
        )  # fmt: skip
        module = with_a_gradient()
        before = module.bias.detach().clone()
        StepOptimizer(module, muon_scaling="original").step(settings)
        assert not torch.equal(module.bias, before)
