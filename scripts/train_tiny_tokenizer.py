"""Train the tokenizer of ``samplekit/tiny`` on the conversations of ``cookbook/data``.

README: run ``python scripts/train_tiny_tokenizer.py`` from the repository root; it rewrites
``samplekit/models/tiny/tokenizer.json``, and running it twice writes the same bytes. Changing the
tokenizer changes every recorded id and loss of the tiny model, so re-run it only when the texts change.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "cookbook" / "data"
FOLDER = ROOT / "samplekit" / "models" / "tiny"
VOCABULARY = 2560
# The first three are control tokens; the tags below stay visible when special tokens are skipped.
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TAGS = [
    "<think>",
    "</think>",
    "<tools>",
    "</tools>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
]
# Contractions, words with their leading space, single digits, punctuation, line breaks, white space.
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}[\p{L}\p{M}]*|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def texts_of(row: dict[str, Any]) -> Iterator[str]:
    """Yield what the chat template would write for one conversation, without its added tokens."""
    for tool in row.get("tools") or []:
        yield json.dumps(tool, ensure_ascii=False) + "\n"
    for message in row["messages"]:
        yield message["role"] + "\n"
        yield from (message[key] for key in ("reasoning_content", "content") if message.get(key))
        for call in message.get("tool_calls") or []:
            function = call.get("function", call)
            yield json.dumps({"name": function["name"], "arguments": function["arguments"]}, ensure_ascii=False)


def read_texts() -> list[str]:
    """Read every text of every conversation, files and lines in order."""
    rows = (json.loads(line) for path in sorted(DATA.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines())
    return [text for row in rows for text in texts_of(row)]


def train(texts: list[str]) -> Tokenizer:
    """Train a byte-level BPE: any text encodes, and decodes to itself byte for byte."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    added = [AddedToken(text, special=True, normalized=False) for text in CONTROL]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        min_frequency=2,
        special_tokens=added + [AddedToken(text, special=True, normalized=False) for text in TAGS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def main() -> None:
    """Train, mark the tags as ordinary added tokens, and write ``tokenizer.json``."""
    texts = read_texts()
    described = json.loads(train(texts).to_str())
    for token in described["added_tokens"]:
        token["special"] = token["content"] in CONTROL
    size = len(described["model"]["vocab"])
    path = FOLDER / "tokenizer.json"
    path.write_text(json.dumps(described, ensure_ascii=False, indent=1) + "\n", "utf-8")
    print(f"{path}: {size} pieces from {len(texts)} texts ({sum(map(len, texts))} characters)")


if __name__ == "__main__":
    main()
