"""The open cases about chats (mask, template, tools, thinking, truncation-06, format-04, validation-04 and -08), by id."""

from __future__ import annotations

import datetime as dt
from collections import UserDict

import numpy as np
import pytest
import real_tokenizers as real
from real_tokenizers import TOYS, toy, toy_ids, toy_template, with_template

from samplekit.chat import ChatTemplate
from samplekit.errors import PrefixMismatchError, TemplateError


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **fields):
    return {"role": "assistant", "content": content, **fields}


def only(turns):
    (turn,) = turns
    return turn.tokens, turn.loss_mask


def test_mask_01_a_template_without_generation_marks_still_trains_its_reply():
    tokens, mask = only(toy_template("T-PLAIN").turns([user("hi"), assistant("yo")]))
    assert tokens == toy_ids(["<u>", "h", "i", "<e>", "<a>", "y", "o", "<e>"])
    assert mask == [0, 0, 0, 0, 0, 1, 1, 1]


def test_mask_03_the_token_that_ends_the_turn_trains_although_it_is_not_the_eos_token():
    tokens, mask = only(toy_template("T-PLAIN", eos="<eos>").turns([user("p"), assistant("q")]))
    assert tokens == toy_ids(["<u>", "p", "<e>", "<a>", "q", "<e>"])
    assert mask == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("pairs", [2, 3, 9])
def test_mask_05_every_reply_trains_and_merged_they_are_the_union(pairs):
    messages = [message for number in range(pairs) for message in (user(f"p{number}"), assistant(f"q{number}"))]
    template = toy_template("T-PLAIN")
    assert [turn.message_index for turn in template.turns(messages)] == list(range(1, 2 * pairs, 2))
    (sample,) = template.samples(messages, merge=True)
    expected = [0, 0, 0, 0, 0, 1, 1, 1] * pairs
    assert sample.loss_mask.tolist() == expected
    assert sample.info["merged"] == list(range(1, 2 * pairs, 2))


@pytest.mark.parametrize("text", ["hi", "e", "a", "<", " ", "\n", "e>"])
def test_mask_07_a_reply_equal_to_what_was_asked_trains_at_its_own_place(text):
    turn = toy_template("T-PLAIN").turns([user(text), assistant(text)])[0]
    length = len(text)
    assert turn.prompt_length == length + 3
    assert turn.loss_mask == [0] * (length + 3) + [1] * (length + 1)


def test_mask_09_recorded_prompt_ids_that_are_no_prefix_are_refused_with_their_index():
    template = toy_template("T-PLAIN")
    recorded = toy_ids(["<u>", "p", "<eos>"])
    with pytest.raises(PrefixMismatchError, match=r"prefix.*index 2") as caught:
        template.turns([user("p"), assistant("q")], prompts=[recorded])
    assert (caught.value.index, caught.value.message_index) == (2, 1)


@pytest.mark.parametrize(("after_stop", "ends"), [("drop", []), ("mask", [0]), ("train", [1])])
def test_mask_11_what_follows_the_stop_is_a_choice_equal_in_every_turn(after_stop, ends):
    template = toy_template("T-NL", after_stop=after_stop)
    turns = template.turns([user("q"), assistant("k"), user("q"), assistant("k")])
    newline = toy_ids(["\n"]) * len(ends)
    assert turns[0].tokens == toy_ids(["<u>", "q", "<e>", "\n", "<a>", "k", "<e>"]) + newline
    for turn in turns:
        assert turn.loss_mask[turn.prompt_length :] == [1, 1, *ends]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([user("ok"), assistant("ok")], "<u>ok<e><a>ok"),
        ([user("ok"), assistant("")], "<u>ok<e><a>"),
        ([user("ok"), assistant("ok"), user("ok"), assistant("o")], "<u>ok<e><a>ok<e><u>ok<e><a>o"),
        ([user(""), assistant("e")], "<u><e><a>e"),
    ],
)
@pytest.mark.parametrize("name", ["T-TRIM", "T-PLAIN"])
def test_template_01_a_continued_message_is_never_cut_before_its_own_end(name, messages, expected):
    template = toy_template(name)
    assert template.decode(template.prompt(messages, continue_final=True)) == expected


def test_template_01_a_space_that_the_template_strips_is_refused():
    messages = [user("ok"), assistant("ok ")]
    with pytest.raises(TemplateError, match=r"message 1.*white space"):
        toy_template("T-TRIM").prompt(messages, continue_final=True)
    template = toy_template("T-PLAIN")
    assert template.decode(template.prompt(messages, continue_final=True)) == "<u>ok<e><a>ok "


class _Tokenizer:
    """A tokenizer without a Rust backend, whose encode answers in one of the shapes seen in the wild."""

    chat_template = TOYS["T-PLAIN"]
    eos_token, eos_token_id, name_or_path = "<e>", 7, ""

    def __init__(self, shape):
        self._toy, self._shape = toy(), shape

    def encode(self, text, *, add_special_tokens):
        assert not add_special_tokens
        return self._shape(self._toy.encode(text, add_special_tokens=False))

    def decode(self, ids, **options):
        return self._toy.decode(ids, **options)

    def convert_tokens_to_ids(self, token):
        return self._toy.convert_tokens_to_ids(token)


@pytest.mark.parametrize(
    "shape",
    [
        list,
        lambda ids: {"input_ids": ids, "attention_mask": [1] * len(ids)},
        lambda ids: UserDict(input_ids=[ids]),
        lambda ids: np.array([ids]),
        np.array,
        tuple,
    ],
)
def test_template_03_every_shape_a_tokenizer_answers_in_gives_the_same_sample(shape):
    tokens, mask = only(ChatTemplate(_Tokenizer(shape)).turns([user("hi"), assistant("yo")]))
    assert tokens == toy_ids(["<u>", "h", "i", "<e>", "<a>", "y", "o", "<e>"])
    assert mask == [0, 0, 0, 0, 0, 1, 1, 1]


def test_template_05_one_clock_for_a_conversation_so_a_date_cannot_differ():
    messages = [user("q"), assistant("k")]
    tokens, mask = only(toy_template("T-CLOCK", clock=dt.datetime(2024, 1, 1, 0, 0, 42, tzinfo=dt.UTC)).turns(messages))
    assert tokens == toy_ids(["<s>", "4", "2", "<e>", "<u>", "q", "<e>", "<a>", "k", "<e>"])
    assert mask == [0] * 8 + [1, 1]
    turns = [toy_template("T-CLOCK").turns(messages)[0] for _ in range(3)]
    assert all(turn.loss_mask == mask for turn in turns)
    assert all("clock" in turn.info for turn in turns)


def test_template_09_text_the_template_adds_by_itself_stands_once_and_never_trains():
    tokens, mask = only(toy_template("T-DEFSYS").turns([user("h"), assistant("y")]))
    expected = ["<s>", *"be kind", "<e>", "<u>", "h", "<e>", "<a>", "y", "<e>"]
    assert tokens == toy_ids(expected)
    assert mask == [0] * 13 + [1, 1]


def call(arguments):
    return [{"type": "function", "function": {"name": "f", "arguments": arguments}}]


@pytest.mark.parametrize("arguments", ['{"a": 1}', {"a": 1}, '{"a":1}', ' {"a" : 1} '])
@pytest.mark.parametrize("content", ["", None])
def test_tools_02_arguments_as_text_or_object_render_alike(arguments, content):
    template = toy_template("T-TOOLS")
    turn = template.turns([user("q"), assistant(content, tool_calls=call(arguments))])[0]
    assert template.decode(turn.tokens) == '<u>q<e><a>{f:{"a": 1}}<e>'


@pytest.mark.parametrize("arguments", ["{bad", "[1]", "3", '"x"', [1], 3])
def test_tools_02_arguments_that_are_no_object_are_refused_with_their_place(arguments):
    with pytest.raises(TemplateError, match=r"message 1.*tool call 0") as caught:
        toy_template("T-TOOLS").turns([user("q"), assistant("", tool_calls=call(arguments))])
    assert caught.value.code == "invalid_message"


def test_tools_04_keys_filled_with_null_are_absent_but_nulls_inside_arguments_stay():
    template = toy_template("T-NAME")
    turn = template.turns([
        {"role": "user", "content": "h", "name": None, "tool_calls": None, "weight": None, "reasoning": None},
        {"role": "assistant", "content": "y", "name": None, "tool_calls": None, "train": None},
    ])[0]  # fmt: skip
    assert template.decode(turn.tokens) == "<u>h<e><a>y<e>"
    tools = toy_template("T-TOOLS")
    calls = [{"id": None, "type": "function", "function": {"name": "f", "arguments": {"a": None}, "strict": None}}]
    turn = tools.turns([user("q"), assistant(None, tool_calls=calls)])[0]
    assert tools.decode(turn.tokens) == '<u>q<e><a>{f:{"a": null}}<e>'


THOUGHTS = [user("p"), assistant("<think>x</think>q"), user("r"), assistant("<think>y</think>s")]


def test_thinking_02_a_template_that_drops_earlier_thoughts_gives_one_sequence_a_turn():
    template = toy_template("T-THINK")
    first, second = template.turns(THOUGHTS)
    assert first.tokens == toy_ids(["<u>", "p", "<e>", "<a>", "<think>", "x", "</think>", "q", "<e>"])
    assert first.loss_mask == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    history = ["<u>", "p", "<e>", "<a>", "q", "<e>", "<u>", "r", "<e>", "<a>"]
    assert second.tokens == toy_ids([*history, "<think>", "y", "</think>", "s", "<e>"])
    assert second.loss_mask == [0] * 10 + [1] * 5


def test_thinking_02_such_turns_do_not_merge_and_the_samples_say_so():
    samples = toy_template("T-THINK").samples(THOUGHTS, merge=True)
    assert [sample.info["merged"] for sample in samples] == [[1], [3]]


def test_thinking_04_an_open_thought_without_reasoning_is_refused_although_the_text_is_a_prefix():
    with pytest.raises(TemplateError) as caught:
        toy_template("T-OPENNL", merges=True).turns([user("q"), assistant("hi")])
    assert caught.value.code == "open_think_without_reasoning"
    assert caught.value.message_index == 1


def test_thinking_06_recorded_prompts_that_hold_other_history_are_refused_with_the_turn():
    template = toy_template("T-THINK")
    recorded = [turn.tokens[: turn.prompt_length] for turn in template.turns(THOUGHTS)]
    assert len(template.turns(THOUGHTS, prompts=recorded)) == 2
    with_thoughts = toy_ids(
        ["<u>", "p", "<e>", "<a>", "<think>", "x", "</think>", "q", "<e>", "<u>", "r", "<e>", "<a>"]
    )
    with pytest.raises(PrefixMismatchError) as caught:
        template.turns(THOUGHTS, prompts=[recorded[0], with_thoughts])
    assert (caught.value.message_index, caught.value.index) == (3, 4)
    with pytest.raises(PrefixMismatchError):
        template.turns(THOUGHTS, prompts={3: recorded[1] + [1]})


@pytest.mark.parametrize(("turns", "characters"), [(64, 200), (1, 200), (7, 3_000)])
def test_perf_01_the_pieces_of_a_conversation_are_encoded_once_however_many_turns_it_has(
    turns, characters, monkeypatch
):
    texts: list[str] = []
    template = ChatTemplate(real.qwen3(real.trl_template("qwen3_instruct_2507")))
    encoder = template.engine.encoder
    ready = encoder._ready

    def batch():
        class Counting:
            def encode_batch_fast(self, batch, **options):
                texts.extend(batch)
                return ready().encode_batch_fast(batch, **options)

        return Counting()

    monkeypatch.setattr(encoder, "_ready", batch)
    monkeypatch.setattr(encoder, "_encode_alone", lambda text: pytest.fail(f"encoded alone: {text[:40]!r}"))
    messages = [
        {"role": role, "content": f"{role} {place} ".ljust(characters, "x")}
        for place in range(turns)
        for role in ("user", "assistant")
    ]
    found = template.turns(messages)
    assert len(found) == turns
    assert len(texts) == len(set(texts))
    whole = template.decode(found[-1].tokens)
    assert sum(map(len, texts)) <= len(whole) + 200  # and the header of a reply, and the line break behind a stop


def test_truncation_06_a_tokenizer_left_truncating_does_not_cut_the_renders():
    tokenizer = with_template(toy(), TOYS["T-PLAIN"])
    tokenizer.model_max_length, tokenizer.pad_token = 4, "<eos>"
    template = ChatTemplate(tokenizer)
    tokenizer("hello there", truncation=True, max_length=4, padding="max_length")
    tokens, mask = only(template.turns([user("hi"), assistant("yo")]))
    assert tokens == toy_ids(["<u>", "h", "i", "<e>", "<a>", "y", "o", "<e>"])
    assert mask == [0, 0, 0, 0, 0, 1, 1, 1]


def test_format_04_text_parts_are_joined_and_other_parts_refused_with_their_place():
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    tokens, mask = only(toy_template("T-PLAIN").turns([user(parts), assistant([{"type": "text", "text": "yo"}])]))
    assert tokens == toy_ids(["<u>", "h", "i", "<e>", "<a>", "y", "o", "<e>"])
    assert mask == [0, 0, 0, 0, 0, 1, 1, 1]
    with pytest.raises(TemplateError, match=r"message 0.*image_url"):
        toy_template("T-PLAIN").turns([user([{"type": "image_url", "image_url": "x"}]), assistant("yo")])


@pytest.mark.parametrize("weight", [1, 0.5, 2, 1.0])
def test_validation_04_a_weight_scales_its_turn(weight):
    turn = toy_template("T-PLAIN").turns([user("p"), assistant("q", weight=weight)])[0]
    assert turn.loss_mask == [0, 0, 0, 0, weight, weight]


@pytest.mark.parametrize("weight", ["1", True, False, -1, float("nan"), float("inf"), [1]])
@pytest.mark.parametrize("place", [0, 1])
def test_validation_04_a_weight_that_is_no_number_is_refused_with_its_place(weight, place):
    messages = [user("p"), assistant("q")]
    messages[place]["weight"] = weight
    with pytest.raises(TemplateError, match=f"message {place}: weight"):
        toy_template("T-PLAIN").turns(messages)


def test_validation_04_weight_zero_and_train_false_switch_a_turn_off():
    template = toy_template("T-PLAIN")
    messages = [user("p"), assistant("q", weight=0), user("r"), assistant("s"), user("t"), assistant("v", train=False)]
    assert [turn.message_index for turn in template.turns(messages)] == [3]
    with pytest.raises(TemplateError) as caught:
        template.turns([user("p"), assistant("q", weight=0)])
    assert caught.value.code == "nothing_trained"


def test_validation_08_a_trailing_user_message_is_context_with_all_and_refused_with_last():
    template = toy_template("T-PLAIN")
    messages = [user("p"), assistant("q"), user("r")]
    (turn,) = template.turns(messages)
    assert turn.message_index == 1
    assert template.decode(turn.tokens) == "<u>p<e><a>q<e>"
    with pytest.raises(TemplateError, match=r"last.*assistant") as caught:
        template.turns(messages, train_on="last")
    assert caught.value.code == "no_final_reply"
    assert [turn.message_index for turn in template.turns([*messages, assistant("s")], train_on="last")] == [3]
