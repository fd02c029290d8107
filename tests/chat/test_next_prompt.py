"""The next prompt of an episode: the sampled tokens stay, and the template's own text follows them."""

from __future__ import annotations

import pytest
import real_tokenizers as real

import samplekit as sk
from samplekit.chat import ChatTemplate
from samplekit.errors import TemplateError

TOOLS = [
    {
        "type": "function",
        "function": {"name": "price", "parameters": {"type": "object", "properties": {"thing": {"type": "string"}}}},
    }
]
ASK = {"role": "user", "content": "What does a lamp cost?"}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"type": "function", "id": "call00001", "function": {"name": "price", "arguments": {"thing": "lamp"}}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "price", "content": "4"}
REPLY = {"role": "assistant", "content": "It costs 4."}
MORE = {"role": "user", "content": "And two of them?"}
DROPS_RESULTS = (
    "{% for m in messages if m.role != 'tool' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
EPISODES = {"tool": ([ASK, CALL, RESULT], TOOLS), "user": ([ASK, REPLY, MORE], None)}


def code_of(template: ChatTemplate, tokens: object, messages: object, tools: object = None) -> str:
    with pytest.raises(TemplateError) as caught:
        template.next_prompt(tokens, messages, tools)
    return caught.value.code


def outcome(name: str, kind: str) -> str:
    """Say how a published template goes on: as it renders, behind a reply that it rewrites, or with an error's code."""
    messages, tools = EPISODES[kind]
    template = ChatTemplate(real.byte_level(name, real.trl_template(name)))
    try:
        (turn,) = template.turns(messages[:2], tools)
        rendered = template.prompt(messages, tools)
    except TemplateError:
        return "no such episode"  # the table of outcomes says why
    read = list(turn.tokens)
    try:
        found = template.next_prompt(read, messages, tools)
    except TemplateError as error:
        return error.code
    assert found[: len(read)] == read, (name, kind)
    behind = found[len(read) :]
    assert behind == rendered[len(rendered) - len(behind) :], (name, kind)
    return "as rendered" if found == rendered else "reply kept"


def test_published_templates_go_on_as_they_render():
    found = {(name, kind): outcome(name, kind) for name in real.trl_names() for kind in EPISODES}
    others = {place: said for place, said in found.items() if said not in ("as rendered", "no such episode")}
    assert others == {
        ("glm4moe", "tool"): "no_stop_token",  # its stop is the header of the next message, which only callers know
        ("glm4moe", "user"): "no_stop_token",
        ("gptoss", "user"): "reply kept",  # it writes another stop once a reply is history
        ("gptoss_training", "user"): "reply kept",
        ("qwen3", "tool"): "reply kept",  # these drop the empty thought of a reply that is history
        ("qwen3", "user"): "reply kept",
        ("qwen3_5_nothink", "user"): "reply kept",
    }
    assert sum(said == "as rendered" for said in found.values()) > 70


def test_the_header_of_a_next_message_that_is_the_stop_is_written_once():
    tokenizer = real.byte_level("glm4moe", real.trl_template("glm4moe"))
    template = ChatTemplate(tokenizer, stop_tokens=["<|user|>", "<|observation|>"])
    messages, tools = EPISODES["tool"]
    head = template.prompt([ASK], tools)
    whole = template.prompt(messages, tools)
    end = len(whole) - whole[::-1].index(tokenizer.convert_tokens_to_ids("<|observation|>"))
    said = template.encode("\n<think></think>\n" + template.decode(whole[:end]).rpartition("</think>")[2])
    assert template.decode(template.next_prompt([*head, *said], messages, tools)).count("<|observation|>") == 1


@pytest.fixture
def tekken() -> ChatTemplate:
    return ChatTemplate(real.tekken(real.own_template("mistral_tekken")))


@pytest.mark.parametrize("fixture", ["qwen3", "tiny", "llama2", "llama2_legacy", "mistral_v1", "tekken"])
def test_real_tokenizers_keep_what_was_sampled(fixture, request):
    template = request.getfixturevalue(fixture)
    (turn,) = template.turns([ASK, REPLY])
    prompt, said = list(turn.tokens[: turn.prompt_length]), list(turn.tokens[turn.prompt_length :])
    spelled = _other_spelling(template, said)
    assert spelled != said
    found = template.next_prompt([*prompt, *spelled], [ASK, REPLY, MORE])
    usual = template.next_prompt([*prompt, *said], [ASK, REPLY, MORE])
    assert found == [*prompt, *spelled, *usual[len(prompt) + len(said) :]]


def _other_spelling(template: ChatTemplate, said: list[int]) -> list[int]:
    """Spell one token of a reply as two of the vocabulary that make the same text."""
    tokenizer = template.tokenizer
    for place, token in enumerate(said[:-1]):
        piece = tokenizer.convert_ids_to_tokens(token)
        for cut in range(1, len(piece)):
            pieces = [tokenizer.convert_tokens_to_ids(part) for part in (piece[:cut], piece[cut:])]
            other = [*said[:place], *pieces, *said[place + 1 :]]
            if None not in pieces and template.decode(other) == template.decode(said):
                return other
    return said


def test_steps_that_go_on_share_one_sample():
    template = ChatTemplate.load("samplekit/tiny", thinking=False)
    messages, tools = EPISODES["tool"]
    first = template.prompt([ASK], tools)
    said = template.encode('<tool_call>\n{"name":  "price",  "arguments": {"thing":   "lamp"}}\n</tool_call><|im_end|>')
    step = sk.Step(first, sk.Completion(said, [-0.5] * len(said)))
    anew = template.prompt(messages, tools)
    assert anew[: len(step.tokens)] != step.tokens.tolist()  # the template spells the call in its own way
    after = template.next_prompt(step.tokens, messages, tools)
    reply = template.encode("4<|im_end|>")
    steps = [step, sk.Step(after, sk.Completion(reply, [-0.25] * len(reply)))]
    episodes = [sk.Trajectory(steps, reward=reward) for reward in (0.0, 1.0)]
    one, _ = sk.build_trajectory_samples(episodes)
    assert one.num_trained == len(said) + len(reply)
    assert template.decode(one.tokens).endswith("<tool_response>\n4\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
                                                "<think>\n\n</think>\n\n4<|im_end|>")  # fmt: skip


def test_a_reply_cut_by_its_limit_gets_its_stop_untrained(qwen3):
    (turn,) = qwen3.turns([ASK, REPLY])
    cut = list(turn.tokens[:-2])  # the last word and the stop are missing
    messages = [ASK, {"role": "assistant", "content": "It costs 4"}, MORE]
    found = qwen3.next_prompt(cut, messages)
    assert found[: len(cut)] == cut
    assert qwen3.decode(found[len(cut) :]).startswith("<|im_end|>\n<|im_start|>user\nAnd two")


def test_a_reply_of_other_tokens_is_refused(qwen3):
    (turn,) = qwen3.turns([ASK, REPLY])
    assert code_of(qwen3, turn.tokens, [ASK, {"role": "assistant", "content": "Five."}, MORE]) == "prefix_mismatch"
    assert code_of(qwen3, turn.tokens, [ASK, CALL, RESULT], TOOLS) == "prefix_mismatch"


@pytest.mark.parametrize("messages", [[ASK], [ASK, REPLY], [ASK, MORE]])
def test_a_conversation_in_which_nothing_follows_a_reply_is_refused(qwen3, messages):
    assert code_of(qwen3, [1, 2], messages) == "no_final_reply"


@pytest.mark.parametrize("tokens", [None, "x", [-1], [True], [1.5], [10**9], {1: 2}])
def test_what_are_no_tokens_is_refused(qwen3, tokens):
    assert code_of(qwen3, tokens, [ASK, REPLY, MORE]) == "invalid_option"


def test_an_observation_that_the_template_drops_is_refused():
    template = ChatTemplate(real.byte_level("dropping", DROPS_RESULTS), stop_tokens=["<|im_end|>"])
    tokens = template.turns([ASK, REPLY])[0].tokens
    assert code_of(template, tokens, [ASK, REPLY, RESULT]) == "tool_result_dropped"
    with pytest.raises(TemplateError, match="message 2: the template does not render the tool text"):
        template.prompt([ASK, REPLY, RESULT])
