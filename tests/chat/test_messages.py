"""A caller's messages become what the template reads, on a copy."""

from __future__ import annotations

import copy

import pytest
import real_tokenizers as real
from real_tokenizers import toy, toy_template, trained_text, with_template

from samplekit.chat import ChatTemplate
from samplekit.errors import TemplateError

USER = {"role": "user", "content": "q"}


def reply(content="k", **fields):
    return {"role": "assistant", "content": content, **fields}


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": null}'}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "default": None}}}


def test_what_the_caller_holds_is_never_changed():
    messages = [USER, reply(None, tool_calls=[CALL], name=None, weight=1), {"role": "tool", "content": "r"}, reply()]
    tools = [copy.deepcopy(TOOL)]
    before = copy.deepcopy((messages, tools))
    toy_template("T-TOOLS", sanitize=True).turns(messages, tools)
    assert (messages, tools) == before


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (None, "messages is None"),
        ("hi", "messages is a str"),
        ({"role": "user"}, "messages is a dict"),
        (3, "messages is a int"),
        ([], "messages is empty"),
        ([None], "message 0: is None"),
        (["hi"], "message 0: is a str"),
        ([{"content": "q"}], "message 0: role is None"),
        ([{"role": "", "content": "q"}], "message 0: role is ''"),
        ([{"role": 3, "content": "q"}], "message 0: role is 3"),
        ([USER, reply(3)], "message 1: content is a int"),
        ([USER, reply(float("nan"))], "message 1: content is a float"),
        ([USER, reply(b"k")], "message 1: content is a bytes"),
        ([USER, reply({"type": "text"})], "message 1: content is a dict"),
        ([USER, reply([{"type": "text"}])], "message 1: content part 0"),
        ([USER, reply([3])], "message 1: content part 0"),
        ([USER, reply(tool_calls={"name": "f"})], "message 1: tool_calls is a dict"),
        ([USER, reply(tool_calls=3)], "message 1: tool_calls is a int"),
        ([USER, reply(tool_calls=["f"])], "message 1: tool call 0"),
        ([USER, reply(tool_calls=[{"function": {"arguments": {}}}])], "message 1: tool call 0 has no name"),
        ([USER, reply(tool_calls=[{"function": 3}])], "message 1: tool call 0 has no function"),
        ([USER, reply(tool_calls="[bad")], "message 1: tool_calls is not JSON"),
        ([USER, reply(train=1)], "message 1: train is 1"),
        ([USER, reply(reasoning=3)], "message 1: reasoning is a int"),
        ([USER, reply(reasoning="a", thinking="b")], "message 1: reasoning and thinking hold different"),
    ],
)
def test_what_is_no_message_is_refused_with_its_place(messages, words):
    with pytest.raises(TemplateError) as caught:
        toy_template("T-TOOLS").turns(messages)
    assert caught.value.code == "invalid_message"
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ("{bad", "tools is not JSON"),
        ({"a": 1}, "tools is a dict"),
        (3, "tools is a int"),
        ([3], "tools[0]"),
        (["x"], "tools[0]"),
    ],
)
def test_what_is_no_list_of_tools_is_refused_with_its_place(tools, words):
    with pytest.raises(TemplateError) as caught:
        toy_template("T-TOOLS").turns([USER, reply()], tools)
    assert words in str(caught.value)


@pytest.mark.parametrize("tools", [[TOOL], (TOOL,), '[{"type": "function", "function": {"name": "f"}}]'])
def test_a_tools_column_may_be_a_list_or_json_text(tools):
    template = toy_template("T-TOOLS")
    (turn,) = template.turns([USER, reply()], tools)
    assert template.decode(turn.tokens) == "<s>T:f<e><u>q<e><a>k<e>"


@pytest.mark.parametrize("tools", [None, [], "", "null", "[]", ()])
def test_no_tools_is_no_tools(tools):
    template = toy_template("T-TOOLS")
    assert template.turns([USER, reply()], tools)[0].tokens == template.turns([USER, reply()])[0].tokens


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
@pytest.mark.parametrize("name", ["qwen3", "gptoss", "lfm2_2_5_v2", "glm4moe"])
def test_reasoning_goes_to_the_key_that_the_template_reads(key, name):
    template = ChatTemplate(real.byte_level(name, real.trl_template(name)))
    (turn,) = template.turns([USER, reply("Four it is.", **{key: "because so"})])
    text = trained_text(template, turn)
    assert "because so" in text
    assert text.index("because so") < text.index("Four it is.")


@pytest.mark.parametrize("name", ["smolvlm", "idefics3", "llava_next"])
@pytest.mark.parametrize(
    "content", ["Hello there", [{"type": "text", "text": "Hello "}, {"type": "text", "text": "there"}]]
)
def test_templates_that_want_parts_get_parts(name, content):
    template = ChatTemplate(real.byte_level(name, real.trl_template(name)))
    (turn,) = template.turns([{"role": "user", "content": content}, reply(content)])
    assert template.decode(turn.tokens).count("Hello there") == 2


TEXT_ARGUMENTS = (
    "{% for m in messages %}{{ '<' ~ m.role[0] ~ '>' ~ m.content }}{% for c in m.tool_calls or [] %}"
    "{{ c.function.name + c.function.arguments }}{% endfor %}{{ '<e>' }}{% endfor %}{% if add_generation_prompt %}{{ '<a>' }}{% endif %}"
)


@pytest.mark.parametrize(
    ("given", "expected"), [('{"a":1}', '{"a":1}'), ({"a": 1}, '{"a": 1}'), ({"a": "é"}, '{"a": "é"}')]
)
@pytest.mark.parametrize("joiner", ["+", "~"])
def test_templates_that_want_arguments_as_text_get_text(given, expected, joiner):
    source = TEXT_ARGUMENTS.replace("name +", f"name {joiner}")
    template = ChatTemplate(with_template(toy(), source))
    call = {"type": "function", "function": {"name": "f", "arguments": given}}
    (turn,) = template.turns([USER, reply("", tool_calls=[call])])
    assert trained_text(template, turn) == f"f{expected}<e>"


def test_null_and_missing_content_are_empty_text():
    template = toy_template("T-PLAIN")
    for message in ({"role": "assistant", "content": None}, {"role": "assistant"}):
        (turn,) = template.turns([USER, message])
        assert template.decode(turn.tokens) == "<u>q<e><a><e>"


def test_tuples_and_generators_of_messages_are_lists():
    template = toy_template("T-PLAIN")
    expected = template.turns([USER, reply()])[0].tokens
    assert template.turns((USER, reply()))[0].tokens == expected
    assert template.turns(message for message in (USER, reply()))[0].tokens == expected


def test_a_lone_surrogate_is_a_named_error():
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(real.qwen3()).turns([{"role": "user", "content": "a\ud800"}, reply()])
    assert caught.value.code == "encoding_failed"
