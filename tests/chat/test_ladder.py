"""The rungs, and the named reason for everything that stands on none."""

from __future__ import annotations

import pickle

import pytest
import real_tokenizers as real
from real_tokenizers import toy, toy_template, with_template

from samplekit.chat import ChatTemplate
from samplekit.errors import PrefixMismatchError, TemplateError

LOOP = "{% for m in messages %}{{ '<' ~ m.role[0] ~ '>' ~ m.content ~ '<e>' }}{% endfor %}"


def user(content="q"):
    return {"role": "user", "content": content}


def assistant(content="k", **fields):
    return {"role": "assistant", "content": content, **fields}


def of(source, **options):
    return ChatTemplate(with_template(toy(), source), **options)


def code_of(template, messages, tools=None, **options):
    with pytest.raises(TemplateError) as caught:
        template.turns(messages, tools, **options)
    assert type(pickle.loads(pickle.dumps(caught.value))) is type(caught.value)
    return caught.value.code, caught.value.message_index


def test_strict_where_the_ids_continue(qwen3):
    (turn,) = qwen3.turns([user(), assistant()])
    assert turn.mode == "strict"


def test_split_where_only_the_text_continues():
    template = ChatTemplate(real.qwen3(real.trl_template("qwen3_instruct_2507")))
    (turn,) = template.turns([user(), assistant("\nk")])
    assert turn.mode == "split"
    assert turn.tokens[: turn.prompt_length] == template.prompt([user()])
    assert template.decode(turn.tokens).endswith("<|im_start|>assistant\n\nk<|im_end|>")


GRAFT = LOOP + "{% if add_generation_prompt %}{{ '<a><think></think>' }}{% endif %}"


def test_graft_where_the_full_render_lacks_the_empty_thought_of_the_prompt():
    template = of(GRAFT)
    (turn,) = template.turns([user(), assistant()])
    assert turn.mode == "graft"
    assert template.decode(turn.tokens) == "<u>q<e><a><think></think>k<e>"
    assert turn.loss_mask == [0, 0, 0, 0, 0, 0, 1, 1]
    assert turn.tokens[: turn.prompt_length] == template.prompt([user()])


def test_no_graft_for_a_reply_with_reasoning():
    assert code_of(of(GRAFT), [user(), assistant("<think>r</think>k")]) == ("prefix_mismatch", 1)


@pytest.mark.parametrize("name", ["T-PREFILL", "T-OPENNL"])
def test_an_open_thought_needs_reasoning(name):
    assert code_of(toy_template(name), [user(), assistant()]) == ("open_think_without_reasoning", 1)


def test_an_open_thought_with_inline_reasoning_trains_from_inside_the_thought():
    template = toy_template("T-PREFILL")
    (turn,) = template.turns([user(), assistant("<think>r</think>k")])
    assert real.trained_text(template, turn) == "r</think>k<e>"


def test_a_template_that_closes_the_open_thought_at_once_is_refused():
    template = ChatTemplate(real.qwen3(real.trl_template("qwen3_8")))
    assert code_of(template, [user(), assistant("<think>\nr\n</think>\n\nk")]) == ("open_think_without_reasoning", 1)
    (turn,) = template.turns([user(), assistant("k", reasoning_content="r")])
    assert real.trained_text(template, turn) == "r\n</think>\n\nk<|im_end|>"


def test_the_hint_names_the_declared_switch():
    with pytest.raises(TemplateError, match=r"enable_thinking=False") as caught:
        ChatTemplate(real.qwen3(real.trl_template("qwen3_8"))).turns([user(), assistant()])
    assert "enable_thinking=False" in caught.value.hint


def test_another_header_in_the_prompt_is_a_prefix_mismatch_with_both_contexts():
    template = of(LOOP + "{% if add_generation_prompt %}{{ '<a>:' }}{% endif %}")
    with pytest.raises(PrefixMismatchError) as caught:
        template.turns([user(), assistant()])
    error = caught.value
    assert (error.code, error.message_index, error.index) == ("prefix_mismatch", 1, 10)
    assert error.prompt_context.endswith("<a>:")
    assert error.full_context.endswith("<a>k<e>")
    assert "prefix" in str(error)
    assert "index 10" in str(error)


def test_a_conversation_rewritten_for_its_reply_is_named():
    source = (
        "{% for m in messages %}{{ '<' ~ m.role[0] ~ '>' ~ (m.content if messages | length != 2 or loop.last else 'cut')"
        " ~ '<e>' }}{% endfor %}{% if add_generation_prompt %}{{ '<a>' }}{% endif %}"
    )
    assert code_of(of(source), [user("question"), assistant()]) == ("prompt_rewritten", 1)


def test_reasoning_that_no_render_shows_is_named(qwen3):
    assert code_of(toy_template("T-PLAIN"), [user(), assistant(reasoning_content="r" * 9)])[0] == (
        "reasoning_dropped_by_template"
    )
    (turn,) = qwen3.turns([user(), assistant(reasoning_content="because")])
    assert "because" in real.trained_text(qwen3, turn)


DROPS = (
    "{% for m in messages %}{{ '<' ~ m.role[0] ~ '>' ~ (m.content if m.role == ROLE else 'x') ~ '<e>' }}{% endfor %}"
)


@pytest.mark.parametrize(
    ("kept", "messages", "code", "index"),
    [
        ("user", [user("question"), assistant("answer")], "content_dropped", 1),
        ("assistant", [user("question"), assistant("answer")], "content_dropped", 0),
        ("assistant", [user("question"), assistant("one"), user("more"), assistant("two")], "content_dropped", 0),
    ],
)
def test_texts_that_no_render_shows_are_named(kept, messages, code, index):
    source = DROPS.replace("ROLE", f"'{kept}'") + "{% if add_generation_prompt %}{{ '<a>' }}{% endif %}"
    assert code_of(of(source), messages) == (code, index)


TOOL = {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object", "properties": {}}}}
CALL = {"type": "function", "function": {"name": "lookup", "arguments": {"a": 1}}}
RESULT = {"role": "tool", "content": "the result"}


def test_tools_calls_and_results_that_no_render_shows_are_named():
    plain = toy_template("T-PLAIN")
    assert code_of(plain, [user(), assistant()], [TOOL]) == ("tools_ignored", None)
    assert code_of(plain, [user(), assistant("", tool_calls=[CALL])]) == ("tool_calls_dropped", 1)
    without_results = of(
        "{% for m in messages if m.role != 'tool' %}{{ '<' ~ m.role[0] ~ '>' ~ m.content ~ (m.tool_calls | string"
        " if m.tool_calls else '') ~ '<e>' }}{% endfor %}{% if add_generation_prompt %}{{ '<a>' }}{% endif %}"
    )
    messages = [user(), assistant("", tool_calls=[CALL]), RESULT, assistant("done")]
    assert code_of(without_results, messages) == ("tool_result_dropped", 2)


@pytest.mark.parametrize("result", ["12", "e", " 4 ", "done", "q"])
def test_a_short_text_found_elsewhere_is_no_proof_that_it_was_rendered(result):
    source = (
        "{% for m in messages if m.role != 'tool' %}{{ '<' ~ m.role[0] ~ '>' ~ m.content ~ (m.tool_calls | string"
        " if m.tool_calls else '') ~ '<e>' }}{% endfor %}{% if add_generation_prompt %}{{ '<a>' }}{% endif %}"
    )
    messages = [user("12 4 done q"), assistant("", tool_calls=[CALL]), {**RESULT, "content": result}, assistant("12")]
    assert code_of(of(source), messages) == ("tool_result_dropped", 2)
    later = [user("Be kind."), assistant("a"), {"role": "system", "content": "a"}, user("b"), assistant("c")]
    keeps_first = "{% for m in messages if m.role != 'system' %}" + LOOP[len("{% for m in messages %}") :]
    asked = keeps_first + "{% if add_generation_prompt %}{{ '<a>' }}{% endif %}"
    assert code_of(of(asked), later) == ("system_message_dropped", 2)


def test_a_prompt_that_drops_what_was_said_is_refused_too():
    template = toy_template("T-PLAIN")
    with pytest.raises(TemplateError) as caught:
        template.prompt([user()], [TOOL])
    assert caught.value.code == "tools_ignored"


def test_a_tool_flow_trains_calls_and_replies_but_never_results():
    template = toy_template("T-TOOLS")
    messages = [user(), assistant("", tool_calls=[CALL]), RESULT, {**RESULT, "content": "another"}, assistant("done")]
    first, second = template.turns(messages, [TOOL])
    assert real.trained_text(template, first) == '{lookup:{"a": 1}}<e>'
    assert real.trained_text(template, second) == "done<e>"
    assert "[the result][another]" in template.decode(second.tokens[: second.prompt_length])


@pytest.mark.parametrize("option", ["error", "drop", "prepend_user"])
def test_a_template_without_a_system_slot(mistral_v1, option):
    template = ChatTemplate(mistral_v1.tokenizer, system_slot=option)
    messages = [{"role": "system", "content": "Be brief."}, user("Hello"), assistant("Hi")]
    if option == "error":
        assert code_of(template, messages) == ("system_message_dropped", 0)
        with pytest.raises(TemplateError):
            template.prompt(messages)
        return
    (turn,) = template.turns(messages)
    assert turn.message_index == 2
    assert turn.info["system_slot"] == option
    expected = "Be brief.\n\nHello" if option == "prepend_user" else "Hello"
    prompt = mistral_v1.prompt([user(expected)])
    assert turn.tokens[: turn.prompt_length] == prompt == template.prompt([messages[0], messages[1]])


def test_the_option_for_the_system_slot_changes_nothing_where_there_is_one(llama2):
    messages = [{"role": "system", "content": "Be brief."}, user("Hello"), assistant("Hi")]
    (turn,) = ChatTemplate(llama2.tokenizer, system_slot="drop").turns(messages)
    assert "Be brief." in llama2.decode(turn.tokens)
    assert "system_slot" not in turn.info


def test_what_the_template_refuses_is_said_in_its_words():
    template = toy_template("T-ALT")
    with pytest.raises(TemplateError, match=r"roles must alternate") as caught:
        template.turns([user(), assistant(), assistant()])
    assert (caught.value.code, caught.value.message_index) == ("template_raised", 2)


def test_consecutive_replies_are_two_turns():
    template = toy_template("T-PLAIN")
    first, second = template.turns([user(), assistant("a"), assistant("b")])
    assert [real.trained_text(template, turn) for turn in (first, second)] == ["a<e>", "b<e>"]
    assert second.tokens[: second.prompt_length] == template.prompt([user(), assistant("a")])


def test_a_leading_reply_is_context_and_alone_an_error():
    template = toy_template("T-PLAIN")
    assert [turn.message_index for turn in template.turns([assistant(), user(), assistant()])] == [2]
    assert code_of(template, [assistant()]) == ("empty_prompt", 0)
    assert code_of(template, [assistant()], train_on="last") == ("empty_prompt", 0)
    assert code_of(template, [user()]) == ("no_final_reply", None)


def test_an_empty_reply_trains_its_stop():
    template = toy_template("T-PLAIN")
    (turn,) = template.turns([user(), assistant("")])
    assert real.trained_text(template, turn) == "<e>"


@pytest.mark.parametrize(
    ("content", "trained"), [("Let me look.", "Let me look.\n<|im_end|>"), ("", "<|im_end|>"), ("x", "x<|im_end|>")]
)
@pytest.mark.parametrize("calls", [1, 2])
def test_without_tool_calls_only_the_calls_span_is_left_out(content, trained, calls):
    tokenizer = real.qwen3(real.trl_template("qwen3_instruct_2507"))
    messages = [user(), assistant(content, tool_calls=[CALL] * calls)]
    (turn,) = ChatTemplate(tokenizer).turns(messages)
    (bare,) = ChatTemplate(tokenizer, train_tool_calls=False).turns(messages)
    assert bare.tokens == turn.tokens
    assert real.trained_text(ChatTemplate(tokenizer), bare) == trained
    toys = toy_template("T-TOOLS", train_tool_calls=False)
    (toy_turn,) = toys.turns(messages)
    assert real.trained_text(toys, toy_turn) == f"{content}<e>"


@pytest.mark.parametrize(("content", "trained"), [("Let me look.", "Let me look.\n"), ("", "")])
def test_without_tool_calls_a_call_cut_by_length_is_left_out_to_the_end_of_its_turn(content, trained):
    tokenizer = real.qwen3(real.trl_template("qwen3_instruct_2507"))
    messages = [user(), assistant(content, tool_calls=[CALL], finish_reason="length")]
    (bare,) = ChatTemplate(tokenizer, train_tool_calls=False).turns(messages)
    text = ChatTemplate(tokenizer).decode(bare.tokens[bare.prompt_length :])
    assert text.startswith(f"{trained}<tool_call>")
    assert not text.endswith("<|im_end|>")
    assert real.trained_text(ChatTemplate(tokenizer), bare) == trained


INLINE = "<think>\nBecause so.\n</think>\n\nFour it is."


@pytest.mark.parametrize("reply", [assistant(INLINE), assistant("Four it is.", reasoning_content="Because so.")])
def test_reasoning_behind_a_closed_empty_thought_is_refused(tiny, reply):
    with pytest.raises(TemplateError) as caught:
        tiny.turns([user(), reply])
    assert caught.value.message_index == 1
    assert caught.value.code in ("reasoning_dropped_by_template", "prefix_mismatch")
    auto = ChatTemplate(tiny.tokenizer, thinking="auto")
    (turn,) = auto.turns([user(), reply])
    assert auto.decode(turn.tokens).count("<think>") == 1


def test_inline_reasoning_behind_a_closed_empty_thought_says_what_to_do(tiny):
    assert code_of(tiny, [user(), assistant(INLINE)]) == ("reasoning_dropped_by_template", 1)
    with pytest.raises(TemplateError, match="thinking='auto'"):
        tiny.turns([user(), assistant(INLINE)])


@pytest.mark.parametrize(
    "text", ["<think>hmm", " <think>\nhmm", "so <think>hmm", "<think>a</think>b<think>c", "<thought>hmm"]
)
def test_a_reply_that_never_closes_its_thought_is_refused(tiny, qwen3, text):
    for template in (tiny, qwen3, of(LOOP + "{{ '<a>' if add_generation_prompt }}")):
        assert code_of(template, [user(), assistant(text)]) == ("invalid_message", 1)


def test_a_thought_may_stay_open_where_the_reply_was_cut_or_only_names_the_tag():
    template = ChatTemplate.load("samplekit/tiny")
    assert template.turns([user(), assistant("<think>hmm", finish_reason="length")])
    assert template.turns([user(), assistant("The tag `<think>` opens it.")])
