"""Answers whose parts contradict each other, or that stand for something else, are told by name."""

import copy
import enum
from types import SimpleNamespace

import pytest

import samplekit as sk


def choice(number, tokens=(1, 2), **changes):
    logprobs = {"token_logprobs": [-0.5] * len(tokens)}
    return {"index": number, "finish_reason": "stop", "token_ids": list(tokens), "prompt_token_ids": [5, 6],
            "logprobs": logprobs, **changes}  # fmt: skip


def by_openai(choices):
    return sk.group_from_openai({"choices": choices})


def by_openai_of_several(choices):
    return sk.groups_from_openai({"choices": choices}, 1)


def by_vllm(choices):
    outputs = [
        SimpleNamespace(**{**one, "logprobs": [{token: -0.5} for token in one["token_ids"]]})
        for one in copy.deepcopy(choices)
    ]
    return sk.group_from_vllm(SimpleNamespace(prompt_token_ids=[5, 6], outputs=outputs))


READERS = pytest.mark.parametrize("reader", [by_openai, by_openai_of_several, by_vllm])


@READERS
@pytest.mark.parametrize("numbers", [[0, 0], [0, 2], [1, 2], [0, 1, 1], [-1, 0]], ids=str)
def test_a_choice_that_is_missing_or_there_twice(reader, numbers):
    with pytest.raises(
        sk.SampleError, match=rf"indices \[{str(sorted(numbers))[1:-1]}\], expected 0 to {len(numbers) - 1}"
    ):
        reader([choice(number) for number in numbers])


@READERS
@pytest.mark.parametrize("number", [None, "1", 1.0, True], ids=repr)
def test_an_index_that_is_none_beside_one_that_is(reader, number):
    with pytest.raises(sk.SampleError, match=r"\[1\]\.index is"):
        reader([choice(0), choice(number)])


@READERS
def test_choices_without_an_index_stand_in_order(reader):
    reader([choice(None), choice(None)])


TOLD = {
    "logprobs.token_ids": lambda ids: {"token_ids": ids},
    "logprobs.tokens": lambda ids: {"tokens": [f"token_id:{token}" for token in ids]},
    "logprobs.content": lambda ids: {"content": [{"token": f"token_id:{token}", "logprob": -0.5} for token in ids]},
}


@pytest.mark.parametrize("place", TOLD)
@pytest.mark.parametrize(("ids", "index"), [([1, 3], 1), ([2, 1], 0), ([1], 1), ([1, 2, 3], 2)], ids=str)
def test_ids_that_are_told_twice_and_differ(place, ids, index):
    with pytest.raises(
        sk.SampleError, match=rf"choices\[0\]\.{place} differs from .*choices\[0\]\.token_ids at index {index}"
    ):
        by_openai([choice(0, logprobs={"token_logprobs": [-0.5, -0.5], **TOLD[place](ids)})])
    same = by_openai([choice(0, logprobs={"token_logprobs": [-0.5, -0.5], **TOLD[place]([1, 2])})])
    assert same.completions[0].tokens.tolist() == [1, 2]


Reason = enum.Enum("Reason", {"STOP": "stop", "LENGTH": "length"})
Number = enum.Enum("Number", {"STOP": 1, "LENGTH": 2})
Text = enum.StrEnum("Text", {"STOP": "stop", "LENGTH": "length"})


def by_together(choices):
    sequences = [
        {"tokens": one["token_ids"], "logprobs": [-0.5, -0.5], "stop_reason": one["finish_reason"]} for one in choices
    ]
    return sk.groups_from_together({"results": [{"sequences": sequences}]}, [[5, 6]])[0]


@pytest.mark.parametrize("reader", [by_openai, by_vllm, by_together])
@pytest.mark.parametrize("kind", [Reason, Number, Text])
def test_a_reason_of_an_enum_is_read_by_its_text(reader, kind):
    found = reader([choice(0, finish_reason=kind.STOP), choice(1, finish_reason=kind.LENGTH)]).completions
    assert [one.stop_reason.lower() for one in found] == ["stop", "length"]
    assert {type(one.stop_reason) for one in found} == {str}
    assert [one.was_cut for one in found] == [False, True]


def several(prompts, ids):
    choices = [choice(number, prompt_token_ids=prompt) for number, prompt in enumerate(prompts)]
    return sk.groups_from_openai({"choices": choices}, 1, ids=ids)


def several_by_together(prompts, ids):
    results = [{"sequences": [{"tokens": [1], "logprobs": [-0.5]}]} for _ in prompts]
    return sk.groups_from_together({"results": results}, prompts, ids=ids)


@pytest.mark.parametrize("read", [several, several_by_together])
@pytest.mark.parametrize(
    ("ids", "words"),
    [(["a", "a"], r"ids\[1\] is 'a', and so is ids\[0\]"), (["a"], "ids holds 1 values"), (["a"] * 3, "ids holds 3 values"),
     ([1, True], r"ids\[1\] is True"), ([[1], "a"], r"ids\[0\] is \[1\]"), ("ab", "ids is a str"), (5, "ids is 5"),
     ({"a", "b"}, "ids is a set"), ({"a": 1, "b": 2}, "ids is a dict")],
)  # fmt: skip
def test_ids_that_do_not_name_each_prompt(read, ids, words):
    with pytest.raises(sk.SampleError, match=words):
        read([[5], [6]], ids)


@pytest.mark.parametrize("read", [several, several_by_together])
def test_one_prompt_asked_twice_may_have_one_id(read):
    assert [group.id for group in read([[5], [5]], ["a", "a"])] == ["a", "a"]
    assert [group.id for group in read([[5], [5]], iter([1, None]))] == [1, None]


UNKNOWN = {
    "Completion": lambda value: sk.Completion([1, 2], [-0.5, value]),
    "Step": lambda value: sk.Step([1], sk.Completion([1, 2], [-0.5, value])),
    "build_grpo_samples": lambda value: sk.build_grpo_samples([sk.Group([1], [sk.Completion([1, 2], [-0.5, value], reward=1.0)])]),
    "openai": lambda value: by_openai([choice(0, logprobs={"token_logprobs": [-0.5, value]})]),
    "vllm": lambda value: sk.group_from_vllm(SimpleNamespace(prompt_token_ids=[5], outputs=[
        SimpleNamespace(token_ids=[1, 2], finish_reason="stop", logprobs=[{1: -0.5}, {2: value}])])),
    "together": lambda value: sk.groups_from_together(
        {"results": [{"sequences": [{"tokens": [1, 2], "logprobs": [-0.5, value]}]}]}, [[1]]),
    "prompt": lambda value: sk.Group([1, 2], [sk.Completion([1], [-0.5])], prompt_logprobs=[0.0, value]),
}  # fmt: skip


@pytest.mark.parametrize("place", UNKNOWN)
def test_a_logprob_that_stands_for_an_unknown_one(place):
    for value in (-9999.0, -9999, -1e4):
        with pytest.raises(sk.SampleError, match=r"logprobs\[1\] is -(9999|10000)\.0, which stands for an unknown one"):
            UNKNOWN[place](value)
    for value in (True, False):
        with pytest.raises(sk.SampleError, match=r"logprobs\[1\] is a bool"):
            UNKNOWN[place](value)
    if place != "build_grpo_samples":
        UNKNOWN[place](-9998.0)
        UNKNOWN[place](0.001)
