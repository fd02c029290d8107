"""Faults of losses met in the field (data/cases/open_cases.json) and the class each stands for."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from loss_batches import LOSSES, hand_sample

import samplekit as sk
from samplekit.training import compute_loss

PATH = Path(__file__).parents[1] / "data/cases/open_cases.json"
CASES = {case["id"]: case for case in json.loads(PATH.read_text(encoding="utf-8")) if case["kind"] == "loss"}


def given(case_id):
    return CASES[case_id]["input"]


def result(case_id):
    return CASES[case_id]["right"]["result"]


def run(rows, samples, loss, **settings):
    leaves = [torch.tensor(row, dtype=torch.float64, requires_grad=True) for row in rows]
    loss = compute_loss(leaves, samples, loss, **settings).loss
    loss.backward()
    return float(loss.detach()), [leaf.grad.tolist() for leaf in leaves]


def test_every_case_of_a_loss_is_tested_here():
    tested = set(re.findall(r"def test_(loss_\d\d)_", Path(__file__).read_text(encoding="utf-8")))
    assert {item.replace("_", "-") for item in tested} == set(CASES)


def from_ratios(log_ratios, advantages):
    samples = [
        hand_sample([1] * len(ratios), [advantage] * len(ratios), [-2.0] * len(ratios))
        for ratios, advantage in zip(log_ratios, advantages, strict=True)
    ]
    return [[-2.0 + ratio for ratio in ratios] for ratios in log_ratios], samples


def test_loss_01_a_sequences_ratio_is_one_term_a_sequence():
    case = given("loss-01")
    loss = sk.GRPO(clip_low=1 - case["eps"], clip_high=1 + case["eps"], aggregation="sequence_mean", ratio="sequence")
    value, _ = run(*from_ratios(case["log_ratio"], case["advantages"]), loss, sequence_mean="means")
    assert value == pytest.approx(result("loss-01"), abs=1e-6)


@pytest.mark.parametrize("repeats", [1, 2, 7, 500])
def test_loss_01_and_does_not_grow_with_length(repeats):
    loss = sk.GRPO(aggregation="sequence_mean", ratio="sequence")
    value, gradients = run(*from_ratios([[0.1] * repeats, [0.4, -0.2] * repeats], [1, 1]), loss)
    assert value == pytest.approx(-1.105171, abs=1e-6)
    assert sum(gradients[0]) == pytest.approx(-1.105171 / 2, abs=1e-6)


def weighted_terms(terms, weights):
    """Cross-entropy-like terms out of GRPO: with lp = q each position adds -A."""
    samples = [
        sk.Sample(
            sk.ModelInput.from_tokens(range(3, 3 + len(row))),
            {
                "target_tokens": sk.TensorData(range(4, 4 + len(row)), "int64"),
                "weights": sk.TensorData(weight, "float32"),
                "advantages": sk.TensorData([-term for term in row], "float32"),
                "logprobs": sk.TensorData([-1.0] * len(row), "float32"),
            },
        )
        for row, weight in zip(terms, weights, strict=True)
    ]
    return [[-1.0] * len(row) for row in terms], samples


def test_loss_03_what_leaves_the_numerator_leaves_the_denominator():
    case = given("loss-03")
    value, _ = run(*weighted_terms(case["per_token_loss"], case["weights"]), sk.GRPO(aggregation="token_mean"))
    assert value == result("loss-03")


@pytest.mark.parametrize("sequence_mean", ["means", "sums"])
@pytest.mark.parametrize("masked", [1, 2, 5])
def test_loss_03_in_every_mean_and_however_much_is_masked(masked, sequence_mean):
    terms = [[1.0, 1.0, 1.0], *[[5.0, 5.0]] * masked]
    batch = weighted_terms(terms, [[1, 1, 1], *[[0, 0]] * masked])
    each = 1.0 if sequence_mean == "means" else 3.0
    assert run(*batch, sk.GRPO(aggregation="token_mean"))[0] == 1.0
    assert run(*batch, sk.GRPO(aggregation="sequence_mean"), sequence_mean=sequence_mean)[0] == each
    partly = weighted_terms([[1.0, 9.0], [3.0, 3.0]], [[1, 0], [1, 1]])
    assert run(*partly, sk.GRPO(aggregation="token_mean"))[0] == pytest.approx(7 / 3)


@pytest.mark.parametrize("name", LOSSES)
def test_loss_03_where_nothing_trains_the_loss_is_0_and_says_so(name):
    rows, samples = weighted_terms([[1.0, 1.0], [5.0]], [[0, 0], [0]])
    samples = [
        sk.Sample(item.model_input, {**item.loss_fn_inputs, "reference_logprobs": item.loss_fn_inputs["logprobs"]})
        for item in samples
    ]
    value, gradients = run(rows, samples, LOSSES[name])
    output = compute_loss([torch.tensor(row) for row in rows], samples, LOSSES[name])
    assert value == 0.0
    assert gradients == [[0, 0], [0]]
    assert (output.num_trained, output.metrics) == (0, {})


@pytest.mark.parametrize("place", [0, 1, 5])
@pytest.mark.parametrize("extreme", [-1e10, -1e30, 0.0])
@pytest.mark.parametrize("name", LOSSES)
def test_loss_05_an_overflow_at_a_masked_position_is_never_computed(name, extreme, place):
    weights, sampler = np.ones(6), np.full(6, -0.1)
    weights[place], sampler[place] = 0, extreme
    sample = hand_sample(weights.tolist(), [1.0] * 6, sampler.tolist(), sampler.tolist())
    value, (gradient,) = run([[-0.1] * place + [0.0] + [-0.1] * (5 - place)], [sample], LOSSES[name])
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    assert gradient[place] == 0
    assert np.count_nonzero(gradient) == 5


def test_loss_05_as_it_was_met():
    case = given("loss-05")
    sample = hand_sample(case["weights"], case["advantages"], case["logprobs_old"])
    value, (gradient,) = run([case["logprobs_new"]], [sample], sk.ImportanceSampling())
    assert value == pytest.approx(result("loss-05"), abs=1e-6)  # -0.1 is rounded to float32
    assert gradient[1] == 0


def test_loss_07_a_weight_multiplies_once():
    case = given("loss-07")
    value, _ = run([case["target_logprobs"]], [hand_sample(case["weights"])], sk.CrossEntropy())
    assert value == result("loss-07")


@pytest.mark.parametrize("weight", [0.25, 0.5, 2.0, -0.5, 3.0])
def test_loss_07_whatever_the_weight(weight):
    value, (gradient,) = run([[-2.0, -1.0]], [hand_sample([weight, 1.0])], sk.CrossEntropy())
    assert value == 2 * weight + 1
    assert gradient == [-weight, -1]


def test_loss_09_the_horizon_is_what_the_caller_says():
    case = given("loss-09")
    rows, samples = weighted_terms(case["per_token_loss"], [[1] * len(row) for row in case["per_token_loss"]])
    loss = sk.GRPO(aggregation="fixed_horizon")
    assert run(rows, samples, loss, horizon=case["L"])[0] == result("loss-09")


@pytest.mark.parametrize("width", given("loss-09")["padded_widths"])
@pytest.mark.parametrize("loss", [sk.GRPO(), sk.PPO(), sk.ImportanceSampling()])
def test_loss_09_for_every_width_and_size_of_micro_batch(loss, width):
    terms = [[1.0, 1.0], [1.0] * 4, [2.0]]
    padded = [row + [9.0] * (width - len(row)) for row in terms]
    weights = [[1] * len(row) + [0] * (width - len(row)) for row in terms]
    rows, samples = weighted_terms(padded, weights)
    assert run(rows, samples, loss, horizon=8)[0] == pytest.approx(8 / 24)
    in_parts = [run(rows[i : i + size], samples[i : i + size], loss, normalizer=24)[0] for i, size in ((0, 1), (1, 2))]
    assert sum(in_parts) == pytest.approx(8 / 24)
