"""Every published template with every kind of conversation: a right sample or a named error, as the table says.

``tests/data/chat/outcomes.json`` is the table; ``python tests/chat/test_published_templates.py`` writes it anew.
"""

from __future__ import annotations

import atexit
import json
import sys
from functools import cache
from shutil import rmtree
from tempfile import mkdtemp

import pytest
import real_tokenizers as real
from conversations import KINDS

from samplekit.chat import ChatTemplate
from samplekit.chat.refusals import HINTS
from samplekit.chat.thoughts import split_thought
from samplekit.errors import TemplateError

TABLE = real.DATA / "outcomes.json"


OWN = ("chatml", "deepseek", "llama2", "mistral_tekken", "mistral_v1")
NAMES = [*OWN, *real.trl_names()]


def template_of(name: str, **options) -> ChatTemplate:
    return ChatTemplate(tokenizer_of(name), **options)


def tokenizer_of(name: str):
    """Give the template on its own model's tokenizer where a package has it, else on a byte-level BPE with its tokens."""
    source = real.own_template(name) if name in OWN else real.trl_template(name)
    if name in ("llama2", "mistral_v1"):
        return real.sentencepiece(sentencepiece_folder(), source)
    if name == "mistral_tekken":
        return real.tekken(source)
    if name.startswith("deepseek"):
        return real.deepseek(source)
    if name == "chatml" or name.startswith("qwen3"):
        return real.qwen3(source)
    return real.byte_level(name, source)


@cache
def sentencepiece_folder() -> str:
    folder = mkdtemp()
    atexit.register(rmtree, folder)
    return folder


def outcome(template: ChatTemplate, kind: str) -> str:
    messages, tools = KINDS[kind]
    try:
        turns = template.turns(messages, tools)
    except TemplateError as error:
        return error.code
    for turn in turns:
        judge(template, turn, messages, tools)
    return " ".join(turn.mode for turn in turns)


def judge(template: ChatTemplate, turn, messages, tools) -> None:
    """Hold a turn to what it must be, told from the outside: served prompt, reply and stop in what trains, nothing else."""
    reply = messages[turn.message_index]
    wants_parts = template.engine.program(None).shape.wants_parts
    plain = [plainly(message, wants_parts) for message in messages]
    kwargs = turn.info.get("template_kwargs", {})
    served = template.tokenizer.apply_chat_template(
        plain[: turn.message_index], tools=tools, add_generation_prompt=True, tokenize=False, **kwargs
    )
    assert turn.tokens[: turn.prompt_length] == template.tokenizer(served, add_special_tokens=False)["input_ids"]
    assert turn.loss_mask == [0] * turn.prompt_length + [1] * (len(turn.tokens) - turn.prompt_length)
    text = real.trained_text(template, turn)
    thought, content = split_thought(reply["content"] or "")
    thought = reply.get("reasoning_content", thought)
    for wanted in (thought, content, *(call["function"]["name"] for call in reply.get("tool_calls", ()))):
        assert wanted.strip() in text
    if reply.get("finish_reason") == "length":
        assert text.endswith(reply["content"])
    else:
        assert text.endswith(tuple(template.stop_strings))
        body = text[: -len(next(stop for stop in template.stop_strings if text.endswith(stop)))]
        assert not reply["content"] or body.rstrip().endswith(("}", ">", "]", content.strip()[-1:]))
    for message in messages:
        if message["role"] in ("user", "tool") and len(message["content"]) > 8:
            assert message["content"] not in text or message["content"] == reply["content"]


def plainly(message, wants_parts):
    """Spell a message as a careful user of transformers would."""
    known = {key: value for key, value in message.items() if key != "finish_reason"}
    known["content"] = known["content"] or ""
    if wants_parts:
        known["content"] = [{"type": "text", "text": known["content"]}]
    calls = known.get("tool_calls", [])
    parsed = [
        {
            **call,
            "function": {
                **call["function"],
                "arguments": json.loads(arguments) if isinstance(arguments, str) else arguments,
            },
        }
        for call in calls
        for arguments in [call["function"]["arguments"]]
    ]
    return {**known, "tool_calls": parsed} if calls else known


def table() -> dict[str, dict[str, str]]:
    return {name: {kind: outcome(template_of(name), kind) for kind in KINDS} for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_the_outcome_of_every_kind_is_the_tables(name):
    template = template_of(name)
    expected = json.loads(TABLE.read_text())[name]
    assert {kind: outcome(template, kind) for kind in KINDS} == expected


@pytest.mark.parametrize("name", NAMES)
def test_thinking_auto_builds_at_least_what_the_default_builds(name):
    default = json.loads(TABLE.read_text())[name]
    template = template_of(name, thinking="auto")
    for kind in KINDS:
        found = outcome(template, kind)
        assert default[kind] in HINTS or found == default[kind]


def test_every_outcome_is_a_rung_or_a_code_with_a_hint():
    rungs = {"strict", "split", "graft"}
    for outcomes in json.loads(TABLE.read_text()).values():
        for found in outcomes.values():
            assert found in HINTS or set(found.split()) <= rungs


if __name__ == "__main__":
    TABLE.write_text(json.dumps(table(), indent=1) + "\n")
    sys.stdout.write(f"wrote {TABLE}\n")
