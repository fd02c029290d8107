"""What ends a reply, and what happens to what follows."""

from __future__ import annotations

import json

import pytest
import real_tokenizers as real

from samplekit.chat import ChatTemplate
from samplekit.errors import TemplateError

ASK = [{"role": "user", "content": "What is 2 + 2?"}]


def said(text, **fields):
    return [*ASK, {"role": "assistant", "content": text, **fields}]


def trained(template, messages):
    return [real.trained_text(template, turn) for turn in template.turns(messages)]


@pytest.mark.parametrize(
    ("name", "stops"),
    [
        ("qwen3", ["<|im_end|>"]),
        ("llama3_1", ["<|eot_id|>"]),
        ("phi3", ["<|endoftext|>", "<|end|>"]),
        ("gptoss", ["<|return|>", "<|call|>", "<|end|>"]),
        ("cohere2", ["<|END_RESPONSE|><|END_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"]),
        ("gemma", ["<end_of_turn>", "<eos>"]),
        ("glm4moe", ["<|endoftext|>"]),
        ("smolvlm", ["<end_of_utterance>"]),
    ],
)
def test_the_stop_set_of_published_templates(name, stops):
    template = ChatTemplate(real.byte_level(name, real.trl_template(name)))
    assert template.stop_strings == stops
    assert template.stop_ids == sorted({template.encode(stop)[-1] for stop in stops})


def test_a_reply_ends_at_its_first_stop_and_not_at_the_eos_behind_it():
    template = ChatTemplate(real.byte_level("phi3", real.trl_template("phi3")))
    (turn,) = template.turns(said("Four."))
    assert real.trained_text(template, turn) == "Four.<|end|>"
    assert turn.stop_token == template.encode("<|end|>")[0]
    kept = ChatTemplate(template.tokenizer, after_stop="mask")
    (turn,) = kept.turns(said("Four."))
    assert kept.decode(turn.tokens).endswith("Four.<|end|>\n<|endoftext|>")
    assert real.trained_text(kept, turn) == "Four.<|end|>"
    plain = ChatTemplate(template.tokenizer, after_stop="train")
    assert trained(plain, said("Four.")) == ["Four.<|end|>\n<|endoftext|>"]
    assert plain.turns(said("Four."))[0].info["after_stop"] == "train"


@pytest.mark.parametrize(
    ("thought", "text"), [("ok ok a", "ok"), ("a", "a"), ("n", "n"), ("final", "analysis"), ("|", "<")]
)
def test_a_stop_inside_the_reasoning_does_not_end_the_reply(thought, text):
    template = ChatTemplate(real.byte_level("gptoss", real.trl_template("gptoss")))
    assert trained(template, said(text, reasoning_content=thought)) == [
        f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant<|channel|>final<|message|>{text}<|return|>"
    ]


def test_a_tool_turn_may_close_with_a_stop_of_its_own():
    template = ChatTemplate(real.byte_level("gptoss", real.trl_template("gptoss")))
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    (turn,) = template.turns(said("", tool_calls=[call]))
    assert turn.stop_token == template.encode("<|call|>")[0]


BARE = "{% for m in messages %}{{ '<' ~ m.role[0] ~ '>' ~ m.content }}{% endfor %}{% if add_generation_prompt %}{{ '<a>' }}{% endif %}"


def test_a_certain_stop_is_appended_where_the_template_writes_none():
    template = ChatTemplate(real.with_template(real.toy(eos="<eos>"), BARE))
    (turn,) = template.turns([{"role": "user", "content": "p"}, {"role": "assistant", "content": "q"}])
    assert template.decode(turn.tokens) == "<u>p<a>q<eos>"
    assert turn.loss_mask == [0, 0, 0, 1, 1]
    assert turn.info["stop_appended"] is True


def test_the_callers_stop_is_the_one_appended():
    tokenizer = real.with_template(real.toy(eos="<eos>"), BARE)
    for stop in ("<e>", 7):
        template = ChatTemplate(tokenizer, stop_tokens=[stop])
        assert trained(template, [*ASK, {"role": "assistant", "content": "q"}]) == ["q<e>"]


def test_without_a_certain_stop_nothing_is_guessed():
    tokenizer = real.with_template(real.toy(), BARE)
    tokenizer = real.PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, chat_template=BARE)
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(tokenizer).turns([*ASK, {"role": "assistant", "content": "q"}])
    assert caught.value.code == "no_stop_token"


def test_the_header_of_the_next_turn_is_not_taken_for_a_stop():
    template = ChatTemplate(real.with_template(real.toy(eos="<eos>"), BARE))
    assert template.stop_strings == ["<eos>"]


def test_generation_config_beside_the_tokenizer_makes_stops_certain(tmp_path):
    tokenizer = real.with_template(real.toy(), BARE)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 1]}))
    template = ChatTemplate.load(str(tmp_path))
    assert set(template.stop_ids) == {1, 7}


@pytest.mark.parametrize("text", ["half of", "half of ", "half of\n", "a"])
def test_a_reply_cut_by_length_gets_no_stop(qwen3, text):
    (turn,) = qwen3.turns(said(text, finish_reason="length"))
    assert real.trained_text(qwen3, turn).endswith(text)
    assert turn.stop_token is None
    (turn,) = qwen3.turns(said(text, finish_reason="stop"))
    assert turn.stop_token == qwen3.stop_ids[0]


@pytest.mark.parametrize("stop", ["<|nope|>", 10**9, True, None, 1.5])
def test_a_stop_that_is_no_token_is_refused(stop):
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(real.qwen3(), stop_tokens=[stop])
    assert caught.value.code == "invalid_option"


def test_known_good_numbers_of_the_qwen3_vocabulary():
    for source in (None, real.trl_template("qwen3_8")):
        template = ChatTemplate(real.qwen3(source), enable_thinking=False)
        (turn,) = template.turns(said("4"))
        assert turn.prompt_length == 20 == len(template.prompt(ASK))
        assert real.trained_text(template, turn) == "4<|im_end|>"
        assert turn.info["template_kwargs"] == {"enable_thinking": False}
