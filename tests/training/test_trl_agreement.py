"""TRL's own GRPOTrainer._compute_loss, called on the same numbers with a stand-in for the trainer."""

import warnings
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from loss_batches import leaves, random_batch

import samplekit as sk
from samplekit.training import compute_loss

LENGTHS = (7, 1, 12, 30, 4)


@pytest.fixture(scope="module")
def trl_compute_loss():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from trl.trainer.grpo_trainer import GRPOTrainer
    return GRPOTrainer._compute_loss


def padded(rows):
    return torch.nn.utils.rnn.pad_sequence(
        [row if isinstance(row, torch.Tensor) else torch.tensor(row).double() for row in rows], batch_first=True
    )


def stand_in(logprobs, *, loss_type, beta, level, high, horizon):
    """What the function asks of its trainer: the logprobs of a model that is not there, and the settings."""
    return SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (logprobs, torch.zeros_like(logprobs), None),
        loss_type=loss_type, beta=beta, importance_sampling_level=level, epsilon_low=0.2, epsilon_high=high,
        max_completion_length=horizon, top_entropy_quantile=1.0, off_policy_mask_threshold=None, use_vllm=False,
        aux_loss_enabled=False, _entropy_bonus_enabled=False, current_gradient_accumulation_steps=1,
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        model=SimpleNamespace(training=True), _metrics=defaultdict(lambda: defaultdict(list)),
        accelerator=SimpleNamespace(gather=lambda item: item, reduce=lambda item, reduction: item, num_processes=1),
    )  # fmt: skip


def theirs(compute, rows, samples, **settings):
    """TRL's loss, gradients for each row, and metrics."""
    given = leaves(rows)
    trainer = stand_in(padded(given), **settings)
    arrays = [sample.loss_fn_inputs for sample in samples]
    mask = padded([sample.weights != 0 for sample in samples])
    inputs = {
        "prompt_ids": torch.zeros(len(rows), 1, dtype=torch.int64), "prompt_mask": torch.ones(len(rows), 1),
        "completion_ids": torch.zeros(mask.shape, dtype=torch.int64), "completion_mask": mask,
        "advantages": padded([item["advantages"].data for item in arrays]),
        "old_per_token_logps": padded([item["logprobs"].data for item in arrays]),
        "ref_per_token_logps": padded([item["reference_logprobs"].data for item in arrays]),
        "num_items_in_batch": mask.sum(),
    }  # fmt: skip
    loss = compute(trainer, None, inputs)
    loss.backward()
    return float(loss.detach()), [row.grad for row in given], trainer._metrics["train"]


# TRL's name for what our aggregation gives: grpo averages the means of sequences, bnpo over the batch's tokens, dapo
# too but by a count that is handed in, dr_grpo divides by rows * max_completion_length, luspo averages sums.
CONVENTIONS = {
    "grpo": ({"aggregation": "sequence_mean"}, {}),
    "bnpo": ({"aggregation": "token_mean"}, {}),
    "dapo": ({"aggregation": "token_mean"}, {}),
    "dr_grpo": ({"aggregation": "fixed_horizon"}, {"horizon": 64}),
    "luspo": ({"aggregation": "sequence_mean"}, {"sequence_mean": "sums"}),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("loss_type", CONVENTIONS)
def test_grpo_equals_trl_under_each_aggregation(trl_compute_loss, loss_type, beta, seed):
    rows, samples = random_batch(seed, LENGTHS)
    options, settings = CONVENTIONS[loss_type]
    value, gradients, metrics = theirs(
        trl_compute_loss, rows, samples, loss_type=loss_type, beta=beta, level="token", high=0.2, horizon=64
    )
    given = leaves(rows)
    output = compute_loss(given, samples, sk.GRPO(beta=beta, **options), **settings)
    output.loss.backward()
    assert float(output.loss.detach()) == pytest.approx(value, rel=1e-9)
    for row, expected in zip(given, gradients, strict=True):
        torch.testing.assert_close(row.grad, expected, rtol=1e-9, atol=1e-12)
    assert output.metrics["loss/clip/high_fraction"] == pytest.approx(metrics["clip_ratio/high_mean"][0], rel=1e-6)
    assert output.metrics["loss/clip/low_fraction"] == pytest.approx(metrics["clip_ratio/low_mean"][0], rel=1e-6)
    if beta:
        assert output.metrics["loss/kl_ref/mean"] == pytest.approx(metrics["kl"][0], rel=1e-9)


@pytest.mark.parametrize("one_advantage", [True, False])
def test_a_sequences_ratio_equals_trl_where_its_advantages_are_one(trl_compute_loss, one_advantage):
    """By convention they differ otherwise: in TRL's each token's advantage also pulls at the other tokens."""
    rows, samples = random_batch(1, LENGTHS, one_advantage=one_advantage)
    value, gradients, _ = theirs(
        trl_compute_loss, rows, samples, loss_type="grpo", beta=0.0, level="sequence", high=0.2, horizon=64
    )
    given = leaves(rows)
    loss = compute_loss(given, samples, sk.GRPO(ratio="sequence", aggregation="sequence_mean")).loss
    loss.backward()
    equal = all(
        torch.allclose(row.grad, expected, rtol=1e-9, atol=1e-12)
        for row, expected in zip(given, gradients, strict=True)
    )
    assert float(loss.detach()) == pytest.approx(value, rel=1e-9)
    assert equal is one_advantage


def test_cispo_equals_trl_whose_bound_is_absolute_as_well(trl_compute_loss):
    """By convention they differ in the sum: TRL divides by the tokens of the batch, ours by what normalizer says."""
    rows, samples = random_batch(2, LENGTHS, spread=0.8)
    value, gradients, _ = theirs(
        trl_compute_loss, rows, samples, loss_type="cispo", beta=0.0, level="token", high=1.5, horizon=64
    )
    given = leaves(rows)
    loss = compute_loss(
        given, samples, sk.CISPO(clip_high=1.5), normalizer=sum(item.num_trained for item in samples)
    ).loss
    loss.backward()
    assert float(loss.detach()) == pytest.approx(value, rel=1e-9)
    for row, expected in zip(given, gradients, strict=True):
        torch.testing.assert_close(row.grad, expected, rtol=1e-9, atol=1e-12)
    assert any((np.exp(row - q.loss_fn_inputs["logprobs"].data.astype(float)) > 1.5).any()
               for row, q in zip([item.numpy() for item in rows], samples, strict=True))  # fmt: skip
