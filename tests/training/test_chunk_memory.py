"""Logprobs off logits far from 0, and the most memory that is taken at any time."""

from functools import partial

import pytest
import torch
import transformers
from torch.profiler import ProfilerActivity, profile

from samplekit import build_sample
from samplekit.training import gather_logprobs, target_logprobs


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.05])
@pytest.mark.parametrize("offset", [0.0, -100.0, 1e3, 1e4, -1e5])
def test_logits_far_from_0_lose_no_more_digits_than_log_softmax_does(offset, temperature):
    generator = torch.Generator().manual_seed(0)
    logits, targets = 5 * torch.randn(200, 500, generator=generator) + offset, torch.arange(200)
    exact = torch.log_softmax(logits.double() / temperature, -1)[targets, targets]
    ours = (gather_logprobs(logits, targets, temperature=temperature) - exact).abs().max()
    # subtracted first, then divided: dividing first rounds at the size of the offset
    lowered = (logits - logits.amax(-1, keepdim=True)) / temperature
    plain = (torch.log_softmax(lowered, -1)[targets, targets] - exact).abs().max()
    assert ours <= 2 * plain
    assert ours < 1e-6 * exact.abs().max()


def test_gradients_far_from_0_are_those_near_0():
    generator = torch.Generator().manual_seed(0)
    near = torch.randint(-8, 8, (40, 50), generator=generator).float()  # whole numbers, so that moving them is exact
    gradients = []
    for logits in (near, near + 2**16):
        leaf = logits.clone().requires_grad_()
        gather_logprobs(leaf, torch.arange(40), temperature=0.5).sum().backward()
        gradients.append(leaf.grad)
    assert torch.equal(*gradients)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_ends_of_a_type_and_impossible_ids_are_numbers(dtype, temperature):
    top = torch.finfo(dtype).max
    logits = torch.tensor([[top, top, 0.0], [-torch.inf, 0.0, 0.0]], dtype=dtype, requires_grad=True)
    found = gather_logprobs(logits, torch.tensor([0, 1]), temperature=temperature)
    torch.testing.assert_close(found.detach(), torch.tensor([0.5, 0.5]).log())
    found.sum().backward()
    torch.testing.assert_close(
        logits.grad.float(), torch.tensor([[0.5, -0.5, 0.0], [0.0, 0.5, -0.5]]) / temperature, atol=5e-3, rtol=0
    )


def most_bytes(compute):
    """The most that was allocated at any time beyond what was there before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        compute()
    changes = [event for event in found.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(changes, key=lambda item: item.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


@pytest.mark.parametrize("vocab_size", [20_000, 150_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_never_is_a_tenth_of_the_logits_taken_beside_them_and_their_gradient(vocab_size, dtype, temperature):
    logits = torch.zeros(64, vocab_size, dtype=dtype, requires_grad=True)
    targets, size = torch.arange(64), logits.numel() * logits.element_size()
    forward = most_bytes(lambda: gather_logprobs(logits, targets, temperature=temperature))
    assert 0 < forward < size / 10
    both = most_bytes(lambda: gather_logprobs(logits, targets, temperature=temperature).sum().backward())
    assert size < both < size * 1.1  # the gradient has the logits' size


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_rows", "vocab_size"), [(200, 3000), (1000, 50), (3, 100_000)])
def test_of_few_or_small_rows_256_kb_or_two_rows_are_taken(dtype, num_rows, vocab_size):
    logits = torch.zeros(num_rows, vocab_size, dtype=dtype, requires_grad=True)
    size = logits.numel() * logits.element_size()
    both = most_bytes(lambda: gather_logprobs(logits, torch.zeros(num_rows).long(), temperature=0.7).sum().backward())
    assert both < size + max(2**18, 8 * vocab_size + 2**12)


def deep_model(num_layers):
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=97, hidden_size=64, intermediate_size=64, num_hidden_layers=num_layers, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=1024, use_cache=True,
        )
    ).eval()  # fmt: skip


def test_a_model_keeps_no_keys_and_values_that_only_generation_reads():
    samples = [build_sample(torch.arange(1000).remainder(97).tolist(), [0] + [1] * 999)]
    models = [deep_model(1), deep_model(9)]
    with torch.no_grad():
        shallow, deep = (most_bytes(partial(target_logprobs, model, samples)) for model in models)
    cache = 8 * 999 * 2 * 64 * 4  # of the layers that the deep one has more: keys and values in float32
    assert deep - shallow < cache / 10


class Wrapped(torch.nn.Module):
    """Carries the config of what it wraps, and takes input_ids only."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.config = inner, inner.config

    def forward(self, input_ids):
        return self.inner(input_ids=input_ids, use_cache=False).logits


def test_a_wrapper_that_takes_input_ids_only_is_given_no_more():
    model, samples = deep_model(1), [build_sample(list(range(20)), [0] + [1] * 19)]
    with torch.no_grad():
        torch.testing.assert_close(target_logprobs(Wrapped(model), samples), target_logprobs(model, samples))
