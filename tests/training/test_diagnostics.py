"""How far policy and sampler are apart, and what is wrong where they should be one."""

import json
import math

import numpy as np
import pytest
import torch
from loss_batches import hand_sample, random_batch, renamed, replaced

import samplekit as sk
from samplekit.server import load_model
from samplekit.training import compute_loss, diagnose_first_step, policy_diagnostics, target_logprobs

LN2 = math.log(2)


def test_three_numbers_by_hand():
    # log ratios ln 2, -ln 2, 0
    sample = hand_sample([1, 1, 1], [1.0, 1.0, -1.0], [-2.0, -2.0, -2.0])
    found = policy_diagnostics([np.array([-2 + LN2, -2 - LN2, -2.0])], [sample])
    assert found == pytest.approx(
        {
            "loss/ratio/mean": 3.5 / 3, "loss/ratio/min": 0.5, "loss/ratio/max": 2,
            "loss/kl_policy/k1": 0, "loss/kl_policy/k2": LN2**2 / 3, "loss/kl_policy/k3": 0.5 / 3,
            "loss/log_ratio/abs_mean": 2 * LN2 / 3, "loss/log_ratio/abs_max": LN2,
            "loss/clip/high_fraction": 1 / 3, "loss/clip/low_fraction": 0,
        }
    )  # fmt: skip
    assert json.loads(json.dumps(found)) == found  # plain floats


@pytest.mark.parametrize("junk", [float("nan"), float("-inf"), 1e9])
def test_they_are_those_of_the_losses_and_read_no_masked_position(junk):
    rows, samples = random_batch(0)
    spoilt = [torch.where(torch.tensor(item.weights == 0), junk, row) for row, item in zip(rows, samples, strict=True)]
    found = policy_diagnostics(spoilt, samples, clip_low=0.9, clip_high=1.1)
    metrics = compute_loss(rows, samples, sk.PPO(clip_low=0.9, clip_high=1.1)).metrics
    assert found["loss/kl_policy/k3"] == pytest.approx(metrics.pop("loss/kl_policy/mean"), rel=1e-9)
    assert {name: found[name] for name in metrics} == pytest.approx(metrics, rel=1e-9)


def test_without_advantages_nothing_counts_as_clipped_and_without_training_there_is_nothing():
    sample = hand_sample([1, 1], None, [-1.0, -1.0])
    assert not [name for name in policy_diagnostics([torch.zeros(2)], [sample]) if "clip" in name]
    assert policy_diagnostics([torch.zeros(2)], [replaced(sample, weights=[0.0, 0.0])]) == {}
    with pytest.raises(sk.LossInputError, match=r"samples\[0\].*'logprobs'"):
        policy_diagnostics([torch.zeros(2)], [hand_sample([1, 1])])


@pytest.fixture(scope="module")
def model():
    return load_model().module


@pytest.fixture(scope="module")
def drawn(model):
    """Sequences that the model drew, after 5 tokens of a prompt."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 2000, (3, 5), generator=generator)
    with torch.no_grad():
        for _ in range(60):
            shares = model(ids).logits[:, -1].softmax(-1)
            ids = torch.cat([ids, torch.multinomial(shares, 1, generator=generator)], 1)
    return [row[: 65 - 10 * index].numpy() for index, row in enumerate(ids)]


def sampled(model, drawn, temperature=1.0, shift=0, noise=0.0):
    """Samples with the model's logprobs at a temperature, moved by some positions."""
    rng = np.random.default_rng(1)
    samples = []
    for tokens in drawn:
        mask = [0] * 5 + [1] * (len(tokens) - 5)
        (found,) = rows_of(model, [sk.build_sample(tokens, mask)], temperature)
        full = np.append(0.0, found.numpy() + rng.normal(0, noise, len(found)))
        samples.append(sk.build_sample(tokens, mask, logprobs=np.minimum(np.roll(full, shift), 0)))
    return samples


def rows_of(model, samples, temperature=1.0):
    with torch.no_grad():
        return target_logprobs(model, samples, temperature=temperature)


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_the_first_step_is_well_where_ratios_are_1(model, drawn, noise):
    samples = sampled(model, drawn, noise=noise)
    found = diagnose_first_step(rows_of(model, samples), samples)
    assert (found.ok, found.cause) == (True, "none")
    assert found.metrics["loss/ratio/mean"] == pytest.approx(1, abs=0.01)
    assert found.message.startswith("ratios are 1")


@pytest.mark.parametrize(("shift", "cause"), [(1, "shifted_late"), (-1, "shifted_early")])
def test_logprobs_that_are_off_by_one_are_told(model, drawn, shift, cause):
    samples = sampled(model, drawn, shift=shift)
    found = diagnose_first_step(rows_of(model, samples), samples)
    assert (found.ok, found.cause) == (False, cause)
    moved = "earlier" if shift == 1 else "later"
    assert f"if the sampler's are moved one position {moved}" in found.message
    assert "build_sample" in found.message


@pytest.mark.parametrize("temperature", [0.5, 0.7, 1.4])
def test_another_temperature_is_told_by_its_logprobs(model, drawn, temperature):
    samples = sampled(model, drawn, temperature=temperature)
    others = {item: rows_of(model, samples, item) for item in (0.5, 0.7, 0.9, 1.4)}
    found = diagnose_first_step(rows_of(model, samples), samples, at_temperatures=others)
    assert (found.ok, found.cause) == (False, "temperature")
    assert f"taken at temperature {temperature:g}" in found.message


def test_other_weights_are_no_shift_and_no_temperature(model, drawn):
    samples = sampled(model, drawn)
    rng = np.random.default_rng(0)
    strangers = [torch.tensor(-rng.exponential(7.0, item.length)) for item in samples]
    others = {0.5: rows_of(model, samples, 0.5)}
    found = diagnose_first_step(strangers, [renamed(item, "mask") for item in samples])
    assert (found.ok, found.cause) == (False, "unknown")
    assert "are the weights the sampler's?" in found.message
    assert diagnose_first_step(others[0.5], samples).ok is False


def test_nothing_to_compare_is_not_well():
    sample = replaced(hand_sample([1, 1], None, [-1.0, -1.0]), weights=[0.0, 0.0])
    found = diagnose_first_step([torch.zeros(2)], [sample])
    assert (found.ok, found.cause, found.metrics) == (False, "nothing_trained", {})
    assert "no position of 1 samples trains" in found.message


@pytest.mark.parametrize(("change", "index"), [(lambda row: -row, 0), (np.exp, 0), (lambda row: row * 0 + 0.002, 1)])
@pytest.mark.parametrize("whose", ["policy", "sampler", "tried"])
def test_what_is_above_0_where_it_trains_is_no_natural_log_and_told_first(change, index, whose):
    rows, samples = random_batch(0, spread=0.0)
    plain, labels = list(rows), {
        "policy": f"policy_logprobs[{index}]", "sampler": f"samples[{index}].loss_fn_inputs['logprobs']",
        "tried": f"at_temperatures[0.5][{index}]",
    }  # fmt: skip
    wrong = torch.tensor(change(rows[index].numpy()))
    tried = {0.5: plain}
    if whose == "policy":
        rows[index] = wrong
    elif whose == "sampler":
        samples[index] = replaced(samples[index], logprobs=wrong.numpy())
        rows[index] = wrong  # they agree, and are no logs all the same
    else:
        tried = {0.5: [wrong if place == index else row for place, row in enumerate(plain)]}
        samples[0] = replaced(samples[0], logprobs=rows[0].numpy() - 1)
    found = diagnose_first_step(rows, samples, at_temperatures=tried)
    assert (found.ok, found.cause) == (False, "unknown")
    label = labels["policy"] if whose == "sampler" else labels[whose]
    assert found.message.startswith(f"{label} is ")
    assert "are they negated, or probabilities?" in found.message


def test_the_samplers_own_values_above_0_are_told_too():
    sample = replaced(hand_sample([1, 1]), logprobs=[-1.0, 0.5])
    found = diagnose_first_step([np.array([-1.0, -0.5])], [sample])
    assert found.message.startswith("samples[0].loss_fn_inputs['logprobs'] is 0.5 at position 1")


@pytest.mark.parametrize("junk", [0.5, 1e9])
def test_values_above_0_that_do_not_train_and_roundings_say_nothing(junk):
    sample = hand_sample([0, 1, 1], None, [0.0, -1.0, 0.001])
    assert diagnose_first_step([np.array([junk, -1.0, 0.001])], [sample]).ok


@pytest.mark.parametrize(("base", "spelled"), [(10, "log10"), (2, "log2")])
@pytest.mark.parametrize("noise", [0.0, 0.005])
@pytest.mark.parametrize("side", ["policy", "sampler"])
def test_another_base_of_the_logarithm_is_no_temperature(base, spelled, noise, side):
    rows, samples = random_batch(0, spread=0.0)
    rng = np.random.default_rng(0)
    shaken = [np.minimum(row.numpy() + rng.normal(0, noise, len(row)), 0) for row in rows]
    if side == "policy":
        shaken = [row / math.log(base) for row in shaken]
    else:
        samples = [replaced(item, logprobs=item.loss_fn_inputs["logprobs"].data / math.log(base)) for item in samples]
    found = diagnose_first_step(shaken, samples)
    assert (found.ok, found.cause) == (False, "other_base")
    assert "another base of the logarithm" in found.message
    assert f"the {side}'s are {spelled}, pass natural logs" in found.message


@pytest.mark.parametrize("factor", [0.0, 0.05, 10.0, 100.0])
def test_a_factor_that_no_temperature_has_is_not_called_one(factor):
    rows, samples = random_batch(0, spread=0.0)
    odd = [replaced(item, logprobs=factor * item.loss_fn_inputs["logprobs"].data) for item in samples]
    found = diagnose_first_step(rows, odd)
    assert (found.ok, found.cause) == (False, "unknown")
    assert "at_temperatures=" in found.message
    assert "likely" not in found.message
