"""What must not change a loss, and what it must always be."""

import numpy as np
import pytest
import torch
from loss_batches import LOSSES, leaves, random_batch, renamed, replaced

import samplekit as sk
from samplekit.training import closed_form_gradients, compute_loss

NAMES = list(LOSSES)
POLICY = [name for name in NAMES if name != "cross_entropy"]
JUNK = [float("-inf"), float("inf"), float("nan"), 1e9, -1e10, 0.0]


def numbers(rows, samples, loss, **settings):
    given = leaves(rows)
    output = compute_loss(given, samples, loss, **settings)
    output.loss.backward()
    return float(output.loss.detach()), [row.grad for row in given], output


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("name", NAMES)
def test_whatever_stands_at_a_masked_position_changes_nothing(name, junk):
    rows, samples = random_batch(3)
    spoilt_rows, spoilt_samples = [], []
    finite = float(np.clip(np.nan_to_num(junk, nan=-7.0), -1e10, 1e10))  # what a Sample can hold
    for row, sample in zip(rows, samples, strict=True):
        masked = sample.weights == 0
        spoilt_rows.append(torch.where(torch.tensor(masked), junk, row))
        arrays = {
            key: np.where(masked, finite, sample.loss_fn_inputs[key].data)
            for key in ("logprobs", "advantages", "reference_logprobs")
        }
        spoilt_samples.append(replaced(sample, **arrays))
    assert any((sample.weights == 0).any() for sample in samples)
    value, gradients, output = numbers(rows, samples, LOSSES[name])
    spoilt_value, spoilt_gradients, spoilt = numbers(spoilt_rows, spoilt_samples, LOSSES[name])
    assert spoilt_value == value
    assert spoilt.metrics == output.metrics
    for found, expected, sample in zip(spoilt_gradients, gradients, samples, strict=True):
        assert torch.equal(found, expected)
        assert not found[torch.tensor(sample.weights == 0)].any()


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_samples_does_not_matter(name):
    rows, samples = random_batch(4, (5, 40, 9, 1, 22, 17))
    value, gradients, _ = numbers(rows, samples, LOSSES[name])
    order = [3, 0, 5, 2, 4, 1]
    found, moved, _ = numbers([rows[i] for i in order], [samples[i] for i in order], LOSSES[name])
    assert found == value
    for place, index in enumerate(order):
        assert torch.equal(moved[place], gradients[index])


@pytest.mark.parametrize("name", NAMES)
def test_samples_alone_add_up_to_the_batch_under_one_normalizer(name):
    rows, samples = random_batch(6)
    normalizer = sum(sample.num_trained for sample in samples)
    value, gradients, output = numbers(rows, samples, LOSSES[name], normalizer=normalizer)
    alone = [
        numbers([row], [item], LOSSES[name], normalizer=normalizer) for row, item in zip(rows, samples, strict=True)
    ]
    assert sum(item[0] for item in alone) == pytest.approx(value, rel=1e-12)
    assert [item[0] for item in alone] == pytest.approx(output.sample_losses.tolist(), rel=1e-12)
    for (_, (found,), _), expected in zip(alone, gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_a_mean_of_micro_batch_means_is_not_the_mean():
    rows, samples = random_batch(6, (40, 3))
    loss = sk.GRPO(aggregation="token_mean")
    whole, _, _ = numbers(rows, samples, loss)
    count = sum(sample.num_trained for sample in samples)
    parts = [numbers([row], [item], loss) for row, item in zip(rows, samples, strict=True)]
    right = [
        numbers([row], [item], loss, normalizer=count)[0] for row, item in zip(rows, samples, strict=True)
    ]  # fmt: skip
    assert sum(right) == pytest.approx(whole, rel=1e-12)
    assert abs(sum(item[0] for item in parts) / 2 - whole) > 0.01 * abs(whole)


@pytest.mark.parametrize("name", [name for name in POLICY if "mean" not in name])
def test_on_policy_the_gradient_is_minus_the_advantage(name):
    _, samples = random_batch(7)
    sampler = [torch.tensor(sample.loss_fn_inputs["logprobs"].data) for sample in samples]
    same = [replaced(item, reference_logprobs=row.numpy()) for item, row in zip(samples, sampler, strict=True)]
    _, gradients, output = numbers(sampler, same, LOSSES[name])
    for found, sample in zip(gradients, samples, strict=True):
        expected = -sample.loss_fn_inputs["advantages"].data * (sample.weights != 0)
        np.testing.assert_array_equal(found.numpy(), expected)
    assert output.metrics["loss/ratio/mean"] == 1.0
    assert output.metrics["loss/kl_policy/mean"] == 0.0
    assert (
        output.metrics.get("loss/clip/high_fraction", 0.0) == output.metrics.get("loss/clip/low_fraction", 0.0) == 0.0
    )


@pytest.mark.parametrize("name", POLICY)
def test_weights_of_a_policy_loss_are_0_or_not(name):
    rows, samples = random_batch(8)
    scaled = [replaced(sample, weights=sample.weights * [-0.3, 2.5][index % 2]) for index, sample in enumerate(samples)]
    as_mask = [renamed(sample, "mask") for sample in samples]
    value, gradients, _ = numbers(rows, samples, LOSSES[name])
    for others in (scaled, as_mask):
        found, other_gradients, _ = numbers(rows, others, LOSSES[name])
        assert found == value
        assert all(map(torch.equal, other_gradients, gradients))


@pytest.mark.parametrize("name", POLICY)
def test_without_a_mask_every_position_trains(name):
    rows, samples = random_batch(9)
    ones = [replaced(sample, weights=np.ones(sample.length)) for sample in samples]
    bare = [renamed(sample, None) for sample in samples]
    assert numbers(rows, bare, LOSSES[name])[0] == numbers(rows, ones, LOSSES[name])[0]


def test_fractional_and_negative_weights_count_once_in_cross_entropy():
    rows, samples = random_batch(10, (5,))
    weights = np.array([0, 0.5, -2, 1, 0.25], dtype=np.float32)
    value, (gradient,), _ = numbers(rows, [replaced(samples[0], weights=weights)], sk.CrossEntropy())
    assert value == pytest.approx(-float((torch.tensor(weights) * rows[0]).sum()), rel=1e-12)
    np.testing.assert_array_equal(gradient.numpy(), -weights)


@pytest.mark.parametrize("name", NAMES)
def test_inputs_that_a_loss_does_not_read_are_ignored(name):
    rows, samples = random_batch(11)
    loss = LOSSES[name]
    read = loss.required_inputs() | loss.optional_inputs()
    lean = [
        sk.Sample(item.model_input, {key: value for key, value in item.loss_fn_inputs.items() if key in read})
        for item in samples
    ]
    rich = [replaced(item, brightness=np.full(item.length, 3.0)) for item in samples]
    assert numbers(rows, lean, loss)[0] == numbers(rows, rich, loss)[0] == numbers(rows, samples, loss)[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_float32_in_is_float32_out_accumulated_in_float64(name, dtype):
    rows, samples = random_batch(12)
    narrow = [row.to(dtype) for row in rows]
    value, gradients, output = numbers(narrow, samples, LOSSES[name])
    wide = compute_loss([row.double() for row in narrow], samples, LOSSES[name])
    assert output.loss.dtype == output.token_losses[0].dtype == torch.float32
    assert value == float(wide.loss.float())
    assert all(gradient.dtype == dtype for gradient in gradients)
    closed = closed_form_gradients([row.float().numpy() for row in narrow], samples, LOSSES[name])
    for found, expected in zip(gradients, closed, strict=True):
        assert expected.dtype == np.float32
        torch.testing.assert_close(found, torch.from_numpy(expected).to(dtype), rtol=0, atol=0)


def test_a_hundred_thousand_small_terms_keep_their_sum():
    sample = sk.build_sample(np.arange(100_001) % 7, np.ones(100_001))
    output = compute_loss([torch.full((100_000,), -0.1)], [sample], sk.CrossEntropy())
    assert output.sample_losses.tolist() == pytest.approx([float(np.float32(0.1)) * 100_000], rel=1e-12)


def test_nothing_is_tracked_where_nobody_asks():
    rows, samples = random_batch(13)
    assert not compute_loss(rows, samples, sk.PPO()).loss.requires_grad
    with torch.no_grad():
        assert not compute_loss(leaves(rows), samples, sk.PPO()).loss.requires_grad


def test_gradients_reach_what_the_logprobs_were_computed_from():
    rows, samples = random_batch(14)
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    (3 * compute_loss([scale * row for row in rows], samples, sk.GRPO()).loss).backward()
    gradients = closed_form_gradients(rows, samples, sk.GRPO())
    expected = 3 * sum(float((torch.from_numpy(g) * row).sum()) for g, row in zip(gradients, rows, strict=True))
    assert float(scale.grad) == pytest.approx(expected, rel=1e-9)
