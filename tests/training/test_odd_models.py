"""Models that read their head in an odd way, hold no weights, have few positions or give broken logits."""

import numpy as np
import pytest
import torch
import transformers

import samplekit as sk
from samplekit.training import target_logprobs
from samplekit.training.logprobs import batch_logprobs

SIZES = {"vocab_size": 97, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
         "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 32}  # fmt: skip
LENGTHS = (5, 1, 9, 3)


class Headed(torch.nn.Module):
    """A model that names its embedding and its output head, and may go on after it."""

    def __init__(self, after=lambda logits, ids: logits):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.table, self.head = torch.nn.Embedding(97, 8), torch.nn.Linear(8, 97)
        for weight in self.parameters():
            weight.data = torch.randn(weight.shape, generator=generator)
        self.after, self.calls = after, 0

    def get_input_embeddings(self):
        return self.table

    def get_output_embeddings(self):
        return self.head

    def forward(self, input_ids):
        self.calls += 1
        return self.after(self.head(self.table(input_ids)), input_ids)


class ByKeyword(Headed):
    def forward(self, input_ids):
        return self.head(input=self.table(input_ids))


def gated(logits, ids):
    return logits * (1 + ids[..., None] / 97)


def failing_with_an_index(logits, ids):
    return logits[ids >= 0].reshape(*ids.shape, -1) * (1 + ids[..., None] / 97)


def samples_of(lengths=LENGTHS):
    rng = np.random.default_rng(0)
    return [sk.build_sample(rng.integers(0, 97, length + 1), [0] + [1] * length) for length in lengths]


def alone(model, sample):
    logits = model(input_ids=torch.tensor(sample.model_input.tokens.copy())[None])[0].double()
    targets = torch.tensor(sample.loss_fn_inputs["target_tokens"].data.copy())
    return torch.log_softmax(logits, -1).gather(-1, targets[:, None])[:, 0].float()


MODELS = {"plain": Headed(), "gated": Headed(gated), "index": Headed(failing_with_an_index), "keyword": ByKeyword()}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("lengths", [LENGTHS, (4,), (3, 3), (1, 1, 1)])
def test_what_follows_the_head_may_go_position_by_position(name, lengths):
    model, samples = MODELS[name], samples_of(lengths)
    for found, sample in zip(target_logprobs(model, samples), samples, strict=True):
        torch.testing.assert_close(found, alone(model, sample), rtol=1e-5, atol=1e-5)
    assert not model.head._forward_pre_hooks


def test_the_head_is_cut_where_it_can_be_in_one_pass():
    model = Headed()
    target_logprobs(model, samples_of())
    assert model.calls == 1


def test_as_many_wanted_positions_as_the_longest_sample_has_do_not_mix_with_a_gate():
    # 3 wanted of 2 * 3 positions: (1, 3, V) times a gate (2, 3, 1) is a shape, and nonsense
    model, samples = MODELS["gated"], samples_of((3, 3))
    arrays = [
        [item.model_input.tokens for item in samples],
        [item.loss_fn_inputs["target_tokens"].data for item in samples],
    ]
    wanted = [np.array([False, True, True]), np.array([True, False, False])]
    for found, sample, mask in zip(batch_logprobs(model, *arrays, wanted=wanted), samples, wanted, strict=True):
        torch.testing.assert_close(found, alone(model, sample) * torch.tensor(mask), rtol=1e-5, atol=1e-5)


def test_an_error_of_the_models_own_stays_its_own():
    def broken(logits, ids):
        raise RuntimeError("of the model's own")

    with pytest.raises(RuntimeError, match="of the model's own"):
        target_logprobs(Headed(broken), samples_of())


@pytest.mark.parametrize("whole", [True, False])
def test_a_model_without_weights_is_refused(whole):
    model = Headed().to("meta") if whole else Headed()
    if not whole:
        model.head.weight = torch.nn.Parameter(torch.empty(97, 8, device="meta"))
    with pytest.raises(sk.SampleError, match=r"model holds no values for '(table|head).weight', .* on the meta device"):
        target_logprobs(model, samples_of())


def llama(rope=None, most=32):
    config = transformers.LlamaConfig(**SIZES | {"max_position_embeddings": most}, rope_parameters=rope)
    return transformers.LlamaForCausalLM(config).eval()


def gpt2():
    config = transformers.GPT2Config(vocab_size=97, n_embd=16, n_layer=1, n_head=2, n_positions=32)
    return transformers.GPT2LMHeadModel(config).eval()


@pytest.mark.parametrize("build", [gpt2, llama])
def test_a_sample_longer_than_the_models_positions_is_named(build):
    model = build()
    assert target_logprobs(model, samples_of((32,)))[0].shape == (32,)
    with pytest.raises(sk.SampleError, match=r"samples\[1\].model_input holds 33 tokens, the model reads 32 at most"):
        target_logprobs(model, samples_of((4, 33)))


YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}


@pytest.mark.parametrize(
    ("rope", "most"),
    [({"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}, 32), (YARN, 32), (YARN, 64)],
    ids=["linear", "yarn on top", "yarn told already"],
)
def test_rope_scaling_reaches_further_and_counts_once(rope, most):
    model = llama(rope, most)
    assert target_logprobs(model, samples_of((64,)))[0].shape == (64,)
    with pytest.raises(sk.SampleError, match="holds 65 tokens, the model reads 64 at most"):
        target_logprobs(model, samples_of((65,)))


def test_positions_that_no_config_tells_are_named_when_they_run_out():
    model = gpt2()

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, input_ids):
            if input_ids.shape[1] > 8:
                raise IndexError("index out of range in self")
            return self.inner(input_ids)

    with pytest.raises(sk.SampleError, match=r"longest sample holds 9 tokens \(index out of range"):
        target_logprobs(Wrapped(), samples_of((9,)))


@pytest.mark.parametrize("target", [97, 2**40])
def test_a_target_without_a_logit_is_named_by_sample_and_position(target):
    samples = [*samples_of((9, 3)), sk.build_sample([1, 2, target], [0, 1, 1])]
    with pytest.raises(sk.SampleError, match=rf"samples\[2\].*'target_tokens'\] holds {target} at position 1.*0 to 96"):
        target_logprobs(Headed(), samples, batch_tokens=4)


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_broken_logits_are_named_where_a_sample_trains_and_given_where_not(value):
    def broken(logits, ids):
        logits = logits.expand(*ids.shape, -1).clone()  # as many positions as were read, or an error
        logits[:, 2:3] = value
        return logits

    model, (sample,) = Headed(broken), samples_of((9,))
    with pytest.raises(sk.SampleError, match=r"the model's logprob of samples\[1\] is nan at position 2, which trains"):
        target_logprobs(model, [samples_of((2,))[0], sample], batch_tokens=1)
    tokens = np.append(sample.model_input.tokens, 0)
    masked = sk.build_sample(tokens, [0, 1, 1, 0, 1, 1, 1, 1, 1, 1])
    (found,) = target_logprobs(model, [masked])
    assert torch.isfinite(found).tolist() == [True, True, False] + [True] * 6
