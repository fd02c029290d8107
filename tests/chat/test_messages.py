"""A caller's messages become what the template reads, on a copy."""

from __future__ import annotations

import copy

import numpy as np
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


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"content": None},
        {"text": "yo"},
        {"contents": "yo"},
        {"value": "yo"},
        {"content": None, "refusal": "no"},
        {"content": None, "audio": {"transcript": "yo"}},
        {"content": None, "tool_calls": []},
        {"content": None, "reasoning": " "},
        {"content": None, "finish_reason": "length"},
    ],
)
@pytest.mark.parametrize("role", ["assistant", "user", "system", "tool"])
def test_a_message_that_says_nothing_is_refused_with_its_keys(role, fields):
    template = toy_template("T-TOOLS")
    with pytest.raises(TemplateError) as caught:
        template.turns([USER, {"role": role, **fields}, USER, reply()])
    assert (caught.value.code, caught.value.message_index) == ("invalid_message", 1)
    assert all(key in str(caught.value) for key in fields)


def test_an_explicit_empty_text_is_an_empty_reply():
    template = toy_template("T-PLAIN")
    (turn,) = template.turns([USER, reply("")])
    assert template.decode(turn.tokens) == "<u>q<e><a><e>"


def test_calls_or_reasoning_need_no_content():
    assert toy_template("T-TOOLS").turns([USER, {"role": "assistant", "tool_calls": [CALL]}])
    template = ChatTemplate(real.byte_level("glm4moe", real.trl_template("glm4moe")))
    (turn,) = template.turns([USER, {"role": "assistant", "content": None, "reasoning_content": "because so"}])
    assert "because so" in trained_text(template, turn)


@pytest.mark.parametrize("content", [None, "", "text"])
def test_the_older_form_of_a_call_is_refused_by_name(content):
    with pytest.raises(TemplateError, match=r"function_call.*use tool_calls") as caught:
        toy_template("T-TOOLS").turns([USER, reply(content, function_call={"name": "f", "arguments": "{}"})])
    assert (caught.value.code, caught.value.message_index) == ("invalid_message", 1)


@pytest.mark.parametrize("weight", [10**400, 1e300, float("nan"), float("inf"), -1, True, "1", np.bool_(True)])
def test_a_weight_that_cannot_train_is_refused(weight):
    with pytest.raises(TemplateError, match="message 1: weight is") as caught:
        toy_template("T-PLAIN").turns([USER, reply(weight=weight)])
    assert caught.value.code == "invalid_message"


def test_a_weight_too_long_to_print_is_refused():
    with pytest.raises(TemplateError, match="message 1: weight is an int"):
        toy_template("T-PLAIN").turns([USER, reply(weight=10**5000)])


@pytest.mark.parametrize("weight", [2, 2.0, np.int64(2), np.float32(2), np.float64(2), np.uint8(2)])
def test_a_weight_may_be_a_number_of_numpy(weight):
    (turn,) = toy_template("T-PLAIN").turns([USER, reply(weight=weight)])
    assert turn.loss_mask[-1] == 2.0


def test_a_message_that_holds_itself_is_refused():
    cyclic = reply()
    cyclic["extra"] = cyclic
    with pytest.raises(TemplateError, match="message 1: holds itself") as caught:
        toy_template("T-PLAIN").turns([USER, cyclic])
    assert caught.value.code == "invalid_message"
    tool = copy.deepcopy(TOOL)
    tool["function"]["parameters"]["x"] = tool
    with pytest.raises(TemplateError, match="tools hold themselves"):
        toy_template("T-TOOLS").turns([USER, reply()], [tool])


def test_a_text_part_without_text_says_so():
    with pytest.raises(TemplateError, match="content part 0 has None for its text"):
        toy_template("T-PLAIN").turns([USER, reply([{"type": "text", "text": None}])])


def test_tuples_and_generators_of_messages_are_lists():
    template = toy_template("T-PLAIN")
    expected = template.turns([USER, reply()])[0].tokens
    assert template.turns((USER, reply()))[0].tokens == expected
    assert template.turns(message for message in (USER, reply()))[0].tokens == expected


def test_a_lone_surrogate_is_a_named_error():
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(real.qwen3()).turns([USER, reply(), {"role": "user", "content": "a\ud800"}, reply()])
    assert (caught.value.code, caught.value.message_index) == ("encoding_failed", 2)
    assert "content holds a lone surrogate at character 1" in str(caught.value)


def test_a_template_that_slices_texts_is_not_given_parts():
    source = "{% for m in messages %}{{ '<' ~ m.role[0] ~ '>' }}{{ m.content[:3] }}{{ '<e>' }}{% endfor %}{{ '<a>' if add_generation_prompt }}"
    template = ChatTemplate(with_template(toy(), source))
    for text in ("q", "much longer"):
        with pytest.raises(TemplateError) as caught:
            template.turns([{"role": "user", "content": text}, reply()])
        assert caught.value.code == "content_dropped"
