"""Answers that tell one thing twice, repeat the prompt, hold nothing, or are not finished."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import samplekit as sk


def choice(number=0, tokens=(1, 2), **changes):
    return {"index": number, "finish_reason": "stop", "token_ids": list(tokens), "prompt_token_ids": [5, 6],
            "logprobs": {"token_logprobs": [-0.5] * len(tokens)}, **changes}  # fmt: skip


def content(*values):
    return [{"token": "?", "logprob": value} for value in values]


@pytest.mark.parametrize(
    ("values", "index"),
    [((-0.5, -0.25), 1), ((-0.4, -0.5), 0), ((-0.5,), 1), ((-0.5, -0.5, -0.5), 2), ((), 0)],
    ids=str,
)
def test_logprobs_that_are_told_twice_and_differ(values, index):
    told = {"token_logprobs": [-0.5, -0.5], "content": content(*values)}
    words = rf"choices\[0\]\.logprobs\.content differs from .*\.logprobs\.token_logprobs at index {index}"
    with pytest.raises(sk.SampleError, match=words):
        sk.group_from_openai({"choices": [choice(logprobs=told)]})


@pytest.mark.parametrize(("apart", "agree"), [(1.8e-6, True), (2.2e-6, False)])
def test_two_records_of_a_logprob_of_1_nat_may_be_two_millionths_apart(apart, agree):
    told = {"token_logprobs": [-0.5, -1.0], "content": content(-0.5, -1.0 - apart)}  # 1e-6, and 1e-6 of the value
    response = {"choices": [choice(logprobs=told)]}
    if agree:
        assert sk.group_from_openai(response).completions[0].logprobs.tolist() == [-0.5, -1.0]
    else:
        with pytest.raises(sk.SampleError, match="at index 1, expected one record"):
            sk.group_from_openai(response)


def test_logprobs_that_are_told_twice_agree_within_float32():
    third = -1 / 3
    told = {"token_logprobs": [third, float(np.float32(third))], "content": content(round(third, 7), third)}
    found = sk.group_from_openai({"choices": [choice(logprobs=told)]}).completions[0]
    assert found.logprobs.tolist() == [np.float32(third)] * 2
    with pytest.raises(sk.SampleError, match=r"logprobs\.content holds None at index 1"):
        sk.group_from_openai({"choices": [choice(logprobs={**told, "content": content(third, None)})]})


PROMPT = [None, {"6": {"logprob": -1.5}}]
OTHER = [None, {"6": {"logprob": -1.25}}]


@pytest.mark.parametrize(
    ("by_choices", "by_response", "found"),
    [((PROMPT, PROMPT), None, -1.5), ((None, PROMPT), None, -1.5), ((PROMPT, None), PROMPT, -1.5), ((None, None), PROMPT, -1.5),
     ((None, None), None, None), ((PROMPT, OTHER), None, r"choices\[1\]\.prompt_logprobs differs from .*choices\[0\].* at index 1"),
     ((None, PROMPT), OTHER, r"response\.prompt_logprobs differs from response\.choices\[1\].* at index 1")],
)  # fmt: skip
def test_logprobs_of_the_prompt_are_one_record_wherever_they_are_told(by_choices, by_response, found):
    choices = [choice(number, prompt_logprobs=told) for number, told in enumerate(by_choices)]
    response = {"choices": choices, "prompt_logprobs": by_response}
    if isinstance(found, str):
        with pytest.raises(sk.SampleError, match=found):
            sk.group_from_openai(response)
        return
    read = sk.group_from_openai(response).prompt_logprobs
    assert (None if read is None else read.tolist()) == (None if found is None else [0.0, found])


def test_logprobs_of_one_prompt_beside_several_belong_to_none():
    response = {"choices": [choice(0), choice(1)], "prompt_logprobs": PROMPT}
    with pytest.raises(sk.SampleError, match=r"response\.prompt_logprobs stands once for 2 prompts"):
        sk.groups_from_openai(response, 1)
    assert sk.groups_from_openai(response, 2)[0].prompt_logprobs.tolist() == [0.0, -1.5]


@pytest.mark.parametrize("first", [None, 0.0, 0])
@pytest.mark.parametrize("sampled", [[], [7], [7, 8]], ids=str)
def test_a_prompt_that_is_echoed_is_no_completion(first, sampled):
    ids = [5, 6, *sampled]
    told = {"token_logprobs": [first, *[-0.5] * (len(ids) - 1)]}
    with pytest.raises(sk.SampleError, match=r"choices\[0\] begins with the prompt's ids.*request without echo"):
        sk.group_from_openai({"choices": [choice(tokens=ids, logprobs=told)]})


@pytest.mark.parametrize(("ids", "first"), [([5, 6, 7], -0.5), ([5, 7, 6], 0.0), ([5], 0.0)], ids=str)
def test_a_completion_that_only_resembles_its_prompt_is_taken(ids, first):
    told = {"token_logprobs": [first, *[-0.5] * (len(ids) - 1)]}
    found = sk.group_from_openai({"choices": [choice(tokens=ids, logprobs=told)]})
    assert found.completions[0].tokens.tolist() == ids


def vllm(logprobs, token_ids=(1,), prompt_logprobs=None):
    output = SimpleNamespace(index=0, token_ids=list(token_ids), finish_reason="stop", logprobs=logprobs)
    return SimpleNamespace(prompt_token_ids=[5, 6], outputs=[output], prompt_logprobs=prompt_logprobs)


NUMBERS = {
    "plain": -0.5, "float32": np.float32(-0.5), "float64": np.float64(-0.5), "0-d": np.array(-0.5),
    "tensor": torch.tensor(-0.5), "bfloat16": torch.tensor(-0.5, dtype=torch.bfloat16),
}  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("wrap", [lambda number: number, lambda number: {"logprob": number},
    lambda number: SimpleNamespace(logprob=number)], ids=["bare", "mapping", "object"])  # fmt: skip
def test_a_logprob_is_the_number_it_holds(number, wrap):
    group = sk.group_from_vllm(vllm([{1: wrap(number)}], prompt_logprobs=[None, {6: wrap(number)}]))
    assert group.completions[0].logprobs.tolist() == [-0.5]
    assert group.prompt_logprobs.tolist() == [0.0, -0.5]


@pytest.mark.parametrize("value", ["-0.5", [-0.5], np.array([-0.5, -0.5]), np.True_, {"rank": 1}], ids=repr)
def test_a_logprob_that_is_no_number_is_named(value):
    with pytest.raises(sk.SampleError, match=r"outputs\[0\]: completion\.logprobs"):
        sk.group_from_vllm(vllm([{1: value}]))


def by_openai(logprobs):
    return sk.group_from_openai({"choices": [choice(tokens=(), logprobs=logprobs)]})


EMPTY = {
    "openai null": lambda: by_openai(None),
    "openai null content": lambda: by_openai({"content": None}),
    "openai empty": lambda: by_openai({"token_logprobs": []}),
    "openai empty twice": lambda: by_openai({"token_logprobs": [], "content": []}),
    "vllm null": lambda: sk.group_from_vllm(vllm(None, ())),
    "vllm empty": lambda: sk.group_from_vllm(vllm([], ())),
    "together null": lambda: sk.groups_from_together({"results": [{"sequences": [{"tokens": [], "logprobs": None}]}]}, [[5, 6]])[0],
}  # fmt: skip


@pytest.mark.parametrize("read", EMPTY.values(), ids=EMPTY)
def test_a_completion_that_ended_at_once_is_empty(read):
    (found,) = read().completions
    assert (found.length, found.logprobs.tolist()) == (0, [])


@pytest.mark.parametrize("status", ["TRAINING_OPERATION_STATUS_FAILED", "TRAINING_OPERATION_STATUS_RUNNING", "failed"])
@pytest.mark.parametrize("make", [dict, SimpleNamespace])
def test_an_operation_without_output_is_told_by_its_status(status, make):
    for error, words in (
        (None, "expected a finished one"),
        ({"message": "out of memory"}, "its error 'out of memory'"),
    ):
        operation = make(id="op", status=status, output=None, error=error)
        with pytest.raises(sk.SampleError, match=f"operation without output, its status is '{status}'.*{words}"):
            sk.groups_from_together(operation, [[5, 6]])


PARTS = {
    "response.choices": lambda parts: sk.group_from_openai({"choices": parts}),
    "output.outputs": lambda parts: sk.group_from_vllm({"prompt_token_ids": [5], "outputs": parts}),
    "results": lambda parts: sk.groups_from_together({"results": parts}, [[5]]),
    "results[0].sequences": lambda parts: sk.groups_from_together([{"sequences": parts}], [[5]]),
}


@pytest.mark.parametrize("place", PARTS)
@pytest.mark.parametrize(("part", "shown"), [(None, "None"), ("x", "a str"), (3, "3")])
def test_a_part_that_holds_nothing_is_named(place, part, shown):
    with pytest.raises(sk.SampleError) as caught:
        PARTS[place]([part])
    assert f"{place}[0] is {shown}, expected an object with fields" in str(caught.value)
