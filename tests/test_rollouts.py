"""Completions and groups: taken from one record, or refused by name."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest

import samplekit as sk
from samplekit.rollouts import Completion, Group


def test_decimal_strings_become_ids_and_arrays_are_read_only():
    completion = Completion(["9707", 151645], [-0.5, -0.01], stop_reason="stop", routed_experts_key="rk")
    assert completion.tokens.tolist() == [9707, 151645]
    assert (completion.tokens.dtype, completion.logprobs.dtype) == (np.int64, np.float32)
    for array in (completion.tokens, completion.logprobs):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        completion.reward = 1.0


@pytest.mark.parametrize(
    ("tokens", "logprobs", "words"),
    [
        ([1, 2], None, "logprobs is None"),
        ([1, 2], [-1.0], "1 values"),
        ([1, 2], [-1.0, -1.0, -1.0], "3 values"),
        ([1, 2], [-1.0, math.nan], "nan"),
        ([1, 2], [-1.0, -math.inf], "inf"),
        ([1, 2], [-1.0, 0.002], "at most 0"),
        ([1, 2], [-1.0, None], "None"),
        ([1, -2], [-1.0, -1.0], "-2"),
        ([1, "x"], [-1.0, -1.0], "'x'"),
        ([1, "-2"], [-1.0, -1.0], "'-2'"),
        ([1, "1.0"], [-1.0, -1.0], "'1.0'"),
        ([1, "²"], [-1.0, -1.0], "²"),
        ([1, True], [-1.0, -1.0], "True"),
        ([], [-1.0], "empty"),
        ("12", [-1.0, -1.0], "tokens"),
    ],
)
def test_what_cannot_be_a_completion_is_refused(tokens, logprobs, words):
    with pytest.raises(sk.SampleError, match="completion") as caught:
        Completion(tokens, logprobs)
    assert words in str(caught.value)


def test_logprobs_above_zero_by_rounding_pass_and_a_sampler_may_stop_at_once():
    assert Completion([1], [0.0009]).length == 1
    assert Completion([], []).length == 0


def test_groups_are_scored_by_function_or_list():
    group = Group([1, 2], [Completion([3], [-1.0]), Completion([4, 5], [-1.0, -2.0])], id="g")
    assert [item.reward for item in group.completions] == [None, None]
    scored = group.with_rewards(lambda completion: completion.length)
    assert [item.reward for item in scored.completions] == [1.0, 2.0]
    assert scored == group.with_rewards(np.array([1.0, 2.0])) != group
    assert (scored.id, scored.prompt.tolist(), len(scored)) == ("g", [1, 2], 2)
    assert pickle.loads(pickle.dumps(scored)) == scored


@pytest.mark.parametrize("rewards", [[1.0], [1.0, math.nan], [1.0, None], [1.0, "2"], [1.0, math.inf], [1.0, [2.0]]])
def test_rewards_that_are_none_are_refused(rewards):
    group = Group([1], [Completion([3], [-1.0]), Completion([4], [-1.0])])
    with pytest.raises(sk.SampleError, match="rewards"):
        group.with_rewards(rewards)


@pytest.mark.parametrize("completions", [[], [[1, 2]], [None]])
def test_groups_hold_completions(completions):
    with pytest.raises(sk.SampleError, match="completions"):
        Group([1], completions)


COPIES = {
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "replace": lambda value: value.with_rewards([2.0, 3.0]),
}


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_holds_the_same_and_stays_read_only(how):
    first = Completion([3], [-1.0], reward=1.0, stop_reason="stop", routed_experts_key="rk")
    group = Group([1, 2], [first, Completion([], [])], id="g", prompt_logprobs=np.array([0, -1], dtype=np.float32))
    copied = COPIES[how](group)
    assert how == "replace" or copied == group
    assert copied.prompt_logprobs.tolist() == [0, -1]
    one = copied.completions[0]
    assert (one.stop_reason, one.routed_experts_key) == ("stop", "rk")
    arrays = [copied.prompt, copied.prompt_logprobs]
    for item in copied.completions:
        arrays += [item.tokens, item.logprobs]
    assert not any(array.flags.writeable for array in arrays)
    if how != "replace":
        assert COPIES[how](first) == first
        assert not COPIES[how](first).tokens.flags.writeable


def test_a_group_does_not_share_its_prompts_logprobs_with_the_caller():
    given = np.array([0, -1], dtype=np.float32)
    group = Group([1, 2], [Completion([3], [-1.0])], prompt_logprobs=given)
    given[1] = 5
    assert group.prompt_logprobs.tolist() == [0, -1]
