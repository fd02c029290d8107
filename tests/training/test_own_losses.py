"""Losses of one's own that write into what they are given, and those too rounded to be checked by differences."""

import pytest
import torch
from loss_batches import random_batch

import samplekit as sk
from samplekit.training import check_gradients, dpo_loss, loss_gradients

LENGTHS = (7, 9, 4, 12)


def squares(rows, _samples):
    return sum((row**2).sum() for row in rows)


def replacing(rows, samples):
    for index, row in enumerate(rows):
        rows[index] = 2 * row
    return squares(rows, samples) / 4


def reversing(rows, samples):
    rows.reverse()
    samples.reverse()
    return squares(rows, samples)


def popping(rows, samples):
    last = rows.pop()
    samples.pop()
    return squares(rows, samples) + squares([last], samples)


def appending(rows, samples):
    rows.append(torch.ones(3))
    samples.append(samples[0])
    return squares(rows, samples)


def overwriting(rows, samples):
    for row in rows:
        row.mul_(2)
    return squares(rows, samples) / 4


def clearing(rows, samples):
    value = squares(rows, samples)
    rows.clear()
    samples.clear()
    return value


@pytest.mark.parametrize("loss_fn", [replacing, reversing, popping, appending, overwriting, clearing])
def test_a_loss_may_write_into_its_lists_and_tensors(loss_fn):
    rows, samples = random_batch(0, LENGTHS)
    kept_rows, kept_samples = [row.clone() for row in rows], list(samples)
    found = loss_gradients(loss_fn, rows, samples)
    assert [item.tolist() for item in found] == [(2 * row).tolist() for row in kept_rows]
    assert check_gradients(loss_fn, rows, samples) < 1e-6
    assert all(map(torch.equal, rows, kept_rows))
    assert samples == kept_samples


def test_dpo_leaves_the_lists_it_is_given_alone():
    rows, samples = random_batch(0, LENGTHS)
    kept_rows, kept_samples = list(rows), list(samples)
    dpo_loss(rows, samples)
    assert all(one is other for one, other in zip(rows, kept_rows, strict=True))
    assert samples == kept_samples


@pytest.mark.parametrize(
    "loss_fn", [lambda *given: squares(*given).float(), lambda *given: squares(*given) + 1e12], ids=["float32", "large"]
)
def test_a_loss_too_rounded_for_differences_is_told_as_that(loss_fn):
    rows, samples = random_batch(0, LENGTHS)
    with pytest.raises(sk.SampleError, match=r"precision .* at step=1e-05 .*compute it in float64.*a larger step"):
        check_gradients(loss_fn, rows, samples)


def test_a_wrong_gradient_of_a_precise_loss_is_not_laid_on_rounding():
    rows, samples = random_batch(0, LENGTHS)
    wrong = [1.01 * item for item in loss_gradients(squares, rows, samples)]
    with pytest.raises(sk.SampleError, match=r"the formula of one of the two is wrong.*rounds to float32$"):
        check_gradients(squares, rows, samples, gradients=wrong)
    halved = [0.5 * item for item in loss_gradients(squares, rows, samples)]
    with pytest.raises(sk.SampleError, match="the formula of one of the two is wrong"):
        check_gradients(lambda *given: squares(*given).float(), rows, samples, gradients=halved, step=0.1)


def test_a_larger_step_checks_a_float32_loss():
    rows, samples = random_batch(0, LENGTHS)
    assert check_gradients(lambda *given: squares(*given).float(), rows, samples, step=0.5, atol=1e-3) < 1e-3
