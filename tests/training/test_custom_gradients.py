"""Gradients of losses of one's own, the check of them by differences, and DPO on both."""

import math
import re

import numpy as np
import pytest
import torch
from loss_batches import LOSSES, hand_sample, random_batch, renamed, replaced

import samplekit as sk
from samplekit.training import check_gradients, closed_form_gradients, compute_loss, dpo_loss, loss_gradients


def squares(rows, samples):
    return sum((row**2).sum() for row in rows)


def test_gradients_of_a_plain_loss_by_hand():
    rows, samples = [torch.tensor([-1.0, -2.0]), torch.tensor([-3.0])], [hand_sample([1, 1]), hand_sample([1])]
    found = loss_gradients(squares, rows, samples)
    assert [item.tolist() for item in found] == [[-2, -4], [-6]]
    assert all(isinstance(item, np.ndarray) and item.dtype == np.float32 for item in found)


@pytest.mark.parametrize("form", [torch.tensor, np.array, lambda row: torch.tensor(row, requires_grad=True)])
def test_rows_of_any_kind_are_copied_and_cut_off(form):
    rows = [form([-1.0, -2.0])]
    with torch.no_grad():
        (found,) = loss_gradients(lambda given, _: (given[0] ** 2).sum(), rows, [hand_sample([1, 1])])
    assert found.tolist() == [-2, -4]
    assert getattr(rows[0], "grad", None) is None
    assert rows[0].tolist() == [-1, -2]


def test_arrays_that_cannot_be_written_to_serve_as_well():
    row = np.array([-1.0, -2.0], dtype=np.float32)
    row.flags.writeable = False
    assert loss_gradients(squares, [row], [hand_sample([1, 1])])[0].tolist() == [-2, -4]
    assert float(compute_loss([row], [hand_sample([1, 1])], sk.CrossEntropy()).loss) == 3


def test_a_loss_may_come_with_metrics_or_as_an_output():
    rows, samples = random_batch(0)
    plain = loss_gradients(squares, rows, samples)
    pair = loss_gradients(lambda *given: (squares(*given), {"size": 1.0}), rows, samples)
    assert all(map(np.array_equal, plain, pair))


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_the_service_gives_its_closed_form(name):
    rows, samples = random_batch(1)
    found = loss_gradients(lambda given, batch: compute_loss(given, batch, LOSSES[name]), rows, samples)
    for one, other in zip(found, closed_form_gradients(rows, samples, LOSSES[name]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_row_that_the_loss_leaves_out_has_gradient_0():
    rows, samples = [torch.tensor([-1.0]), torch.tensor([-1.0, -1.0])], [hand_sample([1]), hand_sample([1, 1])]
    found = loss_gradients(lambda given, _: given[0].sum(), rows, samples)
    assert [item.tolist() for item in found] == [[1], [0, 0]]


@pytest.mark.parametrize(
    ("loss_fn", "words"),
    [
        (lambda rows, _: rows[0], ["of shape (2,)", "tensor of one number"]),
        (lambda rows, _: 3.0, ["gives a float", "tensor of one number"]),
        (lambda rows, _: torch.tensor(1.0), ["depends on no logprob"]),
        (
            lambda rows, _: (rows[0] * torch.tensor([1.0, float("inf")])).sum(),
            ["inf", "samples[0], position 1", "torch.where"],
        ),
    ],
)
def test_a_loss_that_gives_no_gradient_is_refused(loss_fn, words):
    with pytest.raises(sk.SampleError) as caught:
        loss_gradients(loss_fn, [torch.tensor([-1.0, -2.0])], [hand_sample([1, 1])])
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "mixed",
    [
        lambda row, weights: (row * weights).sum(), lambda row, weights: (weights * row).sum(),
        lambda row, weights: row.dot(weights), lambda row, weights: torch.where(weights != 0, row, 0.0).sum(),
    ],
)  # fmt: skip
def test_a_loss_that_mixes_tensors_with_arrays_is_told_what_to_write(mixed):
    sample = hand_sample([1, 2])
    with pytest.raises(sk.SampleError, match=r"loss_fn mixes tensors .*write torch\.tensor\(sample\.weights\)"):
        loss_gradients(lambda rows, given: mixed(rows[0], given[0].weights), [torch.tensor([-1.0, -2.0])], [sample])
    found = loss_gradients(
        lambda rows, given: (rows[0] * torch.tensor(given[0].weights)).sum(), [torch.tensor([-1.0, -2.0])], [sample]
    )
    assert found[0].tolist() == [1, 2]


@pytest.mark.parametrize("error", [TypeError("of the loss"), RuntimeError("of the loss"), KeyError("numpy")])
def test_any_other_error_of_a_loss_is_its_own(error):
    def failing(rows, samples):
        raise error

    with pytest.raises(type(error)) as caught:
        loss_gradients(failing, [torch.tensor([-1.0])], [hand_sample([1])])
    assert caught.value is error


def test_rows_that_do_not_match_are_refused():
    with pytest.raises(sk.AlignmentError, match=r"policy_logprobs\[0\] has shape \(3,\)"):
        loss_gradients(squares, [torch.zeros(3)], [hand_sample([1, 1])])


def test_the_check_takes_right_gradients_and_tells_the_largest_error():
    rows, samples = random_batch(2)
    loss_fn = lambda given, batch: compute_loss(given, batch, sk.DRO(beta=0.2)).loss  # noqa: E731
    assert 0 <= check_gradients(loss_fn, rows, samples) < 1e-6
    assert (
        check_gradients(loss_fn, rows, samples, gradients=closed_form_gradients(rows, samples, sk.DRO(beta=0.2))) < 1e-6
    )


def test_the_check_finds_one_gradient_that_is_a_hundredth_off():
    rows, samples = random_batch(2)
    gradients = loss_gradients(squares, rows, samples)
    gradients[3][4] *= 1.01
    with pytest.raises(sk.SampleError, match=r"samples\[3\], position 4"):
        check_gradients(squares, rows, samples, gradients=gradients)


def test_the_check_finds_a_detached_part():
    rows, samples = random_batch(2)
    with pytest.raises(sk.SampleError, match="detaches part of itself"):
        check_gradients(lambda given, _: sum((row.detach() * row).sum() for row in given), rows, samples)


@pytest.mark.parametrize("setting", ["num_positions", "step"])
@pytest.mark.parametrize("value", [0, -1, True, "1", float("nan")])
def test_a_check_that_would_try_nothing_is_refused(setting, value):
    with pytest.raises(sk.SampleError, match=f"{setting} is {value!r}"):
        check_gradients(squares, *random_batch(2), **{setting: value})


def test_whole_numbers_are_no_gradients():
    with pytest.raises(sk.SampleError, match=r"gradients\[0\] holds int64, expected floats: pass d loss / d logprob"):
        check_gradients(squares, [torch.tensor([-1.0])], [hand_sample([1])], gradients=[np.array([-2])])


def pair(chosen=(-1.0, -2.0), rejected=(-3.0,)):
    """Two samples whose reference gives -1.5 at each position."""
    samples = [hand_sample([1] * len(row), None, None, [-1.5] * len(row)) for row in (chosen, rejected)]
    return [torch.tensor(row, dtype=torch.float64) for row in (chosen, rejected)], samples


def test_dpo_by_hand():
    # chosen: (-1 + 1.5) + (-2 + 1.5) = 0; rejected: -3 + 1.5 = -1.5; margin 0.5 * 1.5 = 0.75
    rows, samples = pair()
    found = dpo_loss(rows, samples, beta=0.5)
    assert float(found.loss) == pytest.approx(math.log(1 + math.exp(-0.75)))
    assert found.metrics == pytest.approx(
        {"dpo/accuracy": 1, "dpo/margin/mean": 0.75, "dpo/chosen_reward/mean": 0, "dpo/rejected_reward/mean": -0.75}
    )
    # -beta * sigmoid(-margin) at each chosen position, the opposite at the rejected one
    slope = 0.5 / (1 + math.exp(0.75))
    gradients = loss_gradients(lambda given, batch: dpo_loss(given, batch, beta=0.5), rows, samples)
    assert [item.tolist() for item in gradients] == [pytest.approx([-slope, -slope]), pytest.approx([slope])]


def test_dpo_starts_at_log_2_where_the_policy_is_the_reference():
    rows, samples = pair((-1.5, -1.5), (-1.5,))
    found = dpo_loss(rows, samples)
    assert float(found.loss) == pytest.approx(math.log(2))
    assert found.metrics["dpo/accuracy"] == found.metrics["dpo/margin/mean"] == 0


def test_dpo_gradients_equal_differences_and_are_0_at_the_prompt():
    rows, samples = random_batch(3, (7, 9, 4, 12))
    assert check_gradients(dpo_loss, rows, samples) < 1e-6
    for found, sample in zip(loss_gradients(dpo_loss, rows, samples), samples, strict=True):
        assert not found[sample.weights == 0].any()
        assert found[sample.weights != 0].all()


@pytest.mark.parametrize("junk", [float("nan"), float("-inf"), 1e9])
def test_dpo_does_not_read_masked_positions(junk):
    rows, samples = random_batch(3, (7, 9))
    spoilt = [torch.where(torch.tensor(item.weights == 0), junk, row) for row, item in zip(rows, samples, strict=True)]
    assert float(dpo_loss(spoilt, samples).loss) == float(dpo_loss(rows, samples).loss)
    assert all(map(np.array_equal, loss_gradients(dpo_loss, spoilt, samples), loss_gradients(dpo_loss, rows, samples)))


def test_dpo_pairs_may_be_named():
    rows, samples = random_batch(4, (7, 9, 4, 12))
    turned = [2, 0, 3, 1]
    found = dpo_loss([rows[i] for i in turned], [samples[i] for i in turned], pairs=[(1, 3), (0, 2)])
    assert float(found.loss) == pytest.approx(float(dpo_loss(rows, samples).loss), rel=1e-12)
    assert len(found.pair_losses) == 2


@pytest.mark.parametrize("form", [np.array, torch.tensor])
def test_dpo_pairs_may_be_an_array(form):
    rows, samples = random_batch(4, (7, 9, 4, 12))
    turned = form([[0, 1], [2, 3]])
    assert float(dpo_loss(rows, samples, pairs=turned).loss) == float(dpo_loss(rows, samples).loss)


def test_dpo_reads_arrays_and_a_mask_as_compute_loss_does():
    rows, samples = random_batch(4, (7, 9))
    expected = dpo_loss(rows, samples)
    found = dpo_loss([row.numpy() for row in rows], [renamed(item, "mask") for item in samples])
    assert (float(found.loss), found.metrics) == (float(expected.loss), expected.metrics)
    with pytest.raises(sk.LossInputError, match=r"samples\[1\].*'weights', which dpo_loss reads"):
        dpo_loss(rows, [samples[0], renamed(samples[1], None)])


def test_dpo_of_parts_adds_up_under_one_normalizer():
    rows, samples = random_batch(4, (7, 9, 4, 12, 5, 6))
    whole = loss_gradients(dpo_loss, rows, samples)
    parts = [slice(0, 2), slice(2, 6)]
    losses = [float(dpo_loss(rows[part], samples[part], normalizer=3).loss) for part in parts]
    assert sum(losses) == pytest.approx(float(dpo_loss(rows, samples).loss), rel=1e-12)
    for part in parts:
        found = loss_gradients(lambda *given: dpo_loss(*given, normalizer=3), rows[part], samples[part])
        for one, other in zip(found, whole[part], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_dpo_names_a_sample_that_trains_nowhere():
    rows, samples = random_batch(4, (7, 9))
    bare = replaced(samples[1], weights=np.zeros(9))
    with pytest.raises(sk.SampleError, match=r"samples\[1\] has no position that trains"):
        dpo_loss(rows, [samples[0], bare])


def test_dpo_is_float32_for_float32_rows():
    rows, samples = random_batch(4, (7, 9))
    assert dpo_loss([row.float() for row in rows], samples).loss.dtype == torch.float32
    assert dpo_loss(rows, samples).loss.dtype == torch.float64


def test_dpo_refuses_what_is_no_pair():
    rows, samples = random_batch(4, (7, 9, 4))
    with pytest.raises(sk.SampleError, match="samples holds 3, expected chosen and rejected in turn"):
        dpo_loss(rows, samples)
    for pair in ((0, 0), (0, 3), (-1, 0), (0.9, 1), (True, 0), (0,), (0, 1, 2), 1, "01", ("0", "1"), None):
        with pytest.raises(sk.SampleError, match=rf"pairs\[1\] is {re.escape(repr(pair))}, expected two different"):
            dpo_loss(rows, samples, pairs=[(0, 1), pair])
    for pairs in ([], 3, "01", {0: 1}):
        with pytest.raises(sk.SampleError, match=rf"pairs is {re.escape(repr(pairs))}, expected a list"):
            dpo_loss(rows, samples, pairs=pairs)
    for name in ("beta", "normalizer"):
        for value in (0, -1, float("nan"), True, "0.1"):
            with pytest.raises(sk.SampleError, match=f"{name} is {value!r}"):
                dpo_loss(rows[:2], samples[:2], **{name: value})
    bare = sk.build_sample([3, 4], [0, 1])
    with pytest.raises(sk.LossInputError, match=r"samples\[1\].*'reference_logprobs', which dpo_loss reads") as caught:
        dpo_loss([torch.zeros(1), torch.zeros(1)], [replaced(bare, reference_logprobs=[-1.0]), bare])
    assert "Sample.with_reference_logprobs" in str(caught.value)
    assert "beta" not in str(caught.value)  # without a reference there is no DPO, whatever its beta
