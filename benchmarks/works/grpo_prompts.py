"""Row "prompts of GRPO groups": the prompt ids that belong to 16 completions of each of 32 prompts."""

from __future__ import annotations

from typing import Any

from benchmarks.chat_forms import forget
from benchmarks.chats import questions, qwen3
from benchmarks.meters import cpu_time
from benchmarks.row import FLOOR, OURS, Case, Gate, Reading, Row, Size

APPLY = "apply_chat_template"
_GROUP = 16


def _prepare(size: Size) -> Case:
    from samplekit.chat import ChatTemplate

    tokenizer = qwen3()
    template = ChatTemplate(tokenizer)
    chats = questions(max(1, size.num_samples // _GROUP))
    each = [chat for chat in chats for _ in range(_GROUP)]
    texts = [tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in each]

    def ours() -> list[list[int]]:
        forget(template)
        return [ids for chat in chats for ids in [template.prompt(chat)] * _GROUP]

    def floor() -> list[list[int]]:
        """Encode the text of every completion's prompt, rendered off the clock."""
        return [found.ids for found in tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)]

    def applied() -> list[list[int]]:
        """Ask once a completion, as a rollout loop does."""
        return [tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False) for chat in each]

    return Case({OURS: ours, FLOOR: floor, APPLY: applied}, _normal)


def _normal(_name: str, prompts: list[Any]) -> list[list[int]]:
    return [list(ids) for ids in prompts]


ROW = Row(
    key="grpo-prompts",
    work="prompts of GRPO groups, 32 x 16",
    prepare=_prepare,
    readings=[Reading("CPU time", cpu_time, (Gate(APPLY, 15), Gate(FLOOR, 0.15, "floor")))],
)
