"""Template kwargs: only what the template reads, and the switch that is its own."""

from __future__ import annotations

import pytest
import real_tokenizers as real
from real_tokenizers import toy_template, trained_text

from samplekit.chat import ChatTemplate
from samplekit.errors import TemplateError

ASK = {"role": "user", "content": "What is 2 + 2?"}
PLAIN = [ASK, {"role": "assistant", "content": "4"}]
REASONED = [ASK, {"role": "assistant", "content": "4", "reasoning_content": "two and two"}]


def refused(tokenizer, **options):
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(tokenizer, **options)
    return caught.value


@pytest.mark.parametrize(
    "key", ["enable_thinkin", "add_generation_prompt", "messages", "tools", "nonsense", "chat_template"]
)
def test_a_name_the_template_does_not_read_is_refused(key):
    error = refused(real.qwen3(real.trl_template("qwen3_8")), **{key: True})
    assert error.code == "unknown_template_kwarg"
    assert key in str(error)


def test_the_refusal_suggests_the_nearest_name():
    assert "enable_thinking" in str(refused(real.qwen3(real.trl_template("qwen3_8")), enable_thinkin=True))


def test_a_name_read_only_to_see_whether_it_is_defined_is_known():
    template = toy_template("T-KW", style="bold")
    (turn,) = template.turns(PLAIN)
    assert template.decode(turn.tokens).startswith("<s>bold<e><u>")
    assert turn.info["template_kwargs"] == {"style": "bold"}


def test_special_tokens_may_be_given():
    tokenizer = real.byte_level("llama3", real.trl_template("llama3"))
    template = ChatTemplate(tokenizer, bos_token="")
    assert not template.decode(template.prompt(PLAIN)).startswith("<|begin_of_text|>")


@pytest.mark.parametrize("value", [True, False])
def test_true_and_false_set_the_switch_this_template_declares(value):
    template = ChatTemplate(real.qwen3(real.trl_template("qwen3_8")), thinking=value)
    (turn,) = template.turns(REASONED if value else PLAIN)
    assert turn.info["template_kwargs"] == {"enable_thinking": value}


@pytest.mark.parametrize("value", [True, False])
def test_without_a_switch_there_is_nothing_to_set(value):
    assert refused(real.byte_level("llama3", real.trl_template("llama3")), thinking=value).code == "invalid_option"


@pytest.mark.parametrize("value", ["on", None, 1, "true", "as rendered"])
def test_another_value_of_thinking_is_refused(value):
    assert refused(real.qwen3(), thinking=value).code == "invalid_option"


def test_thinking_and_its_own_kwarg_may_agree_but_not_disagree():
    tokenizer = real.qwen3(real.trl_template("qwen3_8"))
    ChatTemplate(tokenizer, thinking=False, enable_thinking=False)
    assert refused(tokenizer, thinking=True, enable_thinking=False).code == "invalid_option"


def test_auto_tries_the_default_first_and_then_the_switch_as_the_reply_needs_it():
    template = ChatTemplate(real.qwen3(real.trl_template("qwen3_8")), thinking="auto")
    (plain,) = template.turns(PLAIN)
    assert trained_text(template, plain) == "4<|im_end|>"
    assert plain.info["template_kwargs"] == {"enable_thinking": False}
    (reasoned,) = template.turns(REASONED)
    assert trained_text(template, reasoned) == "two and two\n</think>\n\n4<|im_end|>"
    assert "template_kwargs" not in reasoned.info
    mixed = template.turns([*PLAIN, *REASONED])
    assert [turn.info.get("template_kwargs") for turn in mixed] == [{"enable_thinking": False}, None]


def test_auto_gives_the_first_error_where_the_switch_does_not_help_either():
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(real.byte_level("deepseekv3", real.trl_template("deepseekv3")), thinking="auto").turns(PLAIN)
    assert caught.value.code == "open_think_without_reasoning"


def test_auto_does_not_overrule_the_callers_own_kwarg():
    template = ChatTemplate(real.qwen3(real.trl_template("qwen3_8")), thinking="auto", enable_thinking=True)
    with pytest.raises(TemplateError):
        template.turns(PLAIN)


@pytest.mark.parametrize(
    "options",
    [
        {"after_stop": "keep"},
        {"system_slot": "ignore"},
        {"clock": "2024-01-01"},
        {"clock": 3},
        {"sanitize": "no"},
        {"train_tool_calls": 0},
    ],
)
def test_an_option_that_means_nothing_is_refused(options):
    assert refused(real.qwen3(), **options).code == "invalid_option"


def test_named_templates_are_chosen_by_the_tools():
    tokenizer = real.with_template(real.toy(), None)
    tokenizer.chat_template = {"default": real.TOYS["T-PLAIN"], "tool_use": real.TOYS["T-TOOLS"]}
    template = ChatTemplate(tokenizer)
    tool = {"type": "function", "function": {"name": "f"}}
    assert template.decode(template.prompt([ASK])).startswith("<u>")
    assert template.decode(template.prompt([ASK], [tool])).startswith("<s>T:f<e><u>")


def test_a_tokenizer_without_a_template_is_a_named_error():
    tokenizer = real.with_template(real.toy(), None)
    tokenizer.chat_template = None
    assert refused(tokenizer).code == "no_chat_template"
