"""The model that the package ships: small, seeded, found offline, and taught by a template of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoTokenizer

from samplekit.chat.load import TINY, packaged_model
from samplekit.server import load_model

torch.set_num_threads(1)

ROOT = Path(__file__).parents[1]
FOLDER = packaged_model(TINY)
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Kraków"}}}
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello?"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "And the weather?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]},
    {"role": "tool", "content": "rain"},
    {"role": "tool", "content": "sun"},
    {"role": "assistant", "content": "Rain, then sun."},
]


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(FOLDER)


def test_its_size_is_what_is_promised(tokenizer):
    config, loaded = AutoConfig.from_pretrained(FOLDER), load_model()
    assert 2000 <= len(tokenizer) == config.vocab_size == loaded.vocab_size <= 3000
    assert loaded.context_length == 4096
    assert 1e6 <= loaded.module.num_parameters() <= 3e6
    assert loaded.module.dtype == torch.float32
    assert loaded.stop_ids == {tokenizer.convert_tokens_to_ids(text) for text in ("<|im_end|>", "<|endoftext|>")}


def test_its_weights_are_the_same_every_time_and_loading_draws_no_random_numbers():
    state = torch.random.get_rng_state()
    first, second = load_model().module, load_model().module
    assert torch.equal(torch.random.get_rng_state(), state)
    for (name, weight), (_, other) in zip(first.named_parameters(), second.named_parameters(), strict=True):
        assert torch.equal(weight, other), name


@given(st.text())
def test_any_text_survives_the_tokenizer(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_added_tokens_are_single_ids(tokenizer):
    for text in ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "</tool_call>"):
        assert len(tokenizer.encode(text, add_special_tokens=False)) == 1
    assert tokenizer.eos_token == "<|im_end|>"


@pytest.mark.parametrize("kwargs", [{}, {"enable_thinking": False}, {"enable_thinking": True}])
@pytest.mark.parametrize("turn", [2, 4, 7])
def test_every_reply_begins_exactly_where_its_prompt_ends(tokenizer, kwargs, turn):
    render = lambda messages, **more: tokenizer.apply_chat_template(  # noqa: E731
        messages, tools=TOOLS, tokenize=False, **more, **kwargs
    )
    prompt, full = render(CHAT[:turn], add_generation_prompt=True), render(CHAT[: turn + 1])
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False)  # noqa: E731
    assert full.startswith(prompt)
    assert encode(full)[: len(encode(prompt))] == encode(prompt)
    assert full.endswith("<|im_end|>\n")
    assert render(CHAT).startswith(full)  # and every turn is a prefix of what follows


def test_thinking_is_off_on_both_sides_or_shown_as_it_was(tokenizer):
    thought = [CHAT[1], {"role": "assistant", "content": "Hi.", "reasoning_content": "Greet."}]
    render = lambda messages, **more: tokenizer.apply_chat_template(messages, tokenize=False, **more)  # noqa: E731
    assert render(thought).endswith("assistant\n<think>\nGreet.\n</think>\n\nHi.<|im_end|>\n")
    assert render(thought[:1], add_generation_prompt=True).endswith("assistant\n")
    silent = render(thought[:1], add_generation_prompt=True, enable_thinking=False)
    assert silent.endswith("assistant\n<think>\n\n</think>\n\n")


def test_tools_calls_and_grouped_results_are_written(tokenizer):
    text = tokenizer.apply_chat_template(CHAT, tools=TOOLS, tokenize=False)
    assert json.dumps(TOOLS[0]) in text
    assert text.count('<tool_call>\n{"name": "weather", "arguments": {"city": "Kraków"}}\n</tool_call>') == 2
    assert "<tool_response>\nrain\n</tool_response>\n<tool_response>\nsun\n</tool_response><|im_end|>" in text
    assert text.startswith("<|im_start|>system\nBe brief.\n\n")


def test_an_unknown_role_is_an_error(tokenizer):
    with pytest.raises(Exception, match="unknown role judge"):
        tokenizer.apply_chat_template([{"role": "judge", "content": "x"}], tokenize=False)


def test_training_the_tokenizer_again_gives_the_file_that_ships(tmp_path):
    shipped = (FOLDER / "tokenizer.json").read_bytes()
    code = f"import scripts.train_tiny_tokenizer as t, pathlib; t.FOLDER = pathlib.Path({str(tmp_path)!r}); t.main()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    same = (tmp_path / "tokenizer.json").read_bytes() == shipped
    assert same, "the texts of cookbook/data changed: run scripts/train_tiny_tokenizer.py and commit tokenizer.json"
