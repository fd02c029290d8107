"""What other clients and engines answer becomes groups: ids and logprobs as they came, or an error that says what to ask for."""

import copy
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from together.types.post_training import SampleResult
from together.types.post_training.sample_operation import Output, SampleOperation

import samplekit as sk

EXCHANGES = json.loads((Path(__file__).parent.parent / "data/wire/exchanges.json").read_text())
RESULT = {
    "policy_segments": [{"version": 0, "start_token": 0}],
    "sequences": [
        {"tokens": ["9707", "151645"], "logprobs": [-0.5, -0.01], "stop_reason": "STOP_REASON_STOP",
         "prompt_cache_hit_tokens": 0, "routed_experts_key": "rk"},
        {"tokens": [9707], "logprobs": [-0.25], "stop_reason": "STOP_REASON_LENGTH", "prompt_cache_hit_tokens": 0},
    ],
    "prompt_logprobs": [0.0, -0.25, -0.5],
}  # fmt: skip
WANTED = sk.Group(
    [5, 6, 7],
    [sk.Completion([9707, 151645], [-0.5, -0.01], stop_reason="stop", routed_experts_key="rk"),
     sk.Completion([9707], [-0.25], stop_reason="length")],
    id="task", prompt_logprobs=[0.0, -0.25, -0.5],
)  # fmt: skip
AS_GIVEN = {
    "result": lambda: SampleResult.model_validate(RESULT),
    "results": lambda: [SampleResult.model_validate(RESULT)],
    "output": lambda: Output.model_validate({"results": [RESULT]}),
    "operation": lambda: SampleOperation.model_validate(
        {"id": "op", "status": "TRAINING_OPERATION_STATUS_COMPLETED", "output": {"results": [RESULT]}}
    ),
    "constructed": lambda: SampleResult.construct(**copy.deepcopy(RESULT)),
    "json": lambda: {"results": [RESULT]},
    "operation's json": lambda: {"id": "op", "output": {"results": [RESULT]}},
    "list of json": lambda: [RESULT],
}
PROMPTS = {
    "ids": [5, 6, 7], "array": np.array([5, 6, 7]), "decimals": ["5", "6", "7"], "ours": sk.ModelInput.from_tokens([5, 6, 7]),
    "theirs": {"chunks": [{"encoded_text": {"tokens": [5]}}, {"encoded_text": {"tokens": ["6", "7"]}}]},
}  # fmt: skip


@pytest.mark.parametrize("given", AS_GIVEN.values(), ids=AS_GIVEN)
@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
def test_results_of_togethers_sdk_become_groups(given, prompt):
    (group,) = sk.groups_from_together(given(), [prompt], ids=["task"])
    assert group == WANTED


def test_recorded_answers_of_the_service_become_groups():
    outputs = [exchange["response_body"]["output"] for exchange in EXCHANGES
               if "results" in ((exchange.get("response_body") or {}).get("output") or {})]  # fmt: skip
    assert len(outputs) >= 4
    for output in outputs:
        groups = sk.groups_from_together(output, [[1, 2, 3]] * len(output["results"]))
        for group, result in zip(groups, output["results"], strict=True):
            assert [item.tokens.tolist() for item in group.completions] == [
                [int(token) for token in sequence["tokens"]] for sequence in result["sequences"]
            ]
            assert group.id is None


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("logprobs", None, "logprobs is None"), ("logprobs", [-0.5] * 3, "holds 3 values"), ("logprobs", [], "empty"),
        ("tokens", ["x"], "'x'"), ("tokens", [1.5], "1.5"), ("tokens", None, "tokens"),
        ("stop_reason", ["stop"], "stop_reason is ['stop']"), ("stop_reason", 1, "stop_reason is 1"),
    ],
)  # fmt: skip
def test_a_sequence_that_is_no_completion_is_named(number, name, value, words):
    result = copy.deepcopy(RESULT)
    result["sequences"][number][name] = value
    with pytest.raises(sk.SampleError, match=rf"results\[1\]\.sequences\[{number}\]: completion") as caught:
        sk.groups_from_together([RESULT, result], [[1, 2, 3]] * 2)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("result", "prompts", "ids", "words"),
    [
        ([RESULT], [[1], [2]], None, "1 results, prompts 2"), ([RESULT], [[1]], ["a", "b"], "ids holds 2 values"),
        ([{**RESULT, "sequences": []}], [[1]], None, r"results\[0\]\.sequences is empty"),
        ([RESULT], [[1]], None, r"results\[0\]: prompt_logprobs holds 3 values, the prompt 1 tokens"),
        ([{**RESULT, "prompt_logprobs": [0, 0.5, -1]}], [[1, 2, 3]], None, r"results\[0\]: prompt_logprobs\[1\] is 0.5"),
        (None, [[1]], None, "results is None"), ({"output": None}, [[1]], None, "results"),
        ([RESULT], ["text"], None, r"prompts\[0\] is a str"), ([RESULT], [[]], None, r"prompts\[0\] is empty"),
        ([RESULT], [{"chunks": [{"image": 1}]}], None, r"prompts\[0\]\.chunks\[0\]"),
    ],
)  # fmt: skip
def test_results_that_fit_no_prompts_are_refused(result, prompts, ids, words):
    with pytest.raises(sk.SampleError, match=words):
        sk.groups_from_together(result, prompts, ids=ids)


def completion_choice(index, tokens, logprobs, prompt=(5, 6), reason="stop"):
    return {
        "index": index, "text": "unread", "finish_reason": reason, "token_ids": tokens, "prompt_token_ids": list(prompt),
        "logprobs": {"tokens": ["?"] * len(tokens), "token_logprobs": logprobs, "top_logprobs": None, "text_offset": []},
        "prompt_logprobs": [None, {"6": {"logprob": -1.5, "rank": 2}, "9": {"logprob": -0.1, "rank": 1}}],
    }  # fmt: skip


def completions():
    """A response of vLLM's /v1/completions with return_token_ids."""
    choices = [completion_choice(0, [1, 2], [-0.5, -0.25]), completion_choice(1, [3], [-0.125], reason="length")]
    return {"id": "cmpl-1", "object": "text_completion", "created": 0, "model": "m", "choices": choices}


def chat():
    """The same of /v1/chat/completions, which tells the prompt once."""
    choices = [
        {"index": index, "finish_reason": reason, "message": {"role": "assistant", "content": "unread"}, "token_ids": tokens,
         "logprobs": {"content": [{"token": "?", "bytes": None, "logprob": value, "top_logprobs": []} for value in values]}}
        for index, tokens, values, reason in ((0, [1, 2], [-0.5, -0.25], "stop"), (1, [3], [-0.125], "length"))
    ]  # fmt: skip
    return {"id": "chat-1", "object": "chat.completion", "created": 0, "model": "m", "choices": choices,
            "prompt_token_ids": [5, 6], "prompt_logprobs": [None, {"6": {"logprob": -1.5}}]}  # fmt: skip


RESPONSES = {
    "completions": completions, "chat": chat,
    "unordered": lambda: {**completions(), "choices": completions()["choices"][::-1]},
}  # fmt: skip
ANSWERED = sk.Group(
    [5, 6], [sk.Completion([1, 2], [-0.5, -0.25], stop_reason="stop"), sk.Completion([3], [-0.125], stop_reason="length")], id="task",
    prompt_logprobs=[0, -1.5],
)  # fmt: skip


@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)
@pytest.mark.parametrize("prompt", [None, [5, 6], np.array([5, 6])], ids=str)
def test_responses_in_openais_spelling_become_groups(response, prompt):
    assert sk.group_from_openai(response(), prompt, id="task") == ANSWERED


def test_models_of_openais_client_are_read_like_their_json():
    types = pytest.importorskip("openai.types", reason="openai comes with the bench extra")
    from openai.types.chat import ChatCompletion

    for response in (types.Completion.model_validate(completions()), ChatCompletion.model_validate(chat())):
        assert sk.group_from_openai(response, id="task") == ANSWERED


@pytest.mark.parametrize("response", [completions, chat])
@pytest.mark.parametrize("how", ["token_id:", "logprobs.token_ids", "float ids"])
def test_ids_are_found_wherever_servers_write_them(response, how):
    found = response()
    for choice in found["choices"]:
        ids = choice.pop("token_ids")
        if how == "token_id:":
            written = [f"token_id:{token}" for token in ids]
            choice["logprobs"]["tokens"] = written if response is completions else None
            for item, token in zip(choice["logprobs"].get("content", []), written, strict=False):
                item["token"] = token
        else:
            choice["logprobs"]["token_ids"] = [float(token) for token in ids] if how == "float ids" else ids
    assert sk.group_from_openai(found, id="task") == ANSWERED


@pytest.mark.parametrize("response", [completions, chat])
def test_a_reason_that_also_says_what_matched_is_read_by_its_type(response):
    found = response()
    for choice, reason in zip(
        found["choices"], ({"type": "stop", "matched": 2}, {"type": "length", "length": 1}), strict=True
    ):
        choice["finish_reason"] = reason
    assert sk.group_from_openai(found, id="task") == ANSWERED


def test_several_prompts_of_one_request_are_shared_out():
    choices = [completion_choice(n, [10 + n], [-0.5], prompt=[5, 6] if n < 2 else [7, 6]) for n in range(4)]
    response = {"choices": choices[::-1]}
    groups = sk.groups_from_openai(response, 2, ids=["a", "b"])
    assert [(group.id, group.prompt.tolist()) for group in groups] == [("a", [5, 6]), ("b", [7, 6])]
    assert [[item.tokens.tolist() for item in group.completions] for group in groups] == [[[10], [11]], [[12], [13]]]
    assert sk.groups_from_openai(response, 2, [[5, 6], [7, 6]])[1].prompt.tolist() == [7, 6]
    for bad, words in [({"num_samples": 3}, "multiple of 3"), ({"num_samples": 0}, "num_samples is 0"),
                       ({"num_samples": 2, "ids": ["a"]}, "ids holds 1"), ({"num_samples": 4}, "differs from")]:  # fmt: skip
        with pytest.raises(sk.SampleError, match=words):
            sk.groups_from_openai(response, **bad)


def without(name, where="choice"):
    response = completions()
    for choice in response["choices"][1:] if where == "choice" else [response]:
        choice[name] = None
    return response


def with_logprobs(values):
    response = completions()
    response["choices"][1]["logprobs"]["token_logprobs"] = values
    return response


@pytest.mark.parametrize(
    ("response", "prompt", "words"),
    [
        (without("token_ids"), None, r"choices\[1\] has no token_ids.*return_token_ids=True"),
        (without("logprobs"), None, r"choices\[1\] has no logprobs.*logprobs=1"),
        (with_logprobs([None]), None, r"choices\[1\]: completion.logprobs holds None"),
        (with_logprobs([-0.5, -0.5]), None, r"choices\[1\]: completion.logprobs holds 2 values"),
        (with_logprobs([-9999.0]), None, r"choices\[1\]: completion.logprobs\[0\] is -9999.0"),
        (with_logprobs([0.5]), None, r"choices\[1\]: completion.logprobs\[0\] is 0.5"),
        (completions(), [5, 7], r"choices\[0\].prompt_token_ids differs from prompt at index 1"),
        (completions(), [5], r"differs from prompt at index 1"), (completions(), "text", "prompt is a str"),
        ({**chat(), "prompt_token_ids": None}, None, "no prompt_token_ids.*return_token_ids=True"),
        ({**chat(), "prompt_logprobs": [None]}, None, "prompt_logprobs holds 1 values, the prompt 2 tokens"),
        ({**chat(), "prompt_logprobs": [None, {"9": {"logprob": -1}}]}, None, r"prompt_logprobs\[1\] has no logprob of token 6"),
        ({"choices": []}, None, "response.choices is empty"), (None, None, "response.choices is None"),
        ({"error": "busy"}, None, r"response holds an error and no completions \('busy'\)"),
    ],
)  # fmt: skip
def test_a_response_that_is_no_group_says_what_to_ask_for(response, prompt, words):
    with pytest.raises(sk.SampleError, match=words):
        sk.group_from_openai(response, prompt)


def request_output(**changes):
    """What vLLM's LLM.generate gives, by its fields."""
    outputs = [
        SimpleNamespace(token_ids=(1, 2), finish_reason="stop", logprobs=[
            {1: SimpleNamespace(logprob=-0.5, rank=1)}, {4: SimpleNamespace(logprob=-0.1), 2: SimpleNamespace(logprob=-0.25)}]),
        SimpleNamespace(token_ids=[3], finish_reason="length", logprobs=[{3: SimpleNamespace(logprob=-0.125)}]),
    ]  # fmt: skip
    fields = {
        "prompt_token_ids": [5, 6],
        "outputs": outputs,
        "prompt_logprobs": [None, {6: SimpleNamespace(logprob=-1.5)}],
    }
    return SimpleNamespace(**{**fields, **changes})


def test_vllms_own_output_becomes_a_group():
    assert sk.group_from_vllm(request_output(), id="task") == ANSWERED
    assert sk.group_from_vllm(request_output(prompt_logprobs=None)).prompt_logprobs is None


def output(**changes):
    return [SimpleNamespace(**{"token_ids": [1], "finish_reason": None, "logprobs": [{1: -0.5}], **changes})]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt_token_ids": None}, "no prompt_token_ids"), ({"outputs": []}, "output.outputs is empty"),
        ({"outputs": output(logprobs=None)}, r"outputs\[0\] has no logprobs, .* ask with SamplingParams"),
        ({"outputs": output(token_ids=None)}, r"outputs\[0\] has no token_ids"),
        ({"outputs": output(logprobs=[{2: -0.5}])}, r"logprobs\[0\] has no logprob of token 1"),
        ({"outputs": output(logprobs=[None])}, r"logprobs\[0\] is None"),
        ({"outputs": output(logprobs=[{1: -0.5}] * 2)}, r"outputs\[0\]: completion.logprobs holds 2"),
        ({"outputs": output(logprobs=[])}, r"outputs\[0\]: completion.logprobs is empty"),
    ],
)  # fmt: skip
def test_an_output_that_is_no_group_is_refused_by_name(changes, words):
    with pytest.raises(sk.SampleError, match=words):
        sk.group_from_vllm(request_output(**changes))


def test_what_was_read_trains_as_it_was_sampled():
    groups = [sk.group_from_openai(completions(), id="a").with_rewards([1.0, 0.0])]
    samples = sk.build_grpo_samples(groups)
    assert [sample.tokens.tolist() for sample in samples] == [[5, 6, 1, 2], [5, 6, 3]]
    assert samples[0].loss_fn_inputs["logprobs"].data.tolist() == [0, -0.5, -0.25]
