"""Loading by name or path, and what a template says about itself."""

from __future__ import annotations

import subprocess
import sys

import pytest
import real_tokenizers as real

from samplekit.chat import ChatTemplate
from samplekit.errors import TemplateError

ASK = [{"role": "user", "content": "What is 2 + 2?"}]


def test_the_packaged_model_is_found_without_a_network(tiny):
    assert tiny.decode(tiny.prompt(ASK)).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert "<|im_end|>" in tiny.stop_strings


@pytest.mark.parametrize(
    "name", ["/nowhere/at/all", "./nowhere", "~/nowhere", "samplekit/nope/x", "", "no-such-org-xyz/no-such-model"]
)
def test_what_cannot_be_loaded_is_a_named_error_with_what_to_do(name):
    with pytest.raises(TemplateError) as caught:
        ChatTemplate.load(name)
    assert caught.value.code == "load_failed"
    assert repr(name) in str(caught.value)
    assert caught.value.hint


def test_a_folder_without_a_tokenizer_is_a_named_error(tmp_path):
    with pytest.raises(TemplateError) as caught:
        ChatTemplate.load(str(tmp_path))
    assert caught.value.code == "load_failed"


def test_a_saved_folder_gives_the_same_template(tmp_path, qwen3):
    qwen3.tokenizer.save_pretrained(tmp_path)
    again = ChatTemplate.load(str(tmp_path))
    assert again.prompt(ASK) == qwen3.prompt(ASK)
    assert again.stop_ids == qwen3.stop_ids


def test_fingerprints_tell_templates_and_vocabularies_apart(qwen3, llama2, mistral_v1, tiny):
    prints = {template.fingerprint for template in (qwen3, llama2, mistral_v1, tiny)}
    prints.add(ChatTemplate(real.qwen3(real.trl_template("qwen3"))).fingerprint)
    assert len(prints) == 5
    tokenizer = real.qwen3()
    tokenizer("a b", truncation=True, max_length=4)
    assert ChatTemplate(tokenizer).fingerprint == qwen3.fingerprint


def test_encode_and_decode_are_inverse_and_add_nothing(qwen3):
    text = "<|im_start|>user\nhi  there\n\n été 🎉<|im_end|>\n"
    assert qwen3.decode(qwen3.encode(text)) == text
    assert qwen3.encode("") == []


def test_importing_chat_loads_neither_transformers_nor_torch():
    code = "import sys, samplekit.chat; bad = {'transformers', 'torch', 'httpx'} & set(sys.modules); sys.exit(str(bad) if bad else 0)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
