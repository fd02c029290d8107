"""Random batches: values against plain Python, gradients against autograd of the same formulas and against differences."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loss_batches import LOSSES, hand_sample, leaves, random_batch
from loss_oracle import loss_value, metric_values, sample_terms

import samplekit as sk
from samplekit.training import closed_form_gradients, compute_loss

NAMES = list(LOSSES)
SETTINGS = [
    {},
    {"horizon": 40},
    {"normalizer": 17},
    {"sequence_mean": "sums"},
    {"sequence_mean": "sums", "normalizer": 3, "kl": "k2"},
    {"kl": "k1"},
]


def close(found, expected, rtol=1e-9):
    return math.isclose(found, expected, rel_tol=rtol, abs_tol=1e-12)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_values_equal_the_plain_computation(name, settings):
    for seed in range(3):
        rows, samples = random_batch(seed)
        output = compute_loss(rows, samples, LOSSES[name], **settings)
        expected = loss_value(LOSSES[name], [row.tolist() for row in rows], samples, **settings)
        assert output.loss.dtype == torch.float64
        assert close(float(output.loss), expected)
        assert not close(float(output.loss), expected * 1.01)
        metrics = metric_values(LOSSES[name], [row.tolist() for row in rows], samples, settings.get("kl", "k3"))
        assert output.metrics == pytest.approx(metrics, rel=1e-9, abs=1e-12)
        for found, row, sample in zip(output.token_losses, rows, samples, strict=True):
            terms = np.zeros(sample.length)
            for place, term in sample_terms(LOSSES[name], row.tolist(), sample, settings.get("kl", "k3")):
                terms[place] = term
            np.testing.assert_allclose(found.numpy(), terms, rtol=1e-9, atol=1e-12)


def torch_loss(loss, rows, samples, settings):
    """The same formulas in torch operations alone, one sample at a time, so that autograd differentiates them."""
    total, kl, counts = torch.zeros((), dtype=torch.float64), settings.get("kl", "k3"), [s.num_trained for s in samples]
    for row, sample in zip(rows, samples, strict=True):
        places = torch.tensor(np.flatnonzero(sample.weights))
        lp = row[places]
        inputs = {n: torch.tensor(t.data.astype(np.float64))[places] for n, t in sample.loss_fn_inputs.items()}
        q, a, ref = (inputs[name] for name in ("logprobs", "advantages", "reference_logprobs"))
        r = (lp - q).exp()
        if getattr(loss, "ratio", "token") == "sequence":
            r = ((lp - q).mean().detach() + lp - lp.detach()).exp()
        kind = type(loss).__name__
        if kind == "CrossEntropy":
            terms = -inputs["weights"] * lp
        elif kind in ("ImportanceSampling", "DPPO"):
            terms = -r * a
            if kind == "DPPO":
                moved = lp.exp() - q.exp()
                bad = ((a > 0) & (moved > loss.delta_high)) | ((a < 0) & (-moved > loss.delta_low))
                terms = terms[~bad]
        elif kind == "CISPO":
            terms = -r.clamp(loss.clip_low, loss.clip_high).detach() * a * lp
        elif kind == "DRO":
            terms = -(lp * a - loss.beta / 2 * (lp - q) ** 2)
        else:
            terms = -torch.minimum(r * a, r.clamp(loss.clip_low, loss.clip_high) * a)
        if getattr(loss, "beta", 0) and kind == "GRPO":
            d = ref - lp
            terms = terms + loss.beta * {"k1": -d, "k2": d**2 / 2, "k3": d.exp() - d - 1}[kl]
        mean = getattr(loss, "aggregation", "") == "sequence_mean" and settings.get("sequence_mean") != "sums"
        total = total + (terms.mean() if mean else terms.sum())
    divisor = {"token_mean": sum(counts), "sequence_mean": len(samples)}.get(
        getattr(loss, "aggregation", ""), settings.get("horizon", 1 / len(samples)) * len(samples)
    )
    return total / settings.get("normalizer", divisor)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_equal_autograd_of_the_formulas(name, settings):
    rows, samples = random_batch(5, spread=0.4)
    ours, plain = leaves(rows), leaves(rows)
    compute_loss(ours, samples, LOSSES[name], **settings).loss.backward()
    torch_loss(LOSSES[name], plain, samples, settings).backward()
    closed = closed_form_gradients(rows, samples, LOSSES[name], **settings)
    for found, expected, array in zip(ours, plain, closed, strict=True):
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(torch.from_numpy(array), expected.grad, rtol=1e-9, atol=1e-12)
    assert any(row.grad.abs().sum() > 0 for row in plain)


DETACHED = [name for name in NAMES if name.startswith("cispo")]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in DETACHED])
def test_gradients_equal_differences_in_double(name):
    """One advantage a sample: where a sequence's ratio meets several, its gradient is each token's own by convention."""
    rows, samples = random_batch(2, (5, 3, 8), one_advantage=True)
    assert torch.autograd.gradcheck(
        lambda *given: compute_loss(given, samples, LOSSES[name]).loss, leaves(rows), eps=1e-7, atol=1e-6
    )


@pytest.mark.parametrize("name", DETACHED)
def test_cispo_differs_from_its_differences_for_its_weight_is_detached(name):
    rows, samples = random_batch(2, (5, 3, 8))
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(
            lambda *given: compute_loss(given, samples, LOSSES[name]).loss, leaves(rows), eps=1e-7, atol=1e-6
        )


def test_a_second_derivative_is_refused_rather_than_wrong():
    rows, samples = random_batch(0)
    given = leaves(rows)
    loss = compute_loss(given, samples, sk.DRO(beta=1)).loss
    for value, words in ((loss, "does not require grad"), (loss**2, "once_differentiable")):
        (first, *_) = torch.autograd.grad(value, given, create_graph=True)
        with pytest.raises(RuntimeError, match=words):
            first.sum().backward()


@given(
    st.lists(st.tuples(st.floats(-5, 0), st.floats(-5, 0), st.floats(-3, 3)), min_size=1, max_size=8),
    st.sampled_from(NAMES),
)
def test_any_three_numbers_give_what_the_formula_gives(numbers, name):
    policy, sampler, advantages = (list(values) for values in zip(*numbers, strict=True))
    sample = hand_sample([1] * len(numbers), advantages, sampler, sampler)
    found = compute_loss([torch.tensor(policy, dtype=torch.float64)], [sample], LOSSES[name])
    assert close(float(found.loss), loss_value(LOSSES[name], [policy], [sample]))


@pytest.mark.parametrize("length", [1, 40_000])
@pytest.mark.parametrize("name", ["ppo", "dppo", "grpo, sequence, sequence_mean, beta 0.2"])
def test_samples_longer_than_a_block_and_many_short_ones_are_all_counted(name, length):
    lengths = [length, 3, length + 1, *[5] * (7_000 if length == 1 else 3)]
    rows, samples = random_batch(1, lengths)
    found = compute_loss(rows, samples, LOSSES[name])
    lists, plain = [row.tolist() for row in rows], leaves(rows)
    assert close(float(found.loss), loss_value(LOSSES[name], lists, samples))
    assert found.metrics == pytest.approx(metric_values(LOSSES[name], lists, samples), rel=1e-9)
    torch_loss(LOSSES[name], plain, samples, {}).backward()
    closed = closed_form_gradients(rows, samples, LOSSES[name])
    np.testing.assert_allclose(np.concatenate(closed), torch.cat([row.grad for row in plain]), rtol=1e-9, atol=1e-12)
    assert found.num_trained == sum(sample.num_trained for sample in samples)
    assert len(found.token_losses) == len(samples)
