"""What a loss would silently misread, or break on without a name, is refused; an advantage of 0 is 0 however far the ratio."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import samplekit as sk
import samplekit.training as tr

POLICY = [sk.ImportanceSampling(), sk.PPO(), sk.GRPO(), sk.GRPO(aggregation="token_mean"), sk.DPPO(), sk.CISPO()]


def sample(logprobs, advantages):
    return sk.build_sample([1, 2, 3], [0, 1, 1], advantages=[0, *advantages], logprobs=[0, *logprobs])


@pytest.mark.parametrize("loss", POLICY, ids=str)
@pytest.mark.parametrize("far", [-900.0, -5000.0])
def test_an_advantage_of_zero_adds_nothing_however_far_the_ratio(loss, far):
    lp = [torch.tensor([-0.1, -1.0], requires_grad=True)]
    found = tr.compute_loss(lp, [sample([far, -1.0], [0, 1])], loss)
    found.loss.backward()
    scale = 2 if loss == sk.GRPO(aggregation="token_mean") else 1
    value = 1.0 if isinstance(loss, sk.CISPO) else -1.0  # CISPO's term is -r * A * lp
    assert found.loss.item() == pytest.approx(value / scale)
    assert lp[0].grad.tolist() == pytest.approx([0.0, -1 / scale])
    (gradient,) = tr.closed_form_gradients(lp, [sample([far, -1.0], [0, 1])], loss)
    assert gradient.tolist() == pytest.approx([0.0, -1 / scale])


def test_a_gradient_that_is_not_finite_is_refused_with_its_place():
    with pytest.raises(sk.SampleError, match=r"samples\[1\] at position 1"):
        tr.closed_form_gradients(
            [torch.tensor([-1.0, -1.0]), torch.tensor([-1.0, -0.1])],
            [sample([-1.0, -1.0], [1, 1]), sample([-1.0, -900.0], [1, -1])],
            sk.ImportanceSampling(),
        )


@pytest.mark.parametrize("bounds", [(0.2, 0.28), (2.0, 3.0), (float("nan"), 1.2), ("x", 1.2), (0.8, None)])
def test_bounds_of_diagnostics_are_absolute_ratios(bounds):
    with pytest.raises(sk.SampleError):
        tr.policy_diagnostics(
            [torch.tensor([-1.0, -1.0])], [sample([-1.0, -1.0], [1, 1])], clip_low=bounds[0], clip_high=bounds[1]
        )


@pytest.mark.parametrize("rows", [None, 5, "x", (row for row in ()), {0: 1}])
@pytest.mark.parametrize("what", ["policy_logprobs", "samples"])
def test_what_is_no_list_is_refused_by_name(rows, what):
    given = {"policy_logprobs": [torch.tensor([-1.0, -1.0])], "samples": [sample([-1.0, -1.0], [1, 1])], what: rows}
    for function in (tr.compute_loss, tr.closed_form_gradients):
        with pytest.raises(sk.SampleError, match=f"^{what} is"):
            function(given["policy_logprobs"], given["samples"], sk.PPO())


def test_one_bare_sample_is_refused():
    with pytest.raises(sk.SampleError, match=r"^samples is"):
        tr.compute_loss([torch.tensor([-1.0, -1.0])], sample([-1.0, -1.0], [1, 1]), sk.PPO())


def test_a_masked_array_is_refused():
    with pytest.raises(sk.SampleError, match=r"policy_logprobs\[0\] is a masked array"):
        tr.compute_loss([np.ma.array([-1.0, -2.0], mask=[0, 1])], [sample([-1.0, -1.0], [1, 1])], sk.PPO())


@pytest.mark.parametrize("make", [sk.DRO, lambda beta: sk.GRPO(beta=beta), lambda bound: sk.PPO(0.8, bound)])
def test_a_setting_that_no_float_holds_is_refused_in_few_words(make):
    with pytest.raises(sk.SampleError) as caught:
        make(10**400)
    assert len(str(caught.value)) < 300
