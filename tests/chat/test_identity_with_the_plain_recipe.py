"""The fast path gives the tokens of the plain double render, on real vocabularies, for random conversations."""

from __future__ import annotations

import unicodedata

import pytest
import real_tokenizers as real
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from samplekit.chat import ChatTemplate, SampleBuilder
from samplekit.chat.turn import continue_text

_BITS = [
    *"aeiou", " ", "  ", "\n", "\n\n", "\t", ".", ",", "'s", "Hello", " world", "the ", "I'm", "3.14", "2024", " été", "naïve",
    "你好", "こんにちは", "مرحبا", "Привет", "नमस्ते", "🎉", "👩‍👩‍👧", "e\u0301", "\u00a0", "\u200b", "    def f(x):\n        return x\n", "```py\n",
    '{"a": 1}', "</div>", "<p>", "<|", "|>", "<", "[INST", "##", "\r\n", "'", "ﬁ", "Å", "----", "==", "\\n", "%%",
]  # fmt: skip
_TEXT = st.lists(st.sampled_from(_BITS), max_size=12).map("".join)
_FULL = st.lists(st.sampled_from(_BITS), min_size=1, max_size=12).map("".join).filter(lambda text: text.strip())
_CHATS = st.builds(
    lambda system, pairs: (
        [{"role": "system", "content": system}] * bool(system)
        + [message for asked, said in pairs for message in (_message("user", asked), _message("assistant", said))]
    ),
    st.one_of(st.just(""), _FULL),
    st.lists(st.tuples(_FULL, _TEXT), min_size=1, max_size=4),
)
_SETTINGS = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _message(role, content):
    return {"role": role, "content": content}


def nfc(text):
    return unicodedata.normalize("NFC", text)  # Qwen's tokenizer composes characters


def oracle(tokenizer, messages, index, kwargs, stop):
    """Render twice as plainly as can be said, cut at the stop, and join prompt ids and the rest."""
    prompt = tokenizer.apply_chat_template(messages[:index], add_generation_prompt=True, tokenize=False, **kwargs)
    full = tokenizer.apply_chat_template(messages[: index + 1], tokenize=False, **kwargs)
    assert full.startswith(prompt)
    full = full[: full.rindex(stop) + len(stop)]
    prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    full_ids = tokenizer(full, add_special_tokens=False)["input_ids"]
    strict = full_ids[: len(prompt_ids)] == prompt_ids
    return prompt_ids, full_ids if strict else None, full[len(prompt) :]


def check(template: ChatTemplate, messages, kwargs, stop) -> None:
    for turn in template.turns(messages):
        prompt, full, rest = oracle(template.tokenizer, messages, turn.message_index, kwargs, stop)
        assert turn.tokens[: turn.prompt_length] == prompt
        assert turn.loss_mask == [0] * len(prompt) + [1] * (len(turn.tokens) - len(prompt))
        if full is not None:
            assert (turn.mode, turn.tokens) == ("strict", full)
        else:
            assert turn.mode == "split"
            completion = turn.tokens[turn.prompt_length :]
            # Decoding drops a leading space of the first word, so it is judged behind the prompt.
            assert nfc(template.decode(prompt + completion)) == nfc(template.decode(prompt) + rest)
            if not template.engine.encoder.adds_prefix:
                assert completion == template.tokenizer(rest, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("qwen3", {}),
        ("qwen3", {"enable_thinking": False}),
        ("qwen2_5", {}),
        ("qwen3_instruct_2507", {}),
        ("qwen3_8", {"enable_thinking": False}),
        ("chatml", {}),
    ],
)
def test_on_the_qwen3_vocabulary(name, kwargs):
    source = real.own_template(name) if name == "chatml" else real.trl_template(name)
    template = ChatTemplate(real.qwen3(source), **kwargs)

    @_SETTINGS
    @given(_CHATS)
    def holds(messages):
        check(template, messages, kwargs, "<|im_end|>")

    holds()


def test_on_the_deepseek_vocabulary():
    template = ChatTemplate(real.deepseek(real.own_template("deepseek")))

    @_SETTINGS
    @given(_CHATS)
    def holds(messages):
        check(template, messages, {}, "<｜end▁of▁sentence｜>")

    holds()


def test_on_the_tekken_vocabulary():
    template = ChatTemplate(real.tekken(real.own_template("mistral_tekken")))
    mistrals_own = Tekkenizer.from_file(real.tekken_file())

    @_SETTINGS
    @given(_CHATS)
    def holds(messages):
        check(template, messages, {}, "</s>")
        for message in messages:
            assert template.encode(message["content"]) == mistrals_own.encode(message["content"], bos=False, eos=False)

    holds()


def test_a_reply_that_starts_with_a_line_break_splits_where_the_vocabulary_joins_it_to_the_headers(mistral_v1):
    messages = [_message("user", "q"), _message("assistant", "\na")]
    lines = "{% for m in messages %}{{ m.content }}{{ '\\n' if m.role == 'user' else eos_token }}{% endfor %}"
    found = {
        "qwen": ChatTemplate(real.qwen3(real.own_template("chatml"))),
        "deepseek": ChatTemplate(real.deepseek(lines)),
        "tekken": ChatTemplate(real.tekken(lines)),
        "sentencepiece": mistral_v1,
    }
    modes = {name: template.turns(messages)[0].mode for name, template in found.items()}
    assert modes == {"qwen": "split", "deepseek": "split", "tekken": "split", "sentencepiece": "strict"}


@pytest.mark.parametrize("name", ["llama2", "llama2_legacy", "mistral_v1"])
def test_on_sentencepiece(request, name):
    template = request.getfixturevalue(name)
    alternating = _CHATS.map(lambda messages: [m for m in messages if name != "mistral_v1" or m["role"] != "system"])

    @_SETTINGS
    @given(alternating)
    def holds(messages):
        check(template, messages, {}, "</s>")

    holds()


@_SETTINGS
@given(st.lists(_CHATS, min_size=1, max_size=6))
def test_a_batch_gives_what_its_rows_give_alone(qwen3, chats):
    built = SampleBuilder(qwen3).build({"messages": messages} for messages in chats)
    alone = [sample for messages in chats for sample in qwen3.samples(messages)]
    assert built.samples == alone
    assert built.stats["num_rows"] == len(chats)


def test_forgetting_pieces_changes_no_token(qwen3, monkeypatch):
    messages = [_message("user" if place % 2 == 0 else "assistant", f"text {place} é\n") for place in range(12)]
    expected = qwen3.samples(messages)
    for limit in (0, 30, 200):
        monkeypatch.setattr("samplekit.chat.encode._REMEMBERED_CHARACTERS", limit)
        template = ChatTemplate(qwen3.tokenizer)
        assert template.samples(messages) == expected
        assert SampleBuilder(template).build([{"messages": messages}] * 3).samples == expected * 3


@_SETTINGS
@given(_TEXT, st.integers(0, 40), st.data())
@pytest.mark.parametrize("name", ["llama2", "llama2_legacy", "qwen3"])
def test_a_split_at_any_character_decodes_to_the_text(request, name, text, cut, data):
    template = request.getfixturevalue(name)
    full = f"<s>[INST] {text} [/INST] {text}" if name != "qwen3" else f"<|im_start|>user\n{text}<|im_end|>{text}"
    cut = min(cut, len(full) - 1)
    prompt = template.encode(full[:cut])
    rest = continue_text(
        template.engine.encoder.cutter().cut(full[:cut])[-1] if cut else "", full[cut:], template.engine.encoder
    )
    assert nfc(template.decode([*prompt, *rest.tolist()])) == nfc(template.decode(prompt) + full[cut:]) or cut < 2
