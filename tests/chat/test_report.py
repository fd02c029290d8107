"""TemplateReport: what it finds in real templates, in templates written to be found out, and in hostile ones."""

from __future__ import annotations

import datetime as dt
import json

import pytest
import real_tokenizers as real
from test_hostile_templates import HOSTILE
from test_published_templates import template_of
from tokenizers.processors import TemplateProcessing

from samplekit import TemplateReport
from samplekit.chat import ChatTemplate
from samplekit.chat.refusals import HINTS
from samplekit.errors import TemplateError

CLOCK = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
LOOP = "{% for m in messages %}<u>{{ m.role }}\n{{ m.content }}<e>\n{% endfor %}"
ASK = "{% if add_generation_prompt %}<u>assistant\n{% endif %}"
RUNGS = {"strict", "split", "graft"}


def report_of(source: str, **options) -> TemplateReport:
    return ChatTemplate(real.with_template(real.toy(), source), clock=CLOCK, **options).report()


def verdicts(report) -> dict[str, str]:
    return {verdict.kind: verdict.outcome for verdict in report.verdicts}


@pytest.fixture(scope="module")
def qwen3_8() -> TemplateReport:
    return ChatTemplate(real.qwen3(real.trl_template("qwen3_8"))).report()


def test_a_template_that_fits_needs_nothing():
    report = ChatTemplate.load("samplekit/tiny").report()
    assert report.builds
    assert not report.advice
    assert {verdict.builds for verdict in report.verdicts} == {True}
    assert (report.stops.closing, report.stops.after) == ("<|im_end|>", "\n")
    assert "nothing: the defaults fit" in str(report)


def test_an_open_thinking_block_names_the_switch_that_was_tried(qwen3_8):
    assert not qwen3_8.builds
    assert verdicts(qwen3_8)["plain chat"] == "open_think_without_reasoning"
    assert qwen3_8.verdicts[0].remedy == "thinking=False"
    assert qwen3_8.thinking.switch == "enable_thinking"
    assert qwen3_8.thinking.prompt == "open block"
    assert "set enable_thinking=False (thinking=False) for replies without reasoning" in qwen3_8.thinking.advice
    assert "replies with reasoning need no setting" in qwen3_8.thinking.advice
    assert qwen3_8.advice[0].startswith("pass thinking=False for: plain chat")
    assert qwen3_8.advice[1] == "or pass thinking='auto', which sets enable_thinking for each reply that needs it"


def test_following_the_advice_builds_the_plain_chat():
    report = ChatTemplate(real.qwen3(real.trl_template("qwen3_8")), thinking=False).report()
    assert report.builds
    assert report.thinking.advice.startswith("enable_thinking=False is set")
    assert report.settings["thinking"] is False


def test_what_a_report_recommends_it_has_tried():
    for name in ("qwen3_8", "gemma", "nemotron_3_nano_training", "llama3"):
        report = template_of(name).report()
        auto = {v.kind: v.builds for v in template_of(name, thinking="auto").report().verdicts}
        for verdict in report.verdicts:
            if verdict.remedy.startswith("thinking="):
                (line,) = (line for line in report.advice if "thinking='auto'" in line)
                assert auto[verdict.kind] is not (verdict.kind in line.partition("except for: ")[2].split(", "))
            if verdict.remedy:
                key, _, value = verdict.remedy.partition("=")
                other = template_of(name, **{key: {"False": False, "True": True}.get(value, value.strip("'"))}).report()
                assert {v.kind: v.builds for v in other.verdicts}[verdict.kind]


@pytest.mark.parametrize("name", real.trl_names())
def test_every_published_template_gets_a_report_that_json_can_hold(name):
    report = template_of(name, clock=CLOCK).report()
    held = json.loads(json.dumps(report.to_dict()))
    assert held["builds"] == report.verdicts[0].builds == report.builds
    assert report.renders.found == "kept"
    for verdict in report.verdicts:
        assert set(verdict.outcome.split(", ")) <= RUNGS if verdict.builds else verdict.outcome in HINTS
        assert verdict.builds or verdict.hint
        assert verdict.message.endswith(verdict.hint)
    assert report.name in str(report)
    assert template_of(name, clock=CLOCK).report() == report


@pytest.mark.parametrize("source", HOSTILE)
@pytest.mark.parametrize("options", [{}, {"thinking": "auto", "after_stop": "mask", "train_tool_calls": False}])
def test_hostile_templates_are_reported_not_raised(source, options):
    try:
        template = ChatTemplate(real.with_template(real.toy(), source), **options)
    except TemplateError:
        return  # it does not compile: there is nothing to ask
    report = template.report()
    assert str(report)
    assert json.dumps(report.to_dict())


def test_roles_are_kept_dropped_or_refused_in_the_template_s_own_words():
    report = report_of(
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('No system  here.\nSorry.') }}"
        "{% elif m.role in ('user', 'assistant') %}<u>{{ m.role }}\n{{ m.content }}<e>\n{% endif %}{% endfor %}" + ASK
    )
    found = {role: answer.found for role, answer in report.roles.items()}
    assert found == {"system": "raises", "user": "kept", "assistant": "kept", "tool": "dropped", "developer": "dropped"}
    assert str(report.system_slot) == "raises ('No system here. Sorry.')"
    (system,) = (verdict for verdict in report.verdicts if verdict.kind == "system message")
    assert (system.outcome, system.remedy) == ("system_message_dropped", "system_slot='prepend_user'")
    assert "pass system_slot='prepend_user' for: system message" in report.advice


def test_tools_calls_and_results_are_asked_one_by_one():
    report = report_of(LOOP + ASK)
    assert (report.tools.found, report.tool_calls.found, report.tool_results.found) == ("dropped", "dropped", "kept")
    assert any("does not render tools, calls" in line for line in report.advice)
    kept = report_of(
        "{{ tools | tojson if tools }}{% for m in messages %}<u>{{ m.role }}\n{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments + '' }}){% endfor %}<e>\n"
        "{% endfor %}" + ASK
    )
    assert (kept.tools.found, kept.tool_calls.found, kept.arguments) == ("kept", "kept", "text")


def test_reasoning_is_asked_for_in_each_place():
    thought = "{% if m.reasoning_content and loop.last %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    report = report_of(LOOP.replace("{{ m.content }}", thought + "{{ m.content }}") + ASK)
    assert report.reasoning.key == "reasoning_content"
    assert (report.reasoning.reply.found, report.reasoning.earlier.found) == ("kept", "dropped")
    assert report_of(LOOP + ASK).reasoning.key is None
    assert template_of("qwen3").report().reasoning.earlier.found == "dropped"


def test_a_switch_that_is_not_declared_cannot_be_recommended():
    report = report_of(LOOP + "{% if add_generation_prompt %}<u>assistant\n<think>\n{% endif %}")
    assert report.thinking.switch is None
    assert report.thinking.prompt == "open block"
    assert "no setting builds replies without reasoning (open_think_without_reasoning)" in report.thinking.advice
    assert report.advice[-1].startswith("mend the plain chat first")


def test_kwargs_are_sorted_into_thinking_and_others():
    report = report_of("{{ enable_thinking }}{{ reasoning_effort }}{{ custom }}{{ eos_token }}" + LOOP + ASK)
    assert report.thinking.switch == "enable_thinking"
    assert report.thinking.others == ("reasoning_effort",)
    assert report.kwargs == ("custom",)


def test_variables_of_the_template_s_own_are_no_kwargs_unless_it_asks_whether_they_are_given():
    own = "{% if messages %}{% set mine = 1 %}{% endif %}{{ mine }}"
    asked = "{% if date is not defined %}{% set date = 'x' %}{% endif %}{{ date }}{{ tone | default('kind') }}"
    macro = "{% macro show(text) %}{{ text }}{% endmacro %}{{ text }}"
    assert report_of(own + asked + macro + LOOP + ASK).kwargs == ("date", "tone")


def test_what_closes_a_reply_is_split_at_the_stop():
    report = report_of(LOOP + ASK)
    assert (report.stops.strings, report.stops.closing, report.stops.after) == (("<e>",), "<e>", "\n")
    assert report.stops.ids == (real.toy().convert_tokens_to_ids("<e>"),)
    without = report_of(LOOP.replace("<e>", "") + ASK)
    assert (without.stops.closing, without.stops.appended) == (None, "<e>")
    assert "'<e>' is appended" in str(without)


def test_no_stop_at_all_is_the_first_thing_to_mend():
    report = ChatTemplate(real.with_template(real.toy(eos=None), LOOP.replace("<e>", "") + ASK)).report()
    assert not report.stops.strings
    assert verdicts(report)["plain chat"] == "no_stop_token"
    assert any(line.startswith("pass stop_tokens=") for line in report.advice)


def test_turns_merge_where_each_is_a_prefix_of_the_next_prompt():
    merged = {verdict.kind: verdict.merged for verdict in report_of(LOOP + ASK).verdicts}
    assert merged["three turns"] is True
    assert merged["plain chat"] is None
    numbered = report_of("{{ messages | length // 2 }}" + LOOP + ASK)
    assert {verdict.kind: verdict.merged for verdict in numbered.verdicts}["three turns"] is not True


class AddsBos:
    """A tokenizer that puts a BOS before every text it encodes with special tokens."""

    def __init__(self, source: str) -> None:
        self.inner = real.with_template(real.toy(), source)
        self.special_tokens_map = {"bos_token": "<bos>", "eos_token": "<e>"}

    def __getattr__(self, name):
        return getattr(self.__dict__["inner"], name)

    def encode(self, text, add_special_tokens=True):
        ids = self.inner.encode(text, add_special_tokens=False)
        return [self.inner.convert_tokens_to_ids("<bos>"), *ids] if add_special_tokens else ids


def test_a_double_bos_is_found():
    doubled = ChatTemplate(AddsBos("{{ bos_token }}" + LOOP + ASK)).report()
    assert (doubled.bos.template, doubled.bos.doubled, doubled.bos.added) == (True, True, "<bos>")
    assert "DOUBLED" in str(doubled)
    alone = ChatTemplate(AddsBos(LOOP + ASK)).report()
    assert (alone.bos.template, alone.bos.doubled, alone.bos.added) == (False, False, "<bos>")
    assert report_of("<bos>" + LOOP + ASK).bos.doubled is False


def test_a_fast_tokenizer_s_own_bos_is_found_doubled():
    tokenizer = real.byte_level("llama3", real.trl_template("llama3"))
    start = "<|begin_of_text|>"
    pair = [(start, tokenizer.convert_tokens_to_ids(start))]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(f"{start} $A", f"{start} $A $B", pair)
    assert ChatTemplate(tokenizer).report().bos.doubled
    assert not template_of("llama3").report().bos.doubled


@pytest.mark.parametrize(
    ("source", "prints"),
    [
        ("{{ strftime_now('%Y-%m-%d') }}", True),
        ("{% if false %}{{ strftime_now('%Y') }}{% endif %}", False),
        ("{% if tools %}{{ strftime_now('%d %b') }}{% endif %}", True),
        ("", False),
    ],
)
def test_a_date_is_found_where_it_is_printed(source, prints):
    report = report_of(source + LOOP + ASK)
    assert report.prints_date is prints
    assert ("pass clock=" in str(report)) is prints


def test_both_of_two_templates_are_examined():
    with_tools = LOOP.replace("<u>", "{{ tools | tojson if tools and loop.first }}<u>")
    tokenizer = real.with_template(real.toy(), None)
    tokenizer.chat_template = {"default": LOOP + ASK, "tool_use": with_tools + ASK}
    report = ChatTemplate(tokenizer).report()
    assert report.templates == ("default", "tool_use")
    assert report.tools.found == "kept"


def test_marks_stand_in_the_report_with_their_reasons():
    report = template_of("gemma_training").report()
    assert report.marks.present
    assert not report.marks.agree
    first = report.marks.differences[0]
    assert (first.rule, first.example) == ("trains_after_stop", "\n")
    assert "plain chat" in first.kinds
    assert first.why in str(report)
    assert template_of("llama3_training").report().marks.agree
    assert not template_of("llama3").report().marks.present


def test_a_report_is_frozen():
    report = report_of(LOOP + ASK)
    with pytest.raises(AttributeError):
        report.name = "other"
