"""Every loss that the service computes, against the reference and plain Python on the same weights."""

import copy

import numpy as np
import pytest
import torch
from loss_batches import LOSSES
from loss_oracle import loss_value

import samplekit as sk
from samplekit.server.loss_rules import GivenGradientRule, ReferenceRule
from samplekit.server.policy import NonFiniteError, Policy
from samplekit.server.settings import AdamSettings
from samplekit.training import closed_form_gradients, compute_loss, target_logprobs

LENGTHS = (5, 60, 33, 2, 41, 12)
FEW_TOKENS = 64  # a row group then holds one or two of them


@pytest.fixture(scope="module")
def batch(loaded):
    """Samples whose sampler and reference lie some tenths of a nat around the model."""
    rng = np.random.default_rng(11)
    return [sample_near(loaded.module, rng, length) for length in LENGTHS]


def sample_near(model, rng, length):
    tokens, mask = rng.integers(3, 2560, length + 1), np.arange(length + 1) > length // 4
    mask[length // 2] = length < 20  # an observation inside the longer ones
    with torch.no_grad():
        (found,) = target_logprobs(model, [sk.build_sample(tokens, np.ones(length + 1))])
    near = [np.minimum(np.append(0, found.numpy() + rng.normal(0, 0.3, length)), 0) for _ in range(2)]
    advantages = np.where(mask, rng.normal(size=length + 1), 0)
    return sk.build_sample(tokens, mask, advantages=advantages, logprobs=near[0], reference_logprobs=near[1])


@pytest.fixture
def policy(loaded, monkeypatch):
    monkeypatch.setattr("samplekit.server.policy.BATCH_TOKENS", FEW_TOKENS)
    return Policy(loaded)


def run(policy, samples, loss, backward=True):
    return policy.run(samples, ReferenceRule(samples, loss), backward=backward)


def gradient(model):
    """Every weight's gradient in one vector."""
    found = [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
    return torch.cat(found).double()


def assert_same_gradient(found, expected, share=1e-5):
    """They differ by at most a hundred-thousandth of the expected one's length."""
    assert float(expected.norm()) > 0
    assert float((found - expected).norm()) <= share * float(expected.norm())


@pytest.mark.parametrize("name", LOSSES)
def test_loss_metrics_and_gradient_equal_compute_loss_over_several_row_groups(loaded, policy, batch, name):
    plain = copy.deepcopy(loaded.module).requires_grad_(True)
    expected = compute_loss(target_logprobs(plain, batch), batch, LOSSES[name])
    expected.loss.backward()
    found = run(policy, batch, LOSSES[name])
    assert found.loss == pytest.approx(float(expected.loss.detach()), rel=1e-5, abs=1e-5)
    assert found.metrics == pytest.approx(expected.metrics, rel=1e-5, abs=1e-5)
    assert_same_gradient(gradient(policy.trained), gradient(plain))


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_what_plain_python_makes_of_the_models_logprobs(loaded, policy, batch, name):
    with torch.no_grad():
        rows = [item.tolist() for item in target_logprobs(loaded.module, batch)]
    found = run(policy, batch, LOSSES[name], backward=False)
    assert found.loss == pytest.approx(loss_value(LOSSES[name], rows, batch), rel=1e-5, abs=1e-5)
    for sample, ours, row in zip(batch, found.logprobs, rows, strict=True):
        np.testing.assert_allclose(ours, np.where(sample.weights != 0, row, 0), atol=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_the_order_of_samples_does_not_matter(loaded, policy, batch, name):
    order = [3, 0, 5, 2, 1, 4]
    mixed = [batch[index] for index in order]
    one, other = run(policy, batch, LOSSES[name], backward=False), run(policy, mixed, LOSSES[name], backward=False)
    assert other.loss == pytest.approx(one.loss, rel=1e-6)
    assert other.metrics == pytest.approx(one.metrics, rel=1e-6, abs=1e-9)
    for place, index in enumerate(order):
        np.testing.assert_allclose(other.logprobs[place], one.logprobs[index], atol=1e-5)


def test_row_groups_are_small_and_each_is_done_before_the_next(policy, batch, monkeypatch):
    passes, graphs = [], []
    whole = sk.GRPO(aggregation="token_mean", beta=0.2)

    def watched(model, inputs, targets, **options):
        assert all(is_spent(graph) for graph in graphs)
        found = real(model, inputs, targets, **options)
        graphs.append(found[0].sum())
        passes.append(len(inputs) * max(map(len, inputs)))
        return found

    from samplekit.server import policy as module

    real = module.batch_logprobs
    monkeypatch.setattr(module, "batch_logprobs", watched)
    run(policy, batch, whole)
    assert len(passes) >= 3
    assert max(passes) <= FEW_TOKENS


def is_spent(total):
    """Whether the activations behind a sum were let go by a backward pass."""
    try:
        torch.autograd.backward(total, retain_graph=True)
    except RuntimeError as error:
        return "second time" in str(error)
    return False


@pytest.mark.parametrize("name", [name for name in LOSSES if "grpo" in name])
def test_samples_that_do_not_train_change_nothing_when_scoring(policy, batch, name):
    silent = sk.Sample(
        batch[0].model_input, {**batch[0].loss_fn_inputs, "weights": sk.TensorData([0.0] * batch[0].length, "float32")}
    )
    found = run(policy, [silent, *batch[1:]], LOSSES[name], backward=False)
    expected = run(policy, batch[1:], LOSSES[name], backward=False)
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)
    assert found.metrics == pytest.approx(expected.metrics, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", ["ppo", "dro", "grpo, sequence, sequence_mean, beta 0.2"])
def test_the_closed_form_sent_as_a_gradient_does_what_the_loss_does(loaded, policy, batch, name):
    scored = run(policy, batch, LOSSES[name], backward=False).logprobs
    run(policy, batch, LOSSES[name])
    custom = Policy(loaded)
    custom.run(batch, GivenGradientRule(closed_form_gradients(scored, batch, LOSSES[name])), backward=True)
    assert_same_gradient(gradient(custom.trained), gradient(policy.trained))


def test_two_calls_add_up_each_with_the_normaliser_of_its_own_request(loaded, policy, batch):
    loss = sk.GRPO(aggregation="token_mean")
    run(policy, batch[:2], loss)
    run(policy, batch[2:], loss)
    plain = copy.deepcopy(loaded.module).requires_grad_(True)
    for part in (batch[:2], batch[2:]):
        compute_loss(target_logprobs(plain, part), part, loss).loss.backward()
    assert_same_gradient(gradient(policy.trained), gradient(plain))


def test_a_ratio_beyond_all_numbers_is_a_loss_that_is_not_finite_and_poisons_nothing(policy, batch):
    run(policy, batch, sk.PPO())
    before = gradient(policy.trained)
    far = sk.build_sample([5, 6, 7], [0, 1, 1], advantages=[0, -1, -1], logprobs=[0, -1e4, -1])
    with pytest.raises(NonFiniteError, match=r"loss of samples\[1\] is not finite.*far from the policy"):
        run(policy, [batch[0], far], sk.PPO())
    assert torch.equal(gradient(policy.trained), before)


def test_steps_raise_what_was_rewarded_and_lower_what_was_not(policy, batch):
    samples = batch[1:3]
    signs = [np.sign(item.loss_fn_inputs["advantages"].data) for item in samples]
    before = run(policy, samples, sk.ImportanceSampling()).logprobs
    policy.optim_step(AdamSettings(learning_rate=1e-3))
    after = run(policy, samples, sk.ImportanceSampling(), backward=False).logprobs
    gain = sum(float((sign * (new - old)).sum()) for sign, new, old in zip(signs, after, before, strict=True))
    assert gain > 0
