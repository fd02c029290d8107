"""`--model` takes any causal model: other layers, capped logits, learned positions, sliding windows, no tokenizer."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Gemma2Config, GPT2Config, LlamaConfig, Qwen2Config

from samplekit import CrossEntropy, build_sample
from samplekit.server import load_model
from samplekit.server.checkpoint_files import read_weights, write_model
from samplekit.server.generation import generate
from samplekit.server.loss_rules import ReferenceRule
from samplekit.server.policy import Policy
from samplekit.server.settings import AdamSettings, DrawingSettings, LoraSettings
from samplekit.server.stop_strings import StopWatch

SHAPE = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "eos_token_id": 1}  # fmt: skip
CONFIGS = {
    "llama": LlamaConfig(**SHAPE),
    "qwen2, untied": Qwen2Config(**SHAPE, tie_word_embeddings=False),
    "gemma2, capped logits and a sliding window": Gemma2Config(
        **SHAPE, final_logit_softcapping=3.0, sliding_window=8, query_pre_attn_scalar=8, pad_token_id=0
    ),
    "gpt2, learned positions": GPT2Config(
        vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=64, eos_token_id=1
    ),
}


@pytest.fixture(scope="module", params=CONFIGS)
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    config = CONFIGS[request.param]
    config.initializer_range = 0.3
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return load_model(str(folder))


@pytest.fixture
def samples():
    rng = np.random.default_rng(1)
    masks = [[0] * 5 + [1] * 9, [0, 1, 0, 1], [0] + [1] * 30]
    return [build_sample(rng.integers(2, 97, len(mask)), mask) for mask in masks]


def plain_logprobs(module, tokens):
    """One sequence alone: the logprob of every token but the first, from the definition."""
    with torch.no_grad():
        logits = module(input_ids=torch.tensor([tokens])).logits[0]
    return np.array([float(torch.log_softmax(logits[i], -1)[tokens[i + 1]]) for i in range(len(tokens) - 1)])


def test_limits_come_from_the_configuration(model):
    assert (model.vocab_size, model.context_length, model.stop_ids) == (97, 64, {1})
    assert model.tokenizer is None
    assert model.module.dtype == torch.float32


@pytest.mark.parametrize("lora", [None, LoraSettings(rank=2, train_unembed=False), LoraSettings(rank=2)])
def test_the_loss_is_the_plain_one_and_training_lowers_it(model, samples, lora):
    policy = Policy(model, lora)
    expected = [plain_logprobs(model.module, sample.tokens.tolist()) * sample.weights for sample in samples]
    outcome = policy.run(samples, ReferenceRule(samples, CrossEntropy()), backward=True)
    assert outcome.loss == pytest.approx(-sum(map(np.sum, expected)), rel=1e-5)
    for found, values in zip(outcome.logprobs, expected, strict=True):
        np.testing.assert_allclose(found, values, atol=1e-5)
    for _ in range(3):
        policy.optim_step(AdamSettings(learning_rate=3e-3))
        again = policy.run(samples, ReferenceRule(samples, CrossEntropy()), backward=True)
    assert again.loss < outcome.loss


def test_full_weights_are_written_and_read_back(model, samples, tmp_path):
    trained, again = Policy(model), Policy(model)
    trained.run(samples, ReferenceRule(samples, CrossEntropy()), backward=True)
    trained.optim_step(AdamSettings(learning_rate=3e-2))
    write_model(trained.trained, model, tmp_path / "saved")
    read_weights(again, tmp_path / "saved")
    expected, found = dict(trained.trained.named_parameters()), dict(again.trained.named_parameters())
    assert found.keys() == expected.keys()  # tied weights are one
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())
    assert not torch.equal(next(iter(expected.values())), next(iter(model.module.parameters())))
    (written,) = (tmp_path / "saved").glob("*.safetensors")
    weights = load_file(written)
    for name in weights:
        save_file({other: weight for other, weight in weights.items() if other != name}, written)
        with pytest.raises(RuntimeError, match="Missing key"):
            read_weights(again, tmp_path / "saved")
    written.unlink()
    with pytest.raises(OSError, match="safetensors"):
        read_weights(again, tmp_path / "saved")


def test_generation_agrees_with_a_forward_pass(model):
    prompts = [np.array([5, 6, 7]), np.arange(2, 22), np.array([9])]
    settings = DrawingSettings(seed=3, max_tokens=20)
    found = generate(model.module, prompts, 2, settings, StopWatch(None, (), model.stop_ids))
    for prompt, completions in zip(prompts, found, strict=True):
        for completion in completions:
            expected = plain_logprobs(model.module, [*prompt.tolist(), *completion.tokens])[len(prompt) - 1 :]
            np.testing.assert_allclose(completion.logprobs, expected, atol=1e-4)
