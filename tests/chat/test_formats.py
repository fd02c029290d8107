"""Rows of published data sets become rows with messages, or are refused with the keys they hold."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_tokenizers import toy_template

from samplekit.chat import SampleBuilder
from samplekit.chat.formats import to_messages
from samplekit.errors import TemplateError


def user(content):
    return {"role": "user", "content": content}


def said(content, **fields):
    return {"role": "assistant", "content": content, **fields}


def system(content):
    return {"role": "system", "content": content}


WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}
CALL = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo", "unit": None}}}
REASONED = [user("2 + 2?"), said("4", reasoning_content="Two and two.", weight=0.5)]

# Name -> a row as it stands in a published data set, and its messages.
ROWS = {
    "openai": ({"messages": [user("hi"), said("yo")]}, [user("hi"), said("yo")]),
    "ultrachat": (
        {"prompt": "hi", "prompt_id": "f0e3", "messages": [user("hi"), said("yo")]},
        [user("hi"), said("yo")],
    ),
    "sharegpt": (
        {
            "id": "QWJhYvA_0",
            "conversations": [
                {"from": "human", "value": "hi", "markdown": None, "text": "x"},
                {"from": "gpt", "value": "yo", "weight": 0},
                {"from": "user", "value": "again"},
                {"from": "chatgpt", "value": "yo yo"},
                {"from": "bing", "value": "and more"},
            ],
        },
        [user("hi"), said("yo", weight=0), user("again"), said("yo yo"), said("and more")],
    ),
    "glaive": (
        {
            "conversations": [
                {"from": "human", "value": "Weather in Oslo?"},
                {"from": "function_call", "value": '{"name": "get_weather", "arguments": {"city": "Oslo", "unit": null}}'},
                {"from": "observation", "value": '{"temperature": 12}'},
                {"from": "gpt", "value": "12 degrees."},
            ],
            "system": "Be brief.",
            "tools": json.dumps([WEATHER]),
        },
        [
            system("Be brief."), user("Weather in Oslo?"), said("", tool_calls=[CALL]),
            {"role": "tool", "content": '{"temperature": 12}'}, said("12 degrees."),
        ],
    ),
    "parallel calls": (
        {"conversations": [
            {"from": "human", "value": "q"},
            {"from": "tool_call", "value": json.dumps([CALL["function"], {"name": "f", "arguments": "{}"}])},
            {"from": "tool", "value": "a", "name": "get_weather"},
        ]},
        [
            user("q"),
            said("", tool_calls=[CALL, {"type": "function", "function": {"name": "f", "arguments": "{}"}}]),
            {"role": "tool", "content": "a", "name": "get_weather"},
        ],
    ),
    "conversations of messages": (
        {"conversations": [system("s"), user("hi"), said(None, tool_calls=[CALL]), {"role": "gpt", "content": "yo"}]},
        [system("s"), user("hi"), said("", tool_calls=[CALL]), said("yo")],
    ),
    "conversations with reasoning": (
        {"conversations": [{"from": "Human", "value": "q"}, {"from": "GPT", "value": "a", "reasoning": "r"}]},
        [user("q"), said("a", reasoning="r")],
    ),
    "a system text twice": (
        {"system": "s", "conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"}]},
        [system("s"), user("q")],
    ),
    "alpaca": (
        {"instruction": "Translate.", "input": "Hund", "output": "dog", "text": "Below is an instruction ..."},
        [user("Translate.\n\nHund"), said("dog")],
    ),
    "alpaca without input": ({"instruction": "Sing.", "input": "", "output": "la"}, [user("Sing."), said("la")]),
    "alpaca with input alone": ({"instruction": "", "input": "Hund", "output": "dog"}, [user("Hund"), said("dog")]),
    "alpaca with history": (
        {"instruction": "c", "input": None, "output": "d", "system": "s", "history": [["a", "b"]]},
        [system("s"), user("a"), said("b"), user("c"), said("d")],
    ),
    "prompt and completion": ({"prompt": "The sky is", "completion": " blue."}, [user("The sky is"), said(" blue.")]),
    "prompt and completion of messages": (
        {"prompt": [user("a"), said("b"), said("w", weight=1), user("c")], "completion": [said("d")]},
        [user("a"), said("b", train=False), said("w", weight=1), user("c"), said("d")],
    ),
    "null columns of other formats": (
        {"messages": None, "instruction": None, "conversations": [{"from": "human", "value": "q"}], "chosen": None},
        [user("q")],
    ),
    "reasoning": ({"messages": REASONED}, REASONED),
}  # fmt: skip
EXTRA = {"source": "mine:7", "weight": 2, "meta": {"a": None}}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_known_formats_become_messages(name):
    row, messages = ROWS[name]
    before = copy.deepcopy(row)
    made = to_messages(row)
    assert made["messages"] == messages
    assert row == before
    assert to_messages(made) == made


@pytest.mark.parametrize("name", ROWS)
def test_other_columns_stay_and_do_not_leak_into_messages(name):
    row, messages = ROWS[name]
    made = to_messages({**row, **EXTRA})
    assert made["messages"] == messages
    assert {key: made[key] for key in EXTRA} == EXTRA


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("openai", "messages"),
        ("glaive", "sharegpt"),
        ("alpaca", "alpaca"),
        ("prompt and completion", "prompt_completion"),
    ],
)
def test_a_format_that_is_named_reads_what_is_recognised_by_itself(name, form):
    assert to_messages(ROWS[name][0], form) == to_messages(ROWS[name][0])


def test_a_named_format_settles_what_fits_several_and_what_is_no_pair():
    both = {"messages": [user("m")], "conversations": [{"from": "human", "value": "c"}], "chosen": 1, "rejected": 2}
    assert to_messages(both, "messages") == {"messages": [user("m")]}
    assert to_messages(both, "sharegpt") == {"messages": [user("c")]}
    labelled = {"prompt": "p", "completion": "c", "label": False}
    assert to_messages(labelled, "prompt_completion")["messages"] == [user("p"), said("c")]


@pytest.mark.parametrize(
    ("tools", "read"),
    [([WEATHER], [WEATHER]), (json.dumps([WEATHER]), [WEATHER]), (None, None), ("", None), (" ", None), ("null", None),
     ("[]", []), ([json.dumps(WEATHER)], [json.dumps(WEATHER)])],
)  # fmt: skip
@pytest.mark.parametrize("name", ["openai", "sharegpt", "alpaca", "prompt and completion"])
def test_a_tools_column_is_a_list_or_json_text_of_one(tools, read, name):
    assert to_messages({**ROWS[name][0], "tools": tools}).get("tools") == read


REFUSED = [
    (None, "the row is None, expected a mapping"),
    ([user("q")], "the row is [{"),
    ({}, "the row holds no 'messages' (found nothing)"),
    ({"text": "x", 3: None}, "the row holds no 'messages' (found 3: null, text)"),
    ({"prompt": "p"}, "(found prompt)"),
    ({"instruction": "i", "response": "r"}, "(found instruction, response)"),
    ({"messages": [user("q")], "conversations": [1], "id": 4}, "fits the formats messages and sharegpt (found conversations, id, messages)"),
    ({"instruction": "i", "output": "o", "prompt": "p", "completion": "c"}, "fits the formats alpaca and prompt_completion"),
    ({"prompt": "p", "chosen": "a", "rejected": "b"}, "holds chosen and rejected, a preference pair (found chosen, prompt, rejected)"),
    ({"messages": [user("q")], "chosen": "a", "rejected": "b"}, "holds chosen and rejected"),
    ({"prompt": "p", "completion": "c", "label": True}, "a completion with a label"),
    ({"messages": "hi"}, "has messages of 'hi'"),
    ({"messages": []}, "has messages of []"),
    ({"messages": {"role": "user"}}, "has messages of {'role': 'user'}"),
    ({"messages": [user("q"), None]}, "messages[1] is None"),
    ({"messages": [user("q")], "tools": "{"}, "has tools of '{'"),
    ({"messages": [user("q")], "tools": '{"a": 1}'}, "has tools of '{\"a\": 1}'"),
    ({"messages": [user("q")], "tools": 3}, "has tools of 3"),
    ({"conversations": []}, "has conversations of []"),
    ({"conversations": ["hi"]}, "conversations[0] is 'hi'"),
    ({"conversations": [{"value": "hi"}]}, "conversations[0] is {'value': 'hi'}, expected an object with from"),
    ({"conversations": [{"from": "human"}]}, "conversations[0] is {'from': 'human'}, expected a value"),
    ({"conversations": [{"role": "user"}]}, "expected a value"),
    ({"conversations": [{"from": "human", "value": "q"}, {"from": "wizard", "value": "x"}]}, "conversations[1] has from 'wizard', expected one of system, human"),
    ({"conversations": [{"from": 3, "value": "x"}]}, "conversations[0] is"),
    ({"conversations": [{"from": "human", "role": "user", "value": "x"}]}, "conversations[0] has from and role"),
    ({"conversations": [{"from": "human", "content": "y", "value": "x"}]}, "conversations[0] has value and content"),
    ({"conversations": [{"from": "function_call", "value": "f()"}]}, "conversations[0] is a call of 'f()'"),
    ({"conversations": [{"from": "function_call", "value": "[]"}]}, "conversations[0] is a call of '[]'"),
    ({"conversations": [{"from": "function_call", "value": '{"arguments": {}}'}]}, "conversations[0] is a call"),
    ({"conversations": [{"from": "function_call", "value": "3"}]}, "conversations[0] is a call"),
    ({"conversations": [{"from": "system", "value": "a"}], "system": "b"}, "holds a system text and conversations begin"),
    ({"conversations": [{"from": "human", "value": "a"}], "system": 3}, "has system of 3"),
    ({"instruction": 3, "output": "o"}, "has instruction of 3, expected a text"),
    ({"instruction": "i", "output": ["o"]}, "has output of ['o']"),
    ({"instruction": "", "input": " ", "output": "o"}, "has an empty instruction and no input"),
    ({"instruction": "i", "output": "o", "history": "x"}, "has history of 'x'"),
    ({"instruction": "i", "output": "o", "history": [["a", "b"], ["c"]]}, "has history[1] of ['c']"),
    ({"prompt": "p", "completion": [said("c")]}, "has prompt of 'p' and completion of [{"),
    ({"prompt": [user("p")], "completion": []}, "has completion of []"),
    ({"prompt": ["p"], "completion": [said("c")]}, "prompt[0] is 'p'"),
    ({"prompt": 1, "completion": 2}, "has prompt of 1"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "words"), REFUSED)
def test_what_is_no_row_of_one_format_is_refused_with_what_it_holds(row, words):
    with pytest.raises(TemplateError) as caught:
        to_messages(row)
    assert words in str(caught.value)
    assert caught.value.code == "invalid_format"
    assert caught.value.hint


def test_a_preference_pair_is_told_what_to_do():
    with pytest.raises(TemplateError, match="keep the better one as messages or prompt and completion"):
        to_messages({"prompt": "p", "chosen": "a", "rejected": "b"})


@pytest.mark.parametrize("form", ["messages", "sharegpt", "alpaca", "prompt_completion"])
def test_a_named_format_whose_columns_are_absent_is_refused(form):
    with pytest.raises(TemplateError, match=rf"found messages: null, text\), expected format '{form}'"):
        to_messages({"text": "x", "messages": None}, form)


@pytest.mark.parametrize("form", ["chatml", "", None, ["messages"]])
def test_a_format_that_does_not_exist_is_an_invalid_option(form):
    with pytest.raises(TemplateError, match="pass auto, messages, sharegpt, alpaca, prompt_completion") as caught:
        to_messages({"messages": [user("q")]}, form)
    assert caught.value.code == "invalid_option"


def test_arrays_are_lists_as_tables_of_numpy_give_them():
    messages = np.array([user("p"), said("q")], dtype=object)
    assert to_messages({"messages": messages})["messages"] == [user("p"), said("q")]


def test_a_builder_takes_rows_of_any_format_and_skips_those_of_none():
    rows = [
        {"messages": [user("p"), said("q")]},
        {"conversations": [{"from": "human", "value": "p"}, {"from": "gpt", "value": "q"}]},
        {"instruction": "p", "output": "q", "text": "r"},
        {"prompt": "p", "completion": "q"},
        {"prompt": "p", "chosen": "q", "rejected": "r", "source": "pairs:1"},
    ]
    built = SampleBuilder(toy_template("T-PLAIN"), on_error="skip").build(rows)
    assert len(built.samples) == 4
    assert all(sample == built.samples[0] for sample in built.samples)
    assert [(skipped.source, skipped.code) for skipped in built.skipped] == [("pairs:1", "invalid_format")]
    columns = {"prompt": ["p", "p"], "completion": ["q", "q"], "other": [1, 2]}
    assert len(SampleBuilder(toy_template("T-PLAIN"))(columns)["tokens"]) == 2


def test_replies_in_a_prompt_do_not_train():
    row = {"prompt": [user("p"), said("q"), user("p")], "completion": [said("q")]}
    built = SampleBuilder(toy_template("T-PLAIN")).build([row])
    assert [sample.info["message_index"] for sample in built.samples] == [3]


texts = st.text(min_size=1).filter(str.strip)
rounds = st.lists(st.tuples(texts, texts), min_size=1, max_size=4)


@given(system_text=st.none() | texts, pairs=rounds)
def test_a_conversation_survives_every_format(system_text, pairs):
    head = [] if system_text is None else [system(system_text)]
    messages = head + [message for asked, answer in pairs for message in (user(asked), said(answer))]
    names = {"system": "system", "user": "human", "assistant": "gpt"}
    sharegpt = [{"from": names[message["role"]], "value": message["content"]} for message in messages]
    alpaca = {"instruction": pairs[-1][0], "output": pairs[-1][1], "history": [list(pair) for pair in pairs[:-1]]}
    for row in (
        {"messages": messages},
        {"conversations": messages},
        {"conversations": sharegpt},
        {"conversations": sharegpt[len(head) :], "system": system_text},
        {**alpaca, "system": system_text},
    ):
        assert to_messages(row) == {"messages": messages}
    split = to_messages({"prompt": messages[:-1], "completion": messages[-1:]})["messages"]
    assert [{key: message[key] for key in ("role", "content")} for message in split] == messages
    assert to_messages({"prompt": pairs[0][0], "completion": pairs[0][1]}) == {
        "messages": [user(pairs[0][0]), said(pairs[0][1])]
    }
