"""The chat rows: real work for every contender, and nothing remembered from one run to the next."""

from __future__ import annotations

import pytest

from benchmarks import chat_forms
from benchmarks.chats import LONG, MEDIUM, SHORT, Length, conversations, qwen3, qwen3_keeping_history
from benchmarks.row import QUICK, Size

TINY = Length(200, 3)


@pytest.mark.parametrize("merge", [False, True])
def test_ours_gives_the_recipes_tokens_and_masks(merge):
    chats = conversations(TINY, 4)
    tokenizer = qwen3_keeping_history()
    found = chat_forms.masked(chat_forms.OURS, chat_forms.ours(tokenizer, chats, merge=merge)())
    wanted = chat_forms.masked(chat_forms.RECIPE, chat_forms.recipe(tokenizer, chats)())
    assert len(wanted) == 4 * 3
    assert found == (chat_forms.joined(wanted) if merge else wanted)
    assert all(1 in mask for _, mask in found)


def test_a_rewritten_history_is_a_sample_a_turn_that_nothing_joins():
    chats = conversations(TINY, 2, reasoning=True)
    found = chat_forms.masked(chat_forms.OURS, chat_forms.ours(qwen3(), chats, merge=True)())
    assert found == chat_forms.masked(chat_forms.RECIPE, chat_forms.recipe(qwen3(), chats)())
    assert len(found) == 2 * 3


def test_a_run_finds_no_text_that_the_run_before_it_encoded():
    from samplekit.chat import ChatTemplate

    template = ChatTemplate(qwen3())
    template.prompt([{"role": "user", "content": "Hi"}])
    assert template.engine.encoder._known
    chat_forms.forget(template)
    assert not template.engine.encoder._known


@pytest.mark.parametrize("length", [SHORT, MEDIUM, LONG])
def test_conversations_have_the_length_they_say_and_messages_of_their_own(length):
    chats = conversations(length, 3)
    assert chats == conversations(length, 3)
    written = [message["content"] for chat in chats for message in chat]
    assert len(set(written)) == len(written)
    for chat in chats:
        text = chat_forms.text_of(qwen3_keeping_history(), chat)
        assert abs(len(qwen3().encode(text)) - length.num_tokens) < 0.3 * length.num_tokens


def test_a_small_size_makes_them_fewer_and_a_tiny_one_shorter():
    assert LONG.at(QUICK) == (LONG, 1)
    assert LONG.at(Size(3, 40))[0].num_tokens < LONG.num_tokens / 10
