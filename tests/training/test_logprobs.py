import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samplekit import LossInputError, Sample, SampleError, TensorData, build_sample
from samplekit.server import load_model
from samplekit.training.logprobs import plan_rows, target_logprobs

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model():
    return load_model().module


def random_samples(lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [build_sample(rng.integers(3, 2560, length + 1), np.ones(length + 1)) for length in lengths]


def plain_logprobs(model, sample, temperature=1.0):
    """One sample alone, position by position, straight from the definition."""
    logits = model(torch.tensor(sample.model_input.tokens.copy())[None]).logits[0].double() / temperature
    targets = sample.loss_fn_inputs["target_tokens"].data
    return torch.stack([torch.log_softmax(row, -1)[target] for row, target in zip(logits, targets, strict=True)])


@pytest.mark.parametrize("temperature", [1.0, 0.5, 1.7])
def test_logprobs_equal_the_plain_computation(model, temperature):
    samples = random_samples([5, 1, 40, 17])
    with torch.no_grad():
        found = target_logprobs(model, samples, temperature=temperature)
        for sample, values in zip(samples, found, strict=True):
            assert values.shape == (sample.length,)
            torch.testing.assert_close(
                values.double(), plain_logprobs(model, sample, temperature), atol=1e-5, rtol=1e-5
            )


@pytest.mark.parametrize("batch_tokens", [1, 64, 300, 8192])
def test_padding_and_grouping_change_nothing(model, batch_tokens):
    samples = random_samples([3, 200, 9, 64, 2, 65, 31], seed=1)
    with torch.no_grad():
        found = target_logprobs(model, samples, batch_tokens=batch_tokens)
        alone = [target_logprobs(model, [sample])[0] for sample in samples]
    for values, expected in zip(found, alone, strict=True):
        torch.testing.assert_close(values, expected, atol=1e-5, rtol=1e-5)


def test_gradients_flow_and_padding_gets_none(model):
    parameter = model.get_input_embeddings().weight
    parameter.requires_grad_(True)
    try:
        samples = random_samples([4, 23], seed=2)
        (batched,) = torch.autograd.grad(sum(item.sum() for item in target_logprobs(model, samples)), parameter)
        (plain,) = torch.autograd.grad(sum(plain_logprobs(model, item).sum() for item in samples).float(), parameter)
        torch.testing.assert_close(batched, plain, atol=1e-4, rtol=1e-4)
    finally:
        parameter.requires_grad_(False)


class Doubled(torch.nn.Module):
    """A model that computes in float64 and gives its logits bare."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(7, 7, dtype=torch.float64, generator=torch.manual_seed(0)))

    def forward(self, input_ids):
        return self.table[input_ids]


def test_float64_stays_float64_and_three_numbers_agree_by_hand():
    model = Doubled()
    model.table.data[:] = torch.log(torch.tensor([0.5, 0.2, 0.1, 0.1, 0.05, 0.03, 0.02], dtype=torch.float64))
    (found,) = target_logprobs(model, [build_sample([3, 0, 1, 6], [0, 1, 1, 1])])
    assert found.dtype == torch.float64
    # log 0.5, log 0.2, log 0.02
    torch.testing.assert_close(found.detach(), torch.tensor([-0.6931471806, -1.6094379124, -3.9120230054]).double())


def test_a_sample_without_targets_is_named(model):
    whole = random_samples([4])[0]
    bare = Sample(whole.model_input, {"weights": TensorData([1.0] * 4, "float32")})
    with pytest.raises(LossInputError, match=r"samples\[1\].*target_tokens"):
        target_logprobs(model, [whole, bare])


@pytest.mark.parametrize("temperature", [0, -1.0, float("nan"), float("inf"), True, "1", None])
def test_a_temperature_that_is_no_number_above_zero_is_refused(model, temperature):
    with pytest.raises(SampleError) as caught:
        target_logprobs(model, random_samples([4]), temperature=temperature)
    for words in ("target_logprobs", f"is {temperature!r}", "expected a finite number above 0", "pass"):
        assert words in str(caught.value)


@pytest.mark.parametrize("temperature", [np.float32(0.5), np.float64(0.5)])
def test_a_temperature_of_numpy_is_a_number(model, temperature):
    samples = random_samples([4])
    with torch.no_grad():
        (found,) = target_logprobs(model, samples, temperature=temperature)
        (expected,) = target_logprobs(model, samples, temperature=0.5)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("batch_tokens", [0, -1, 1.5, True, None, "8"])
def test_batches_of_no_token_are_refused(model, batch_tokens):
    with pytest.raises(SampleError, match=f"batch_tokens is {batch_tokens!r}, expected a whole number of 1 or more"):
        target_logprobs(model, random_samples([4]), batch_tokens=batch_tokens)


def test_a_mapping_is_told_how_to_become_a_sample(model):
    first, second = random_samples([4, 3])
    with pytest.raises(SampleError, match=r"samples\[1\] is a dict, expected a Sample: use Sample.from_wire"):
        target_logprobs(model, [first, second.to_wire()])


def test_a_target_that_the_model_does_not_know_is_refused(model):
    with pytest.raises(
        SampleError,
        match=r"samples\[0\].loss_fn_inputs\['target_tokens'\] holds 1000000 at position 2, expected an id of 0 to",
    ):
        target_logprobs(model, [build_sample([5, 6, 7, 1_000_000], [0, 1, 1, 1])])


@given(st.lists(st.integers(1, 300), max_size=40), st.integers(1, 1000))
def test_every_sample_is_in_exactly_one_group_within_the_limit(lengths, limit):
    groups = plan_rows(lengths, limit)
    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[row] for row in group) <= limit
