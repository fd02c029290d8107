"""Turns become samples: merged where proved, never longer than asked."""

from __future__ import annotations

import numpy as np
import pytest
import real_tokenizers as real
from hypothesis import given, settings
from hypothesis import strategies as st
from real_tokenizers import toy_template

import samplekit as sk
from samplekit.chat import build_chat_samples
from samplekit.errors import AlignmentError, TemplateError


def chat(*texts, system=""):
    roles = ("user", "assistant")
    messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    return [{"role": "system", "content": system}, *messages] if system else messages


def test_a_sample_is_its_turn_shifted_once(tiny):
    messages = chat("What is 2 + 2?", "4")
    (turn,), (sample,) = tiny.turns(messages), tiny.samples(messages)
    assert sample.tokens.tolist() == turn.tokens
    assert sample.loss_mask.tolist() == turn.loss_mask
    assert sample.info["message_index"] == 1
    assert sample.info["mode"] == "strict"
    assert sample.info["template_kwargs"] == {"enable_thinking": False}
    sk.check([sample], loss=sk.CrossEntropy()).raise_for_errors()


def test_build_chat_samples_takes_the_options_of_both():
    tokenizer = real.qwen3(real.trl_template("qwen3_8"))
    messages = chat("a", "b", "c", "d")
    samples = build_chat_samples(messages, tokenizer, thinking=False, train_on="last")
    assert [sample.info["message_index"] for sample in samples] == [3]
    with pytest.raises(TemplateError):
        build_chat_samples(messages, tokenizer, thinkin=False)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.text("ab ", max_size=4), st.text("ab ", max_size=4), st.sampled_from([0, 1, 0.5])),
        min_size=1,
        max_size=6,
    )
)
@pytest.mark.parametrize("name", ["T-PLAIN", "T-NL", "T-DEFSYS", "T-THINK"])
def test_merged_samples_train_the_same_tokens_in_the_same_context(name, pairs):
    template = toy_template(name)
    messages = []
    for asked, said, weight in pairs:
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": said, "weight": weight}]
    if not any(weight for _, _, weight in pairs):
        return
    turns, merged = template.turns(messages), template.samples(messages, merge=True)

    def trained(tokens, mask):
        return [(tuple(tokens[:place]), tokens[place], weight) for place, weight in enumerate(mask) if weight]

    apart = [item for turn in turns for item in trained(turn.tokens, turn.loss_mask)]
    joined = [item for sample in merged for item in trained(sample.tokens.tolist(), sample.loss_mask.tolist())]
    assert sorted(apart) == sorted(joined)
    assert sorted(index for sample in merged for index in sample.info["merged"]) == [
        turn.message_index for turn in turns
    ]
    assert len(merged) == 1 or name == "T-THINK"


def test_a_merge_never_grows_beyond_max_length():
    template = toy_template("T-PLAIN")
    messages = chat("a", "b", "c", "d", "e", "f")
    (whole,) = template.samples(messages, merge=True)
    samples = template.samples(messages, merge=True, max_length=len(whole.tokens))
    assert len(samples) == 1
    with pytest.raises(AlignmentError):
        template.samples(messages, merge=True, max_length=len(whole.tokens) - 1)
    dropped = template.samples(messages, merge=True, max_length=len(whole.tokens) - 1, truncation="drop")
    assert [sample.info["merged"] for sample in dropped] == [[1, 3]]


def test_too_long_is_an_error_that_says_how_long():
    with pytest.raises(AlignmentError, match=r"message 1: the sequence holds 6 tokens, max_length allows 5"):
        toy_template("T-PLAIN").samples(chat("p", "q"), max_length=5)
    (sample,) = toy_template("T-PLAIN").samples(chat("p", "q"), max_length=6)
    assert sample.length == 5


def test_drop_leaves_the_long_turn_out():
    samples = toy_template("T-PLAIN").samples(chat("p", "q", "r" * 30, "s"), max_length=20, truncation="drop")
    assert [sample.info["message_index"] for sample in samples] == [1]


def test_right_cuts_the_end_but_never_the_whole_reply():
    template = toy_template("T-PLAIN")
    (sample,) = template.samples(chat("p", "q" * 20), max_length=10, truncation="right")
    assert len(sample.tokens) == 10
    assert sample.loss_mask.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    with pytest.raises(AlignmentError, match=r"reply starts at token 13"):
        template.samples(chat("p" * 10, "q"), max_length=10, truncation="right")


@pytest.mark.parametrize("limit", range(9, 40))
def test_left_drops_the_oldest_turns_and_keeps_the_system_message_and_the_newest_turn_whole(limit):
    template = toy_template("T-PLAIN")
    messages = chat("p1", "q1", "p2", "q2", "p3", "q3", system="S")
    newest = template.turns([messages[0], *messages[5:]])[0].tokens
    try:
        samples = template.samples(messages, max_length=limit, truncation="left", train_on="last")
    except AlignmentError as error:
        assert limit < len(newest)
        assert "newest turn alone" in str(error)  # noqa: PT017 - either outcome is right
        return
    (sample,) = samples
    tokens = sample.tokens.tolist()
    assert len(tokens) <= limit
    text = template.decode(tokens)
    assert text.startswith("<s>S<e>")
    assert text.endswith("<u>p3<e><a>q3<e>")
    assert sample.info["message_index"] == 6
    kept = template.decode(tokens)[len("<s>S<e>") :]
    assert "<u>p1<e><a>q1<e><u>p2<e><a>q2<e><u>p3<e><a>q3<e>".endswith(kept)
    whole = len(template.turns(messages)[-1].tokens)
    assert ("dropped_messages" in sample.info) == (limit < whole)


def test_tool_results_leave_with_the_call_they_answer():
    template = toy_template("T-TOOLS")
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    messages = [
        {"role": "user", "content": "p" * 20},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "r"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c"},
    ]
    (sample,) = template.samples(messages, max_length=20, truncation="left", train_on="last")
    assert template.decode(sample.tokens) == "<u>b<e><a>c<e>"


@pytest.mark.parametrize(
    "options",
    [
        {"max_length": 1},
        {"max_length": True},
        {"max_length": 2.5},
        {"truncation": "middle"},
        {"train_on": "first"},
        {"merge": "no"},
        {"merge": 1},
    ],
)
def test_an_option_that_means_nothing_is_refused(options):
    with pytest.raises(TemplateError) as caught:
        toy_template("T-PLAIN").samples(chat("p", "q"), **options)
    assert caught.value.code == "invalid_option"


def test_prompts_are_lists_that_turns_start_with(qwen3):
    messages = chat("What is 2 + 2?", "4", "And 3?", "9")
    for turn in qwen3.turns(messages):
        prompt = qwen3.prompt(messages[: turn.message_index])
        assert isinstance(prompt, list)
        assert turn.tokens[: turn.prompt_length] == prompt
        assert qwen3.decode(prompt).endswith("<|im_start|>assistant\n")


def test_recorded_prompts_may_be_partial_and_of_any_integer_sequence(qwen3):
    messages = chat("a", "b", "c", "d")
    turns = qwen3.turns(messages)
    recorded = [turn.tokens[: turn.prompt_length] for turn in turns]
    same = qwen3.turns(messages, prompts=[None, np.array(recorded[1])])
    assert [turn.tokens for turn in same] == [turn.tokens for turn in turns]
    with pytest.raises(TemplateError) as caught:
        qwen3.turns(messages, prompts=recorded[:1])
    assert caught.value.code == "invalid_option"


def test_one_sequence_holds_no_second_bos(llama2):
    (turn,) = llama2.turns(chat("hi", "yo"))
    assert turn.tokens.count(1) == 1
    assert turn.tokens == llama2.encode("<s>[INST] hi [/INST] yo </s>")
