"""turns() raises TemplateError and nothing else, whatever the template does."""

from __future__ import annotations

import numpy as np
import pytest
from real_tokenizers import toy, toy_template, with_template

from samplekit.chat import ChatTemplate, SampleBuilder
from samplekit.errors import AlignmentError, TemplateError

MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
HOSTILE = [
    "{{ messages[9].role.x }}",
    "{{ 1 // 0 }}",
    "{{ messages[0]['content'] | int + 'a' }}",
    "{{ messages | map(attribute='nope') | list | first | length }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].clear() }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ raise_exception('no') }}",
    "{{ raise_exception() }}",
    "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    "{{ range(10 ** 9) | list }}",
    "{{ messages | tojson(indent='x', sort_keys=3, nope=1) }}",
    "{{ {messages[0].content: 1}[messages] }}",
    "{{ strftime_now(3) }}",
    "{% include 'other' %}",
    "{% import 'other' as x %}",
    "{{ messages | batch(0) | list }}",
    "{{ 'x' * (10 ** 400) }}",
    "{{ messages[0].content.encode('utf-8').decode('utf-16') }}",
    "{{ none.a.b }}",
    "{{ tools[0].function.name }}",
    "{{ messages | sort(attribute='content.nope') | join }}{{ namespace(1) }}",
    "{% for m in messages recursive %}{{ loop([m]) }}{% endfor %}",
    "",
    " ",
    "constant",
    "{{ messages | length }}",
    "{% for m in messages %}{{ m.content }}{% endfor %}",
    "{{ messages | string }}",
    "{% for m in messages %}<e>{% endfor %}",
    "{{ messages[0].content }}<e>{{ '<a>' if add_generation_prompt else '<t>' }}{{ messages[-1].content }}",
    "{{ '\ud800' if false else '\\ud800' }}{{ messages[0].content }}",
    "{% if add_generation_prompt %}{{ 1 // 0 }}{% endif %}{{ messages }}",
    "{% if not add_generation_prompt %}{{ 1 // 0 }}{% endif %}{{ messages }}",
    "{% if messages | length == 2 %}{{ [][0].x }}{% endif %}<u>hi<a>",
    "\ufdd0{{ messages[0].content }}\ufdd1",
    "{{ messages[0].content }}{{ messages[1].content if messages[1] is defined }}\ufdd01\ufdd1<e>",
]


@pytest.mark.parametrize("source", HOSTILE)
@pytest.mark.parametrize(
    "options", [{}, {"thinking": "auto", "sanitize": True, "after_stop": "mask", "train_tool_calls": False}]
)
def test_only_template_errors_leave(source, options):
    for messages in (MESSAGES, [*MESSAGES, *MESSAGES], [{"role": "system", "content": "s"}, *MESSAGES]):
        try:
            template = ChatTemplate(with_template(toy(), source), **options)
        except TemplateError as error:
            assert error.code in ("template_raised", "no_chat_template")  # noqa: PT017 - either outcome is right
            return
        for call in (template.turns, template.samples, template.prompt):
            try:
                call(messages)
            except (TemplateError, AlignmentError) as error:
                assert str(error)  # noqa: PT017 - either outcome is right


@pytest.mark.parametrize("source", HOSTILE)
def test_a_builder_skips_such_rows_and_says_why(source):
    try:
        template = ChatTemplate(with_template(toy(), source))
    except TemplateError:
        return
    rows = [{"messages": MESSAGES, "source": "a"}, {"messages": [*MESSAGES, *MESSAGES], "source": "b"}]
    built = SampleBuilder(template, on_error="skip").build(rows)
    assert {skipped.source for skipped in built.skipped} | {sample.info["source"] for sample in built.samples} == {
        "a",
        "b",
    }
    assert built.stats["num_rows"] == 2


@pytest.mark.parametrize("content", ["a\x00b", "\ufdd0", "\ufdd00\ufdd1", "\ud800", "\U0010ffff", "\u2028", "\x85"])
@pytest.mark.parametrize("sanitize", [False, True])
def test_strange_characters_are_tokens_or_named_errors(qwen3, content, sanitize):
    template = ChatTemplate(qwen3.tokenizer, sanitize=sanitize)
    for messages in (
        [{**MESSAGES[0], "content": content}, MESSAGES[1]],
        [MESSAGES[0], {**MESSAGES[1], "content": content}],
    ):
        try:
            (turn,) = template.turns(messages)
        except TemplateError as error:
            assert error.code in ("invalid_message", "encoding_failed")  # noqa: PT017 - either outcome is right
        else:
            assert content in template.decode(turn.tokens)


class _Tokenizer:
    chat_template = "{{ messages[0].content }}<a>{{ messages[1].content if messages[1] is defined }}<e>"
    eos_token = "<e>"

    def encode(self, text, add_special_tokens):
        raise RuntimeError("out of order")


def test_a_tokenizer_that_fails_is_a_named_error():
    with pytest.raises(TemplateError, match=r"out of order") as caught:
        ChatTemplate(_Tokenizer()).turns(MESSAGES)
    assert caught.value.code == "encoding_failed"


LOOP = "{% for m in messages %}{{ '<u>' ~ m.content ~ '<e>' }}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ 1 // 0 }}" + LOOP, "ZeroDivisionError"),
        ("{{ nope.x }}" + LOOP, "'nope' is undefined"),
        ("{{ raise_exception('never') }}", "never"),
    ],
)
@pytest.mark.parametrize("slot", ["error", "drop", "prepend_user"])
def test_a_template_that_always_raises_is_not_blamed_on_the_system_message(source, words, slot):
    template = ChatTemplate(with_template(toy(), source), system_slot=slot)
    for call in (template.turns, template.prompt):
        with pytest.raises(TemplateError, match=words) as caught:
            call([{"role": "system", "content": "s"}, *MESSAGES])
        assert caught.value.code == "template_raised"


@pytest.mark.parametrize("ids", [[-1], [10**9], [2**64], "x", None, 5, ["x"], [True], [1.5], {1: 2}])
def test_what_is_no_id_is_not_decoded(tiny, ids):
    with pytest.raises(TemplateError, match=r"^ids") as caught:
        tiny.decode(ids)
    assert caught.value.code == "invalid_option"
    assert tiny.decode(np.array(tiny.encode("hi"))) == tiny.decode(tiny.encode("hi")) == "hi"


@pytest.mark.parametrize("text", [None, 5, b"x", ["x"]])
def test_what_is_no_text_is_not_encoded(tiny, text):
    with pytest.raises(TemplateError, match=r"^text is") as caught:
        tiny.encode(text)
    assert caught.value.code == "invalid_option"


@pytest.mark.parametrize("stops", [5, "<e>", [-1], [10**9], [2**64], [None], [True], {"<e>": 1}])
def test_what_is_no_list_of_stops_is_refused(stops):
    with pytest.raises(TemplateError, match=r"^stop_tokens") as caught:
        ChatTemplate(toy_template("T-PLAIN").tokenizer, stop_tokens=stops)
    assert caught.value.code == "invalid_option"


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        ({9: [1]}, "message 9"),
        ({0: [1]}, "message 0"),
        ({"1": [1]}, "message '1'"),
        (5, "prompts is 5"),
        ("a", "prompts is 'a'"),
        (["abc"], "prompts holds 'abc'"),
        ([[-1]], "prompts holds"),
        ([[1.5]], "prompts holds"),
        ([[[1]]], "prompts holds"),
        ([[10**30]], "prompts holds"),
        ([5], "prompts holds 5"),
    ],
)
def test_what_is_no_recorded_prompt_is_refused(tiny, prompts, words):
    with pytest.raises(TemplateError) as caught:
        tiny.turns(MESSAGES, prompts=prompts)
    assert caught.value.code == "invalid_option"
    assert words in str(caught.value)
