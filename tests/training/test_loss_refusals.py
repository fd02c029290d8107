"""What the losses refuse, and that a refusal says where, what, and what to do."""

import re

import numpy as np
import pytest
import torch
from loss_batches import LOSSES, random_batch, renamed

import samplekit as sk
from samplekit.training import closed_form_gradients, compute_loss

NAMES = list(LOSSES)


def without(sample, name):
    return sk.Sample(sample.model_input, {key: item for key, item in sample.loss_fn_inputs.items() if key != name})


def refused(kind, words, *arguments, **settings):
    for call in (compute_loss, closed_form_gradients):
        with pytest.raises(kind) as caught:
            call(*arguments, **settings)
        assert type(caught.value) is kind
        for word in words:
            assert word in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_each_required_input_is_missed_by_sample_and_name(name):
    rows, samples = random_batch(0)
    for missing in LOSSES[name].required_inputs():
        broken = [*samples[:2], without(samples[2], missing), *samples[3:]]
        words = ["samples[2].loss_fn_inputs", f"no {missing!r}", type(LOSSES[name]).__name__, "build_sample"]
        refused(sk.LossInputError, words, rows, broken, LOSSES[name])


def test_cross_entropy_reads_weights_and_no_mask():
    rows, samples = random_batch(0)
    broken = [renamed(samples[0], "mask"), *samples[1:]]
    refused(sk.LossInputError, ["samples[0]", "'weights'", "'mask'"], rows, broken, sk.CrossEntropy())


def test_a_reference_is_asked_for_only_where_beta_is_above_0():
    rows, samples = random_batch(0)
    bare = [without(sample, "reference_logprobs") for sample in samples]
    assert "loss/kl_ref/mean" not in compute_loss(rows, bare, sk.GRPO()).metrics
    refused(
        sk.LossInputError, ["samples[0]", "reference_logprobs", "beta=0.1", "set beta=0"], rows, bare, sk.GRPO(beta=0.1)
    )


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("index", [0, 3])
def test_a_row_of_another_length_is_named(index, change):
    rows, samples = random_batch(0)
    rows[index] = torch.zeros(samples[index].length + change)
    words = [f"policy_logprobs[{index}]", f"({samples[index].length + change},)", f"{samples[index].length} positions"]
    refused(sk.AlignmentError, [*words, "without padding"], rows, samples, sk.PPO())


def test_padded_batches_and_other_counts_of_rows_are_refused():
    rows, samples = random_batch(0)
    refused(sk.AlignmentError, ["holds 4 rows", "samples holds 5"], rows[:4], samples, sk.PPO())
    refused(sk.AlignmentError, ["policy_logprobs[0]"], torch.zeros(5, 30), samples, sk.PPO())
    refused(sk.AlignmentError, ["policy_logprobs[0]", "shape (7, 1)"], [rows[0][:, None], *rows[1:]], samples, sk.PPO())


def test_what_is_no_batch_is_refused():
    rows, samples = random_batch(0)
    refused(sk.SampleError, ["samples is empty"], [], [], sk.PPO())
    refused(sk.SampleError, ["samples[1] is a dict"], rows, [samples[0], samples[1].to_wire(), *samples[2:]], sk.PPO())
    refused(sk.SampleError, ["policy_logprobs[0] holds int64", "nats"], [torch.zeros(7, dtype=torch.int64), *rows[1:]],
            samples, sk.PPO())  # fmt: skip
    for loss in ("ppo", sk.PPO, None):
        refused(sk.SampleError, ["loss is", "expected a loss of samplekit"], rows, samples, loss)


@pytest.mark.parametrize("name", ["horizon", "normalizer"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "8"])
def test_a_divisor_that_is_no_number_above_0_is_refused(name, value):
    refused(
        sk.SampleError, [f"{name} is {value!r}", "finite number above 0"], *random_batch(0), sk.PPO(), **{name: value}
    )


@pytest.mark.parametrize(("name", "choices"), [("sequence_mean", "means, sums"), ("kl", "k1, k2, k3")])
@pytest.mark.parametrize("value", ["mean", None, 3])
def test_an_unknown_setting_is_refused(name, choices, value):
    refused(sk.SampleError, [f"{name} is {value!r}", choices], *random_batch(0), sk.GRPO(), **{name: value})


def test_a_whole_number_of_any_kind_divides():
    rows, samples = random_batch(0)
    found = {float(compute_loss(rows, samples, sk.PPO(), normalizer=item).loss) for item in (8, 8.0, np.int64(8))}
    assert len(found) == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_logprob_that_is_not_finite_where_it_trains_is_named_whatever_the_block(name, value):
    rows, samples = random_batch(0, (40_000, 7, 9))  # the first is a block of its own
    place = int(np.flatnonzero(samples[2].weights)[-1])
    rows[2][place] = value
    refused(sk.SampleError, [f"policy_logprobs[2] is {value} at position {place}"], rows, samples, LOSSES[name])


def test_messages_are_one_sentence_that_ends_in_what_to_do():
    rows, samples = random_batch(0)
    with pytest.raises(sk.LossInputError) as caught:
        compute_loss(rows, [without(samples[0], "logprobs"), *samples[1:]], sk.DPPO())
    assert re.search(r"found \['advantages', .*\]: pass the sampler's logprobs= to build_sample$", str(caught.value))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64])
def test_no_whole_numbers_pass_for_logprobs(dtype):
    sample = sk.build_sample([3, 4], [0, 1])
    refused(
        sk.SampleError, [f"holds {str(dtype)[6:]}", "nats"], [torch.zeros(1, dtype=dtype)], [sample], sk.CrossEntropy()
    )
