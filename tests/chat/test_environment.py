"""The fast environment renders what transformers' own does."""

from __future__ import annotations

import datetime as dt
from functools import cache

import jinja2
import pytest
import real_tokenizers as real
from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

from samplekit.chat.environment import chat_environment
from samplekit.chat.render import Renderer
from samplekit.errors import TemplateError

TOOLS = [{
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Where"}, "days": {"type": "integer", "default": None}},
            "required": ["city"],
        },
    },
}]  # fmt: skip
CALL = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}},
}
CHATS = [
    [{"role": "user", "content": "hi"}],
    [{"role": "system", "content": "Be <b>kind</b> & brief."}, {"role": "user", "content": "hi\n"}],
    [
        {"role": "user", "content": " a "},
        {"role": "assistant", "content": "<think>\nx\n</think>\n\nb"},
        {"role": "user", "content": "c"},
    ],
    [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "r", "thinking": "r"},
    ],
    [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": '{"temp": 12}'},
        {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "cold"},
        {"role": "assistant", "content": "12 degrees"},
    ],
]
CLOCK = dt.datetime(2025, 3, 4, 5, 6, 7, tzinfo=dt.UTC)
ODD = [
    "{{ messages[0].items() | list }}{{ messages[0].keys() | list }}{{ messages[0].get('x', 'none') }}",
    "{{ messages[0].missing is defined }}{{ messages[0].missing }}{{ messages[0]['missing'] }}",
    "{{ messages[0].__class__ }}|{{ messages[0].content.__len__ }}",
    "{{ messages[0].clear }}|{{ messages.append }}|{{ messages[0].pop }}|{{ messages[0].update }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].pop('role') }}",
    "{{ messages[0].setdefault('role', 1) }}",
    "{{ '{0.__class__}'.format(messages) }}",
    "{{ '{a}'.format_map({'a': 1}) }}|{{ 'x{}'.format(3) }}|{{ messages[0].content.format }}",
    "{% for m in messages %}{{ loop.index0 }}{{ loop.last }}{{ loop.previtem is defined }}{{ loop.cycle('a', 'b') }}{{ loop.changed(m.role) }}{{ loop.length }}{% endfor %}",
    "{% for m in messages recursive %}{{ loop.depth }}{{ loop._x is defined }}{{ loop.nope is defined }}{% endfor %}",
    "{% set ns = namespace(a=1, items=2) %}{% set ns.b = ns.a %}{{ ns.a }}{{ ns.b }}{{ ns.items }}{{ ns.c is defined }}{{ ns.__class__ }}",
    "{% set ns = namespace(f='x'.join) %}{{ ns.f(['a', 'b']) }}",
    "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% break %}{% endfor %}",
    "{% generation %}{% set x = 1 %}{{ messages[0].content }}{% endgeneration %}{{ x is defined }}",
    "{% for m in messages %}{% generation %}{{ m.role }}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "{{ {'items': 1, 'a': 2}.items }}|{{ {'get': 1}.get }}|{{ {'x': 1}.x }}",
    "{{ messages | tojson }}{{ messages | tojson(indent=2) }}{{ messages | tojson(true, none, [',', ':'], true) }}",
    "{{ messages[0].content.split('i') }}{{ messages[0].content.upper().strip('H') }}{{ 'a'.encode }}",
    "{{ strftime_now('%Y') is string }}{{ strftime_now is defined }}{{ documents is defined }}{{ documents is none }}{{ tools is none }}",
    "{% macro f(x) %}{{ x.role }}{{ caller() if caller }}{% endmacro %}{{ f(messages[0]) }}{% call f(messages[0]) %}!{% endcall %}",
    "{{ raise_exception('no') }}",
    "{{ messages[0].content | nofilter }}",
    "{{ 1 // 0 }}",
    "{{ messages[9].role }}",
    "{{ (messages[0].content)['upper']() }}{{ messages[0]['items'] }}",
    "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    "{{ range(99999999) }}",
    "{{ undefined_name.attribute }}",
    "{{ messages[0].content.startswith('h', x=1) }}",
]


def theirs(source, messages, tools=None, **kwargs):
    try:
        rendered, _ = render_jinja_template([messages], tools=tools, chat_template=source, **kwargs)
    except Exception as error:  # noqa: BLE001 - whatever a template raises
        return type(error)
    return rendered[0]


@cache
def compiled(source):
    return Renderer(source, {}, "")


def ours(source, messages, tools=None, **kwargs):
    generation = kwargs.pop("add_generation_prompt", False)
    try:
        return compiled(source).render(
            messages, tools, kwargs, reply_follows=generation, clock=dt.datetime.now().astimezone()
        )
    except TemplateError as error:
        return type(error.__cause__)


@pytest.mark.parametrize("name", real.trl_names())
def test_every_published_template_renders_the_same(name):
    source = real.trl_template(name)
    for messages in CHATS:
        for tools in (None, TOOLS):
            for generation in (False, True):
                options = {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": generation}
                expected = theirs(source, messages, tools, **options)
                assert ours(source, messages, tools, **options) == expected


@pytest.mark.parametrize("source", ODD)
def test_odd_templates_render_or_fail_the_same(source):
    for messages in CHATS[:3]:
        expected = theirs(source, messages)
        found = ours(source, messages)
        if isinstance(expected, str):
            expected, found = (text.split(" at 0x")[0] for text in (expected, found))
        assert found == expected


def test_the_environment_is_set_up_as_transformers_sets_its_own():
    theirs_, ours_ = _compile_jinja_template("{{ messages }}").environment, chat_environment()
    assert set(theirs_.filters) == set(ours_.filters)
    assert set(theirs_.tests) == set(ours_.tests)
    assert set(theirs_.globals) - set(ours_.globals) == {"strftime_now"}
    names = ("trim_blocks", "lstrip_blocks", "keep_trailing_newline", "autoescape", "sandboxed", "undefined")
    assert {name: getattr(theirs_, name) for name in names} == {name: getattr(ours_, name) for name in names}


@pytest.mark.parametrize(
    "source", ["{% if %}", "{{ a", "{% nosuchtag %}", "{% for x in y %}", "\x00{{", "{{ '" + "x" * 9]
)
def test_a_template_that_does_not_compile_is_a_named_error(source):
    with pytest.raises(TemplateError) as caught:
        Renderer(source, {}, "broken")
    assert caught.value.code == "template_raised"
    assert "broken" in str(caught.value)


def test_the_error_of_a_template_carries_its_own_words():
    renderer = Renderer("{{ raise_exception('roles must alternate') }}", {}, "toy")
    with pytest.raises(TemplateError, match=r"message 3.*'roles must alternate'") as caught:
        renderer.render([], None, {}, reply_follows=True, clock=CLOCK, index=3)
    assert isinstance(caught.value.__cause__, jinja2.TemplateError)
