"""Every loss through client and local service, against the reference on a copy of the service's weights."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from loss_batches import LOSSES
from loss_oracle import loss_value

import samplekit as sk
from samplekit.client import Client
from samplekit.server import LocalService
from samplekit.training import closed_form_gradients, compute_loss, target_logprobs

# An epsilon of 1 keeps Adam's step nearly proportional to the gradient: with the usual one, rounding decides the sign of
# a step wherever the gradient is nearly 0.
STEP = {"learning_rate": 1e-2, "eps": 1.0, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.0, "grad_clip_norm": 0.0}
ON_POLICY = {name: loss for name, loss in LOSSES.items() if "beta 0.2" not in name and name != "cross_entropy"}


@pytest.fixture(scope="module")
def service():
    with LocalService() as running:
        yield running


@pytest.fixture(scope="module")
def client(service):
    with Client(base_url=service.url) as found:
        yield found


@pytest.fixture(autouse=True)
def _several_row_groups(monkeypatch):
    monkeypatch.setattr("samplekit.server.policy.BATCH_TOKENS", 48)


def weights_of(service, session):
    """The weights that a session trains."""
    return service.service.sessions[session.id].policy.trained


def near_policy(model, lengths=(6, 31, 17, 40, 3)):
    """Samples whose logprobs lie a few tenths of a nat around the model's."""
    rng = np.random.default_rng(2)
    samples = []
    for length in lengths:
        tokens, mask = rng.integers(3, 2560, length + 1), np.arange(length + 1) > length // 3
        with torch.no_grad():
            (found,) = target_logprobs(model, [sk.build_sample(tokens, mask)])
        near = [np.append(0, np.minimum(found.numpy() + rng.normal(0, 0.3, length), 0)) for _ in range(2)]
        advantages = np.where(mask, rng.normal(size=length + 1), 0)
        samples.append(
            sk.build_sample(tokens, mask, advantages=advantages, logprobs=near[0], reference_logprobs=near[1])
        )
    return samples


def stepped(model, samples, loss):
    """Losses and weights after one step of plain torch."""
    plain = copy.deepcopy(model).requires_grad_(requires_grad=True)
    output = compute_loss(target_logprobs(plain, samples), samples, loss)
    output.loss.backward()
    adam = torch.optim.AdamW(plain.parameters(), lr=STEP["learning_rate"], betas=(0.9, 0.95), eps=1.0, weight_decay=0.0)
    adam.step()
    return output, plain


def flat(model):
    return torch.cat([weight.detach().flatten() for weight in model.parameters()]).double()


def assert_same_step(found, expected, start):
    """The weights moved, and the moves differ by at most a ten-thousandth of their length."""
    moved = flat(expected) - flat(start)
    assert float(moved.norm()) > 1e-3
    assert float((flat(found) - flat(expected)).norm()) <= 1e-4 * float(moved.norm())
    assert float((flat(found) - flat(expected)).abs().max()) <= 1e-5


@pytest.mark.parametrize("name", LOSSES)
def test_loss_metrics_and_one_step_equal_plain_torch(client, service, name):
    with client.session() as session:
        start = copy.deepcopy(weights_of(service, session))
        samples = near_policy(start)
        result = session.forward_backward(samples, LOSSES[name], return_logprobs=True)
        session.optim_step(**STEP).result()
        found = result.result()
        expected, plain = stepped(start, samples, LOSSES[name])
        assert found.loss == pytest.approx(float(expected.loss.detach()), rel=1e-5, abs=1e-5)
        assert found.metrics == pytest.approx(expected.metrics, rel=1e-5, abs=1e-5)
        rows = [item.tolist() for item in found.logprobs]
        assert found.loss == pytest.approx(loss_value(LOSSES[name], rows, samples), rel=1e-5, abs=1e-5)
        assert_same_step(weights_of(service, session), plain, start)


@pytest.mark.parametrize("name", ["cispo", "grpo, sequence, token_mean, beta 0.2"])
def test_a_gradient_of_the_reference_steps_as_the_services_own(client, service, name):
    with client.session() as session:
        start = copy.deepcopy(weights_of(service, session))
        samples = near_policy(start)
        scored = session.forward(samples, LOSSES[name]).result().logprobs
        session.custom_forward_backward(samples, closed_form_gradients(scored, samples, LOSSES[name]))
        session.optim_step(**STEP).result()
        assert_same_step(weights_of(service, session), stepped(start, samples, LOSSES[name])[1], start)


def fewer_than_1000(completion):
    return float(np.mean(np.asarray(completion.tokens) < 1000))


def rewarded(session, **options):
    """Groups of completions of several lengths, scored."""
    settings = {"num_samples": 4, "max_tokens": 7, "seed": 5, **options}
    found = [*session.generate([[5, 6, 7], [8, 9]], **settings).result()]
    found += session.generate([[31] * 20], **{**settings, "max_tokens": 15}).result()
    return [group.with_rewards(fewer_than_1000) for group in found]


@pytest.mark.parametrize("name", ON_POLICY)
def test_on_policy_every_ratio_is_1_and_nothing_is_clipped(client, name):
    with client.session() as session:
        samples = sk.build_grpo_samples(rewarded(session))
        assert len(samples) >= 8
        result = session.forward(samples, ON_POLICY[name]).result()
    assert result.metrics["loss/ratio/mean"] == pytest.approx(1, abs=1e-4)
    assert result.metrics["loss/kl_policy/mean"] == pytest.approx(0, abs=1e-4)
    fractions = {value for key, value in result.metrics.items() if "/clip/" in key}
    assert fractions <= {0.0}


def test_on_policy_a_sum_is_minus_the_sum_of_advantages(client):
    with client.session() as session:
        samples = sk.build_grpo_samples(rewarded(session))[:3]
        result = session.forward(samples, sk.ImportanceSampling()).result()
    total = sum(float(item.loss_fn_inputs["advantages"].data.sum(dtype=np.float64)) for item in samples)
    assert abs(total) > 1
    assert result.loss == pytest.approx(-total, rel=1e-4)


@pytest.mark.filterwarnings("ignore:.*temperature")
def test_at_another_temperature_policies_differ_but_the_logprobs_are_those_of_that_temperature(client, service):
    with client.session() as session:
        samples = sk.build_grpo_samples(rewarded(session, temperature=0.3))
        result = session.forward(samples, sk.GRPO()).result()
        with torch.no_grad():
            rows = target_logprobs(weights_of(service, session), samples, temperature=0.3)
    # the mean of p / q under q is 1 whatever p is, so only the divergence tells
    assert result.metrics["loss/kl_policy/mean"] > 0.05
    for row, sample in zip(rows, samples, strict=True):
        trained = sample.weights != 0
        np.testing.assert_allclose(row[trained], sample.loss_fn_inputs["logprobs"].data[trained], atol=1e-4)


def test_what_the_loss_does_not_read_is_ignored_and_what_it_lacks_is_named(client, service):
    samples = near_policy(service.service.model.module)
    without = sk.build_sample(samples[0].tokens, [0, *samples[0].weights])
    with client.session() as session:
        both = [session.forward([item], sk.CrossEntropy()).result().loss for item in (samples[0], without)]
        assert both[0] == both[1]
        with pytest.raises(sk.SampleError, match=r"samples\[1\].*'advantages'"):
            session.forward([samples[0], without], sk.PPO())


def test_the_loop_of_a_policy_raises_its_reward(client):
    rewards = []
    with client.session(lora_rank=8, lora_seed=1) as session:
        for step in range(12):
            found = session.generate([[5, 6, 7], [8, 9]], num_samples=16, max_tokens=8, seed=step).result()
            groups = [group.with_rewards(fewer_than_1000) for group in found]
            rewards.append(np.mean([item.reward for group in groups for item in group.completions]))
            if samples := sk.build_grpo_samples(groups):
                session.forward_backward(samples, sk.GRPO())
                session.optim_step(learning_rate=2e-2)
                session.weights_sync().result()
    assert rewards[-1] > rewards[0] + 0.2
