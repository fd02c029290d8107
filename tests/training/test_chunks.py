"""Logprobs off logits: the numbers of log_softmax, in a fraction of its memory."""

import numpy as np
import pytest
import torch

import samplekit as sk
from samplekit.training import gather_logprobs, target_logprobs

SHAPES = [(1, 5), (3, 2), (1, 1), (70, 11), (200, 300), (65, 70_000)]


def random_logits(num_rows, vocab_size, dtype=torch.float32):
    generator = torch.Generator().manual_seed(num_rows)
    logits = 3 * torch.randn(num_rows, vocab_size, generator=generator, dtype=torch.float64)
    return logits.to(dtype), torch.randint(0, vocab_size, (num_rows,), generator=generator)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 2.5])
@pytest.mark.parametrize(("num_rows", "vocab_size"), SHAPES)
def test_values_and_gradients_equal_log_softmax(num_rows, vocab_size, temperature):
    logits, targets = random_logits(num_rows, vocab_size)
    upstream = torch.linspace(-1, 2, num_rows)
    ours, plain = logits.clone().requires_grad_(), logits.double().requires_grad_()
    found = gather_logprobs(ours, targets, temperature=temperature)
    expected = torch.log_softmax(plain / temperature, -1).gather(-1, targets[:, None])[:, 0]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    found.backward(upstream)
    expected.backward(upstream.double())
    torch.testing.assert_close(ours.grad.double(), plain.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_gradients_equal_differences_in_double(temperature):
    logits, targets = random_logits(70, 4, torch.float64)
    assert torch.autograd.gradcheck(
        lambda given: gather_logprobs(given, targets, temperature=temperature), logits.requires_grad_()
    )


@pytest.mark.parametrize("shape", [(12,), (1, 12), (3, 4)])
def test_flat_and_padded_batches_give_the_same_numbers(shape):
    logits, targets = random_logits(12, 9)
    found = gather_logprobs(logits.reshape(*shape, 9), targets.reshape(shape))
    assert found.shape == shape
    assert torch.equal(found.reshape(-1), gather_logprobs(logits, targets))


def test_shapes_that_do_not_belong_together_are_refused():
    with pytest.raises(sk.AlignmentError, match=r"targets has shape \(3, 3\), logits has shape \(3, 4, 9\)"):
        gather_logprobs(torch.zeros(3, 4, 9), torch.zeros(3, 3, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_before_it_is_reduced(dtype):
    logits, targets = random_logits(40, 500, dtype)
    given = logits.clone().requires_grad_()
    found = gather_logprobs(given, targets)
    expected = torch.log_softmax(logits.double(), -1).gather(-1, targets[:, None])[:, 0]
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    found.sum().backward()
    assert given.grad.dtype == dtype


class Rows(torch.nn.Module):
    """Logits straight from a table, (B, T, V): no output head to cut, so padding is in them."""

    def __init__(self, vocab_size, dtype=torch.float32):
        super().__init__()
        self.table = torch.nn.Parameter(random_logits(vocab_size, vocab_size, dtype)[0])
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, input_ids):
        self.logits = self.drop(self.table[input_ids])
        return self.logits


def bytes_held(compute, known=()):
    """Bytes that autograd keeps for the backward pass of some work, each storage once, those known before left out."""
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = compute()
    excluded = {item.untyped_storage().data_ptr() for item in known}
    return sum(size for place, size in kept.items() if place not in excluded), result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("lengths", [[40, 40, 40], [40, 7, 1]])
def test_less_than_a_tenth_of_the_logits_is_held_beside_them(dtype, temperature, lengths):
    model = Rows(300, dtype).eval()
    samples = [sk.build_sample(range(length + 1), [1] * (length + 1)) for length in lengths]
    held, rows = bytes_held(lambda: target_logprobs(model, samples, temperature=temperature))
    size = model.logits.untyped_storage().nbytes()
    assert len(rows) == len(samples)
    assert size <= held  # the probe sees what is held: the logits themselves
    assert held - size < size / 10

    def plain():
        scaled = model(torch.arange(40)[None].expand(3, 40)).float() / temperature
        return torch.log_softmax(scaled, -1)[..., 0]

    assert bytes_held(plain)[0] > size * 0.9  # and sees what is not held any more


@pytest.mark.parametrize("training", [False, True])
def test_the_model_stays_in_the_mode_it_was_left_in(training):
    model = Rows(30).train(training)
    samples = [sk.build_sample(range(20), [1] * 20)]
    first, second = (target_logprobs(model, samples)[0] for _ in range(2))
    assert model.training == training
    assert torch.equal(first, second) is not training  # dropout acts in training only


@pytest.mark.parametrize("temperature", [0, -1, float("nan"), float("inf"), True, "1", None, 10**400])
def test_a_temperature_that_divides_nothing_is_refused(temperature):
    with pytest.raises(sk.SampleError, match=r"temperature of gather_logprobs is .*, expected a finite number above 0"):
        gather_logprobs(torch.zeros(1, 3), torch.tensor([0]), temperature=temperature)


@pytest.mark.parametrize("temperature", [np.float32(0.5), np.float64(0.5), np.int64(2)])
def test_a_temperature_of_numpy_is_a_number(temperature):
    logits, targets = torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([1])
    expected = gather_logprobs(logits / float(temperature), targets)
    torch.testing.assert_close(gather_logprobs(logits, targets, temperature=temperature), expected)


@pytest.mark.parametrize("target", [-100, -1, 3, 2**40])
def test_a_target_without_a_logit_is_named(target):
    with pytest.raises(sk.SampleError, match=f"targets holds {target} at row 1, expected an id of 0 to 2"):
        gather_logprobs(torch.zeros(2, 2, 3), torch.tensor([[0, target], [2, 1]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool])
def test_targets_of_another_dtype_are_refused(dtype):
    with pytest.raises(sk.SampleError, match=f"targets holds {dtype}, expected int64"):
        gather_logprobs(torch.zeros(1, 3), torch.zeros(1, dtype=dtype))
