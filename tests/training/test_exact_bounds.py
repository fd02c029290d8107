"""What happens just inside a bound, just outside it, and on it."""

import math

import numpy as np
import pytest
import torch

import samplekit as sk
from samplekit.training import check_gradients, compute_loss, diagnose_first_step, policy_diagnostics


def sampled(logprobs, advantages=None):
    """A sample of which every position trains, with these logprobs of the sampler."""
    full = [0.0, *logprobs]
    worth = None if advantages is None else [0.0, *advantages]
    return sk.build_sample(range(len(full)), [0] + [1] * len(logprobs), logprobs=full, advantages=worth)


@pytest.mark.parametrize(
    "loss", [sk.PPO(1, 1), sk.GRPO(1, 1), sk.GRPO(1, 1, ratio="sequence"), sk.CISPO(1, 1)], ids=str
)
def test_on_policy_nothing_is_clipped_by_bounds_of_exactly_1(loss):
    sample = sampled([-0.5, -0.25, -2.0], [3.0, -2.0, 0.5])
    rows = [torch.tensor([-0.5, -0.25, -2.0], dtype=torch.float64, requires_grad=True)]
    output = compute_loss(rows, [sample], loss)
    output.loss.backward()
    assert rows[0].grad.tolist() == [-3.0, 2.0, -0.5]
    assert output.metrics["loss/clip/high_fraction"] == output.metrics["loss/clip/low_fraction"] == 0
    found = policy_diagnostics(rows, [sample], clip_low=1, clip_high=1)
    assert found["loss/clip/high_fraction"] == found["loss/clip/low_fraction"] == 0


def test_just_off_policy_bounds_of_exactly_1_clip_what_moved_the_way_it_should():
    sample, moved = sampled([-0.5] * 4, [1.0, -1.0, 1.0, -1.0]), [-0.49, -0.51, -0.51, -0.49]
    found = policy_diagnostics([np.array(moved)], [sample], clip_low=1, clip_high=1)
    assert (found["loss/clip/high_fraction"], found["loss/clip/low_fraction"]) == (0.25, 0.25)


def in_pairs(num_pairs=40):
    """Logprobs that stand twice each, so that noise of +d, -d beside them is fitted by no factor."""
    return np.repeat(-0.5 - 2 * np.random.default_rng(0).random(num_pairs), 2)


@pytest.mark.parametrize("base", [2, 10])
@pytest.mark.parametrize(
    ("off", "cause"), [(0.0095, "other_base"), (-0.0095, "other_base"), (0.0105, "unknown"), (-0.0105, "unknown")]
)
def test_a_factor_is_that_of_another_base_within_a_hundredth(base, off, cause):
    policy = in_pairs()
    sample = sampled(policy * math.log(base) * (1 + off))
    assert diagnose_first_step([policy], [sample]).cause == cause


@pytest.mark.parametrize(("share", "cause"), [(0.049, "other_base"), (0.051, "unknown")])
def test_another_base_must_explain_all_but_a_twentieth_of_the_gap(share, cause):
    policy = in_pairs()
    factor = math.log(10)
    noise = share * (factor - 1) * np.abs(policy).mean() * np.tile([1, -1], len(policy) // 2)
    assert diagnose_first_step([policy], [sampled(policy * factor + noise)]).cause == cause


@pytest.mark.parametrize(("most", "asked"), [(0.99, True), (1.01, False)])
def test_logprobs_normalised_again_are_asked_about_where_none_rose_by_more_than_1_nat(most, asked):
    policy = in_pairs() - 2
    raised = 0.3 * np.random.default_rng(1).random(len(policy))
    raised[7] = most
    found = diagnose_first_step([policy], [sampled(policy + raised)])
    assert found.cause == "unknown"
    assert ("normalised again" in found.message) is asked


@pytest.mark.parametrize(
    ("share", "reason"), [(0.99, "is rounded so far"), (1.01, "the formula of one of the two is wrong")]
)
def test_a_large_loss_is_told_apart_from_a_wrong_gradient_by_four_roundings(share, reason):
    step = 2.0**-16
    blur = 4 * 2.0**-52 * 2.0**20 / step  # of a loss of 2**20 in float64, over the step
    with pytest.raises(sk.SampleError, match=reason):
        check_gradients(
            lambda rows, _: rows[0].sum() + 2.0**20, [torch.tensor([-0.5])], [sampled([-0.5])],
            gradients=[np.array([1 + share * blur])], step=step, rtol=0, atol=0,
        )  # fmt: skip
