"""``{% generation %}`` marks held against what trains here: every difference has a rule, told twice, in text and in tokens.

The tokens are those of transformers' own ``return_assistant_tokens_mask``; the rules come from the text. Where no rule
is named the two sequences are one, and where they differ a rule is named.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
import real_tokenizers as real
from conversations import KINDS
from test_published_templates import template_of

from samplekit.chat import ChatTemplate
from samplekit.chat.merge import merge_turns
from samplekit.chat.report.marks import RULES, compare_kind, compare_marks, read_marks
from samplekit.chat.report.trials import KINDS as TRIED
from samplekit.chat.report.trials import PLAIN, Kind
from samplekit.errors import TemplateError

ALL_KINDS = [*TRIED, *(Kind(f"test: {name}", messages, tools) for name, (messages, tools) in KINDS.items())]


def marked_names() -> list[str]:
    return [name for name in real.trl_names() if "endgeneration" in real.trl_template(name)]


def rules_of(template, kind) -> set[str] | None:
    found = compare_kind(template.engine, kind, template.engine.clock())
    return None if found is None else {difference.rule for difference in found}


def marked_tokens(template, kind) -> tuple[list[int], list[int]]:
    """Ask transformers for the tokens of the whole conversation and the marks on them."""
    _, conversation, _ = template.engine.read(kind.messages, kind.tools)
    out = template.tokenizer.apply_chat_template(
        conversation.views, tools=conversation.tools, return_dict=True, return_assistant_tokens_mask=True
    )
    return without_context(out["input_ids"], out["assistant_masks"])


def without_context(tokens, mask) -> tuple[list[int], list[int]]:
    """Drop what stands behind the last token that trains: it changes nothing."""
    end = max((place for place, weight in enumerate(mask) if weight), default=-1) + 1
    return tokens[:end], [int(weight != 0) for weight in mask[:end]]


def our_tokens(template, kind) -> tuple[list[int], list[int]] | None:
    """Give the one sequence that trains here; None where there is none, or more than one."""
    try:
        turns = merge_turns(template.turns(kind.messages, kind.tools), None)
    except TemplateError:
        return None
    return without_context(turns[0].tokens, turns[0].loss_mask) if len(turns) == 1 else None


@pytest.mark.parametrize("name", marked_names())
def test_marks_equal_ours_where_no_rule_is_named_and_differ_by_what_the_rules_say(name):
    template = template_of(name)
    compared = 0
    for kind in ALL_KINDS:
        rules = rules_of(template, kind)
        if rules is None:
            continue
        compared += 1
        assert rules <= set(RULES) - {"unreadable"}
        assert (marked_tokens(template, kind) == our_tokens(template, kind)) is not bool(rules), (kind.name, rules)
        if rules == {"trains_after_stop"}:
            assert_only_text_after_stops_differs(template, kind)
    assert compared >= 10


def assert_only_text_after_stops_differs(template, kind) -> None:
    tokens, mask = marked_tokens(template, kind)
    (turn,) = merge_turns(template.turns(kind.messages, kind.tools), None)
    ours = [int(weight) for weight in turn.loss_mask]
    shared = min(len(ours), len(tokens))
    assert tokens[:shared] == turn.tokens[:shared]
    missed = [place for place, weight in enumerate(ours) if weight and not mask[place]]
    # At the end of a mark transformers takes the first token only of a character that is spelled by several.
    spelled = template.tokenizer(template.decode(tokens), add_special_tokens=False)
    assert all(spelled.token_to_chars(place) == spelled.token_to_chars(place - 1) for place in missed)
    more = [place for place, weight in enumerate(mask) if weight and (place >= len(ours) or not ours[place])]
    starts = [place for before, place in pairwise([-2, *more]) if place != before + 1]
    assert starts
    assert all(ours[place - 1] and tokens[place - 1] in template.stop_ids for place in starts)


def test_the_plain_chat_counts_as_the_project_s_page_says():
    found = {name: rules_of(template_of(name), PLAIN) for name in marked_names()}
    by_rules: dict[tuple[str, ...], list[str]] = {}
    for name, rules in found.items():
        by_rules.setdefault(tuple(sorted(rules)), []).append(name)
    assert by_rules.pop(()) == [
        "cohere2_training", "cohere_training", "glm4moe_training", "llama3_training", "llava_next_training",
    ]  # fmt: skip
    only_after_stop = by_rules.pop(("trains_after_stop",))
    written = {name: after_stop(name) for name in only_after_stop}
    assert {name for name, text in written.items() if text.strip()} == {"phi3_5_training", "phi3_training"}
    assert sorted(set(written.values())) == ["\n", "\n<|endoftext|>"]
    assert len(written) == 16
    assert by_rules.pop(("trains_the_prompt",)) == ["gptoss_training", "muse_glimmer_training"]
    assert by_rules.pop(("trains_after_stop", "trains_the_prompt")) == ["qwen2_5_training", "qwen3_5_nothink_training"]
    # The prompt opens a thinking block: the first kind closes it at once in what marks train, the second is sent another prompt.
    assert by_rules.pop(("no_sample", "trains_the_prompt")) == [
        "qwen3_5_think_training", "qwen3_6_training", "qwen3_8_training",
    ]  # fmt: skip
    assert by_rules.pop(("no_sample", "other_prompt")) == [
        "deepseek_r1_distill_training", "deepseekv3_training", "nemotron_3_5_lightning_training",
        "nemotron_3_nano_training", "nemotron_3_super_training", "nemotron_3_ultra_training",
    ]  # fmt: skip
    assert not by_rules


def after_stop(name) -> str:
    template = template_of(name)
    (difference,) = compare_kind(template.engine, PLAIN, template.engine.clock())
    return difference.example


@pytest.mark.parametrize("name", ["qwen3_training", "qwen2_5_training"])
def test_marks_differ_by_the_same_rules_on_a_real_vocabulary(name):
    template = ChatTemplate(real.qwen3(real.trl_template(name)))
    assert rules_of(template, PLAIN) == rules_of(template_of(name), PLAIN)


CHATML = (
    "{%- for m in messages -%}<u>{{ m.role }}{% if m.role == 'assistant' %}BODY{% else %}{{ m.content }}{% endif %}"
    "{%- endfor -%}{% if add_generation_prompt %}<u>assistant{% endif %}"
)


@pytest.mark.parametrize(
    ("body", "rules"),
    [
        ("{% generation %}{{ m.content }}<e>{% endgeneration %}", set()),
        ("{% generation %}{{ m.content }}{% endgeneration %}<e>", {"leaves_out_stop"}),
        ("{{ m.content[:3] }}{% generation %}{{ m.content[3:] }}<e>{% endgeneration %}", {"leaves_out_reply"}),
        ("{{ m.content }}<e>{% generation %}{% endgeneration %}", {"leaves_out_reply", "leaves_out_stop"}),
        (
            "{% generation %}{{ m.content }}<e>{% endgeneration %} {% generation %}.{% endgeneration %}",
            {"trains_context"},
        ),
        ("{% generation %}{{ m.content }}<e> .{% endgeneration %}", {"trains_after_stop"}),
        ("{{ m.content }}{% generation %}{% endgeneration %}", {"leaves_out_reply", "writes_no_stop"}),
        ("{% generation %}{{ m.content }}{% endgeneration %}", {"writes_no_stop"}),
        ("{% set x %}{% generation %}{{ m.content }}{% endgeneration %}{% endset %}{{ x | upper }}<e>", {"no_sample"}),
        (
            "{% set x %}{% generation %}{{ m.content }}{% endgeneration %}{% endset %}{{ x }}{{ x | length }}<e>",
            {"unreadable"},
        ),
    ],
)
def test_each_rule_is_named_for_what_it_says(body, rules):
    template = ChatTemplate(real.with_template(real.toy(), CHATML.replace("BODY", body)))
    assert rules_of(template, PLAIN) == rules


def test_marks_around_another_prompt_are_named():
    source = CHATML.replace("BODY", "{% generation %}{{ m.content }}<e>{% endgeneration %}")
    grafted = source.replace("<u>assistant{% endif %}", "<u>assistant<think></think>{% endif %}")
    assert rules_of(ChatTemplate(real.with_template(real.toy(), grafted)), PLAIN) == {"other_prompt"}


def test_a_template_without_marks_is_not_compared():
    template = ChatTemplate.load("samplekit/tiny")
    assert rules_of(template, PLAIN) is None
    assert not compare_marks(template.engine, [PLAIN], template.engine.clock()).present


def test_nested_marks_count_once():
    marked = read_marks("a\ufdd4b\ufdd4c\ufdd5d\ufdd5e")
    assert (marked.text, list(marked.covered)) == ("abcde", [0, 1, 1, 1, 0])
