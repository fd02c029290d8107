"""What is no whole answer is refused by name, and what was cut is known as cut."""

from types import SimpleNamespace

import numpy as np
import pytest
from rollout_doubles import group

import samplekit as sk

CHOICE = {"index": 0, "token_ids": [1], "prompt_token_ids": [5], "logprobs": {"token_logprobs": [-0.5]}}
CUT = [
    "length", "max_tokens", "max_new_tokens", "max_length", "model_length", "context_length",
    "model_context_window_exceeded", "insufficient_system_resource",
    "abort", "aborted", "cancel", "canceled", "cancelled", "content_filter", "error", "timeout",
    "MAX_TOKENS", "content-filter", "STOP_REASON_LENGTH", "STOP_REASON_ABORTED", "FINISH_REASON_MAX_TOKENS",
]  # fmt: skip
ENDED = [None, "stop", "STOP_REASON_STOP", "eos", "tool_calls", "end_turn", "stop_sequence", "lengthy"]


@pytest.mark.parametrize("reason", CUT)
def test_what_something_else_than_the_model_ended_is_cut(reason):
    assert sk.Completion([1], [-0.5], stop_reason=reason).was_cut
    made = group([1.0, 0.0, 0.5], stops=["stop", "stop", reason])
    assert sk.build_grpo_samples([made], overlong="mask").dropped == {"overlong": 1}
    assert sk.rollout_metrics([made])["completion/cut_fraction"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("reason", ENDED)
def test_what_the_model_ended_is_not(reason):
    assert not sk.Completion([1], [-0.5], stop_reason=reason).was_cut


def response(kind="text_completion", reason="stop", **changes):
    return {"object": kind, "choices": [{**CHOICE, "finish_reason": reason, **changes}]}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (response("chat.completion.chunk"), "its object is 'chat.completion.chunk'"),
        (response("text_completion", None), r"choices\[0\] has no finish_reason"),
        (response(None, "stop", delta={"content": "x"}), r"choices\[0\] has a delta"),
    ],
)
def test_a_part_of_a_stream_is_refused(found, words):
    for read in (sk.group_from_openai, lambda given: sk.groups_from_openai(given, 1)):
        with pytest.raises(sk.SampleError, match=rf"response is a part of a stream \({words}\).*without stream"):
            read(found)
        with pytest.raises(sk.SampleError, match=words):
            read(SimpleNamespace(**found))


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_a_whole_response_of_the_same_object_is_read(reason):
    assert sk.group_from_openai(response("text_completion", reason)).completions[0].stop_reason == reason
    assert len(sk.group_from_openai(response("chat.completion", None))) == 1


@pytest.mark.parametrize(
    ("found", "quoted"),
    [
        ({"error": {"message": "the context holds 4096 tokens " * 3, "code": 400}}, "the context holds 4096 tokens the"),
        ({"object": "error", "message": "model not found", "code": 404}, "model not found"),
        ({**response(), "error": "overloaded"}, "'overloaded'"),
        (SimpleNamespace(error=SimpleNamespace(message="busy")), "busy"),
    ],
)  # fmt: skip
def test_an_error_is_quoted(found, quoted):
    with pytest.raises(sk.SampleError, match="response holds an error") as caught:
        sk.group_from_openai(found)
    assert quoted in str(caught.value)


def test_vllms_unfinished_output_is_refused():
    parts = [SimpleNamespace(token_ids=[1], finish_reason=None, logprobs=[{1: -0.5}])]
    with pytest.raises(sk.SampleError, match=r"output\.finished is False, expected a finished RequestOutput"):
        sk.group_from_vllm(SimpleNamespace(prompt_token_ids=[5], outputs=parts, finished=False))
    whole = SimpleNamespace(prompt_token_ids=[5], outputs=parts, finished=True)
    assert len(sk.group_from_vllm(whole)) == 1


@pytest.mark.parametrize("prompt", [[5, 6], ["5", "6"], (5,), np.array([5, 6])], ids=str)
def test_one_prompt_where_several_belong_is_told_how_to_be_wrapped(prompt):
    result = {"results": [{"sequences": [{"tokens": [9], "logprobs": [-0.5]}]}]}
    for read in (lambda: sk.groups_from_together(result, prompt), lambda: sk.groups_from_openai(response(), 1, prompt)):
        with pytest.raises(sk.SampleError, match=r"prompts holds token ids, .* wrap it as \[prompt\]"):
            read()
    assert sk.groups_from_together(result, [prompt])[0].prompt.tolist() == [int(item) for item in prompt]
