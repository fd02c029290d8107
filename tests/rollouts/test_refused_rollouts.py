"""What completions, groups and trajectories refuse when they are made."""

import copy
import pickle

import numpy as np
import pytest
from rollout_doubles import completion, episode

import samplekit as sk

STEPS = episode(([1], [2])).steps


def refused(make, words, kind=sk.SampleError):
    with pytest.raises(sk.SampleError) as caught:
        make()
    assert type(caught.value) is kind
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["stop_reason", "routed_experts_key"])
@pytest.mark.parametrize("value", [{"type": "stop"}, 1, True, ["stop"], b"stop"], ids=str)
def test_a_reason_or_key_that_is_no_text(name, value):
    refused(
        lambda: sk.Completion([1], [-0.5], **{name: value}), f"completion.{name} is {value!r}, expected text or None"
    )


@pytest.mark.parametrize("value", [["x"], {"a": 1}, ("a", [1]), {1}], ids=str)
def test_ids_that_cannot_be_compared(value):
    refused(lambda: sk.Group([1], [completion([2])], id=value), f"id is {value!r}, which cannot be compared")
    refused(lambda: sk.Trajectory(STEPS, group=value), f"group is {value!r}, which cannot be compared")


@pytest.mark.parametrize("value", [None, 3, completion([2]), STEPS[0]], ids=str)
def test_one_thing_in_the_place_of_several(value):
    refused(lambda: sk.Group([1], value), "expected a list of Completion")
    refused(lambda: sk.Trajectory(value), "expected a list of Step")


def test_several_of_another_kind_are_named_by_index():
    refused(lambda: sk.Group([1], [completion([2]), "x"]), "completions[1] is a str, expected a Completion")
    refused(lambda: sk.Trajectory([*STEPS, None]), "steps[1] is None, expected a Step")
    refused(lambda: sk.Group([1], []), "completions is empty")
    refused(lambda: sk.Trajectory(()), "steps is empty")


@pytest.mark.parametrize("rewards", [3, None, "1", {0: 1.0}, 0.5], ids=str)
def test_rewards_that_are_no_function_and_no_sequence(rewards):
    refused(lambda: sk.Group([1], [completion([2])]).with_rewards(rewards), "rewards is ")


@pytest.mark.parametrize("rewards", [np.array([1.0]), (1.0,), iter([1.0]), [np.float32(1)]], ids=str)
def test_rewards_of_any_sequence(rewards):
    assert sk.Group([1], [completion([2])]).with_rewards(rewards).completions[0].reward == 1.0


@pytest.mark.parametrize("length", [1, 2, 4])
def test_logprobs_of_another_length_than_the_prompt(length):
    words = f"prompt_logprobs holds {length} values, the prompt 3 tokens"
    refused(lambda: sk.Group([1, 2, 3], [completion([2])], prompt_logprobs=[-0.5] * length), words, sk.AlignmentError)


@pytest.mark.parametrize("index", [1, 2])
def test_logprobs_of_a_prompt_above_0(index):
    values = [0.0, -0.5, -0.5]
    values[index] = 0.25
    words = f"prompt_logprobs[{index}] is 0.25, expected at most 0"
    refused(lambda: sk.Group([1, 2, 3], [completion([2])], prompt_logprobs=values), words)
    assert sk.Group([1, 2, 3], [completion([2])], prompt_logprobs=[7.0, -0.5, 0.0]).prompt_logprobs[0] == 7


def test_groups_are_equal_where_their_logprobs_are():
    makes = [
        lambda values=values: sk.Group([1, 2], [completion([3])], id="a", prompt_logprobs=values)
        for values in (None, [0.0, -0.5], [0.0, -0.25])
    ]
    for place, make in enumerate(makes):
        assert [make() == other() for other in makes] == [place == number for number in range(3)]
        assert copy.deepcopy(make()) == pickle.loads(pickle.dumps(make())) == make()
        assert hash(make()) == hash(make())
