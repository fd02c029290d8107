import copy

import numpy as np
import pytest
import torch

from samplekit import CrossEntropy, build_sample
from samplekit.server.loss_rules import GivenGradientRule, ReferenceRule
from samplekit.server.policy import NoGradientError, NonFiniteError, Policy
from samplekit.server.settings import AdamSettings, LoraSettings


def plain_loss(model, samples):
    """The sum of -w * logprob, one sample at a time."""
    total = torch.zeros((), dtype=torch.float64)
    for sample in samples:
        logits = model(torch.tensor(sample.model_input.tokens.copy())[None]).logits[0]
        targets = torch.tensor(sample.loss_fn_inputs["target_tokens"].data.copy())
        logprobs = torch.log_softmax(logits, -1).gather(-1, targets[:, None])[:, 0]
        total = total - (logprobs.double() * torch.tensor(sample.weights.copy()).double()).sum()
    return total


def trainable(policy):
    return {name: weight for name, weight in policy.trained.named_parameters() if weight.requires_grad}


def train(policy, samples):
    return policy.run(samples, ReferenceRule(samples, CrossEntropy()), backward=True)


def weighted_samples():
    rng = np.random.default_rng(3)
    weights = [[0, 0, 1, 1, 1], [0, 0.25, 0, 1.5], [0, *[1] * 60]]
    return [build_sample(rng.integers(3, 2560, len(mask)), mask) for mask in weights]


def test_loss_and_gradient_equal_plain_torch_on_the_same_weights(loaded):
    policy, samples = Policy(loaded), weighted_samples()
    outcome = train(policy, samples)
    plain = copy.deepcopy(loaded.module).requires_grad_(True)
    expected = plain_loss(plain, samples)
    expected.backward()
    assert outcome.loss == pytest.approx(float(expected.detach()), rel=1e-6)
    for name, weight in plain.named_parameters():
        torch.testing.assert_close(trainable(policy)[name].grad, weight.grad, atol=1e-4, rtol=1e-3)


def test_reported_logprobs_give_the_loss_back(loaded):
    policy, samples = Policy(loaded), weighted_samples()
    outcome = policy.run(samples, ReferenceRule(samples, CrossEntropy()), backward=False)
    total = -sum(float((item.weights * found).sum()) for item, found in zip(samples, outcome.logprobs, strict=True))
    assert outcome.loss == pytest.approx(total, rel=1e-6)


def test_forward_alone_leaves_no_gradient(loaded):
    policy, samples = Policy(loaded), weighted_samples()
    policy.run(samples, ReferenceRule(samples, CrossEntropy()), backward=False)
    assert all(weight.grad is None for weight in trainable(policy).values())


def test_two_calls_accumulate_what_one_large_batch_gives(loaded, make_samples):
    samples = make_samples([12, 30, 7, 50])
    together, apart = Policy(loaded), Policy(loaded)
    train(together, samples)
    train(apart, samples[:1])
    train(apart, samples[1:])
    for name, weight in trainable(together).items():
        torch.testing.assert_close(trainable(apart)[name].grad, weight.grad, atol=1e-4, rtol=1e-4)


def test_groups_of_like_length_change_no_gradient(loaded, make_samples, monkeypatch):
    samples = make_samples([5, 60, 33, 2, 41])
    whole = Policy(loaded)
    train(whole, samples)
    monkeypatch.setattr("samplekit.server.policy.BATCH_TOKENS", 64)
    grouped = Policy(loaded)
    train(grouped, samples)
    for name, weight in trainable(whole).items():
        torch.testing.assert_close(trainable(grouped)[name].grad, weight.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("clip", [0.0, 1.0, 1e6])
def test_steps_equal_torch_adamw(loaded, make_samples, clip):
    samples = make_samples([12, 30])
    policy = Policy(loaded)
    plain = copy.deepcopy(loaded.module).requires_grad_(True)
    adam = torch.optim.AdamW(plain.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    for number in (1, 2, 3):
        train(policy, samples)
        for name, weight in plain.named_parameters():
            weight.grad = trainable(policy)[name].grad.clone()
        assert policy.optim_step(AdamSettings(learning_rate=1e-3, weight_decay=0.1, grad_clip_norm=clip)) == number
        if clip:
            torch.nn.utils.clip_grad_norm_(plain.parameters(), clip)
        adam.step()
    for name, weight in plain.named_parameters():
        torch.testing.assert_close(trainable(policy)[name], weight, atol=1e-7, rtol=1e-6)


def test_the_first_adam_step_moves_every_weight_by_the_learning_rate(loaded, make_samples):
    policy = Policy(loaded)
    train(policy, make_samples([20]))
    before = {name: weight.detach().clone() for name, weight in trainable(policy).items()}
    signs = {name: weight.grad.sign() for name, weight in trainable(policy).items()}
    large = {name: weight.grad.abs() > 1e-4 for name, weight in trainable(policy).items()}  # eps does not matter there
    policy.optim_step(AdamSettings(learning_rate=1e-3, grad_clip_norm=0.0))
    for name, weight in trainable(policy).items():
        moved = (weight.detach() - before[name])[large[name]]
        torch.testing.assert_close(moved, -1e-3 * signs[name][large[name]], atol=2e-6, rtol=1e-3)


def test_a_step_clears_gradients_and_the_base_model_never_changes(loaded, make_samples):
    original = {name: weight.clone() for name, weight in loaded.module.named_parameters()}
    policy = Policy(loaded)
    train(policy, make_samples([20]))
    policy.optim_step(AdamSettings(learning_rate=1e-2))
    assert all(weight.grad is None for weight in trainable(policy).values())
    for name, weight in loaded.module.named_parameters():
        assert torch.equal(weight, original[name])
        assert weight.grad is None


def test_a_step_needs_a_gradient_and_one_of_zeros_is_one(loaded):
    policy, samples = Policy(loaded), weighted_samples()
    with pytest.raises(NoGradientError, match="no gradient was accumulated"):
        policy.optim_step(AdamSettings(learning_rate=1e-2))
    policy.run(samples, ReferenceRule(samples, CrossEntropy()), backward=False)
    with pytest.raises(NoGradientError):
        policy.optim_step(AdamSettings(learning_rate=1e-2))
    policy.run(samples, GivenGradientRule([0 * item.weights for item in samples]), backward=True)
    assert policy.optim_step(AdamSettings(learning_rate=1e-2)) == 1
    with pytest.raises(NoGradientError):
        policy.optim_step(AdamSettings(learning_rate=1e-2))


def test_training_lowers_the_loss(loaded, make_samples):
    policy, samples = Policy(loaded), make_samples([30, 20])
    losses = []
    for _ in range(8):
        losses.append(train(policy, samples).loss)
        policy.optim_step(AdamSettings(learning_rate=3e-3))
    assert losses[-1] < 0.9 * losses[0]


def test_a_given_gradient_is_used_as_it_is(loaded):
    samples = weighted_samples()
    usual, custom = Policy(loaded), Policy(loaded)
    train(usual, samples)
    rule = GivenGradientRule([-item.weights for item in samples])  # the gradient of cross-entropy
    custom.run(samples, rule, backward=True)
    for name, weight in trainable(usual).items():
        torch.testing.assert_close(trainable(custom)[name].grad, weight.grad)


def test_a_loss_that_is_not_finite_is_named_and_poisons_nothing(loaded, make_samples):
    good = make_samples([12, 30])
    huge = build_sample(good[0].tokens, [0, *[3e38] * 12])
    disturbed, calm = Policy(loaded), Policy(loaded)
    for policy in (disturbed, calm):
        train(policy, good)
    broken = build_sample(good[0].tokens, [0, *[3e38] * 12])
    with pytest.raises(NonFiniteError, match=r"gradient|samples"):
        train(disturbed, [good[1], huge, broken])
    for name, weight in trainable(calm).items():
        assert torch.equal(trainable(disturbed)[name].grad, weight.grad)
    for policy in (disturbed, calm):
        policy.optim_step(AdamSettings(learning_rate=1e-3))
    for name, weight in trainable(calm).items():
        assert torch.equal(trainable(disturbed)[name], weight)


def test_a_model_that_gives_nan_names_the_samples(loaded, make_samples):
    policy = Policy(loaded)
    with torch.no_grad():
        policy.trained.get_input_embeddings().weight[5] = float("nan")
    samples = [*make_samples([4]), build_sample([5, 6, 7], [0, 1, 1])]
    with pytest.raises(NonFiniteError, match=r"samples\["):
        train(policy, samples)
    assert all(weight.grad is None for weight in trainable(policy).values())


def test_the_generator_keeps_its_weights_until_they_are_synced(loaded, make_samples):
    policy = Policy(loaded)
    train(policy, make_samples([20]))
    policy.optim_step(AdamSettings(learning_rate=1e-2))
    served, trained = dict(policy.served.named_parameters()), dict(policy.trained.named_parameters())
    assert policy.version == 0
    assert not torch.equal(served["model.embed_tokens.weight"], trained["model.embed_tokens.weight"])
    assert policy.sync() == 1
    for name, weight in served.items():
        assert torch.equal(weight, trained[name])


# LoRA


def adapted(policy):
    return {name for name, _ in policy.trained.named_parameters() if "lora_" in name}


def test_lora_starts_as_the_base_model_and_changes_only_adapters(loaded, make_samples):
    samples = make_samples([20, 9])
    policy = Policy(loaded, LoraSettings(rank=4, seed=7))
    assert train(policy, samples).loss == pytest.approx(float(plain_loss(loaded.module, samples)), rel=1e-6)
    assert set(trainable(policy)) == adapted(policy)
    before = {name: weight.detach().clone() for name, weight in policy.trained.named_parameters()}
    policy.optim_step(AdamSettings(learning_rate=1e-2))
    train(policy, samples)  # the second factor starts at 0, so the first gets a gradient only now
    policy.optim_step(AdamSettings(learning_rate=1e-2))
    for name, weight in policy.trained.named_parameters():
        assert torch.equal(weight, before[name]) == ("lora_" not in name), name


def test_lora_settings_are_honoured(loaded):
    policy = Policy(loaded, LoraSettings(rank=4, alpha=12, train_unembed=True))
    ranks = {weight.shape[0] for name, weight in trainable(policy).items() if "lora_A" in name}
    assert ranks == {4}
    assert policy.trained.base_model.model.lm_head.scaling["default"] == 3.0  # alpha / rank
    without = Policy(loaded, LoraSettings(rank=4, train_unembed=False))
    assert any("lm_head" in name for name in adapted(policy))
    assert not any("lm_head" in name for name in adapted(without))


def test_lora_seeds_repeat_and_differ(loaded):
    first, again, other = (Policy(loaded, LoraSettings(seed=seed)) for seed in (1, 1, 2))
    factors = [trainable(policy)["base_model.model.lm_head.lora_A.default.weight"] for policy in (first, again, other)]
    assert torch.equal(factors[0], factors[1])
    assert not torch.equal(factors[0], factors[2])


def test_lora_dropout_acts_in_training_only_and_repeats(loaded, make_samples):
    samples = make_samples([20])
    runs = []
    for _ in range(2):
        policy = Policy(loaded, LoraSettings(dropout=0.5, seed=3))
        train(policy, samples)
        policy.optim_step(AdamSettings(learning_rate=1e-1))
        scored = policy.run(samples, ReferenceRule(samples, CrossEntropy()), backward=False).loss
        again = policy.run(samples, ReferenceRule(samples, CrossEntropy()), backward=False).loss
        runs.append((scored, again, train(policy, samples).loss, train(policy, samples).loss))
    assert runs[0] == runs[1]
    scored, again, dropped, dropped_otherwise = runs[0]
    assert scored == again
    assert len({scored, dropped, dropped_otherwise}) == 3


def test_sessions_share_the_base_and_nothing_else(loaded, make_samples):
    first, second = Policy(loaded, LoraSettings(rank=2)), Policy(loaded, LoraSettings(rank=2))
    frozen = next(weight for name, weight in first.trained.named_parameters() if "embed_tokens" in name)
    assert frozen.data_ptr() == loaded.module.get_input_embeddings().weight.data_ptr()
    train(first, make_samples([20]))
    first.optim_step(AdamSettings(learning_rate=1e-1))
    for name, weight in trainable(second).items():
        assert weight.grad is None
        assert not torch.equal(weight, trainable(first)[name]) or "lora_A" in name
