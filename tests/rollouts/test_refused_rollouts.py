"""What completions, groups and trajectories refuse when they are made."""

import copy
import enum
import math
import pickle

import numpy as np
import pytest
import torch
from rollout_doubles import completion, episode

import samplekit as sk
from samplekit.sample.kinds import shown

STEPS = episode(([1], [2])).steps
Colour = enum.Enum("Colour", {"RED": "red"})
Text = enum.StrEnum("Text", {"RED": "red"})


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


@pytest.mark.parametrize(
    "value", [["x"], ("a", 1), {1}, True, 1.0, math.nan, torch.tensor(1), b"x", Colour.RED, 2**63, 10**400], ids=str
)
def test_ids_that_are_neither_text_nor_a_whole_number(value):
    words = f" is {shown(value)}, expected text or a whole number"
    refused(lambda: sk.Group([1], [completion([2])], id=value), f"id{words}")
    refused(lambda: sk.Trajectory(STEPS, group=value), f"group{words}")
    refused(lambda: sk.group_advantages([1.0, 0.0], [value, value]), f"groups[0]{words}")


@pytest.mark.parametrize("make", [lambda text: sk.Group([1], [completion([2])], id=text), lambda text: completion([2], key=text),
    lambda text: completion([2], stop_reason=text), lambda text: sk.Trajectory(STEPS, group=text)])  # fmt: skip
def test_text_that_no_file_could_hold(make):
    refused(lambda: make("a\ud800"), "expected text that UTF-8 can say: take out what stands at index 1")


@pytest.mark.parametrize(
    "value", ["task", "1", 1, 0, -(2**63), 2**63 - 1, np.int32(7), np.str_("task"), Text.RED], ids=repr
)
def test_ids_come_back_from_files_and_copies_as_they_went(tmp_path, value):
    groups = [sk.Group([1], [completion([2], reward=0.0), completion([3], reward=1.0)], id=value)]
    plain = int(value) if isinstance(value, int | np.integer) else str.__str__(value)
    assert pickle.loads(pickle.dumps(groups))[0].id == plain
    samples = sk.build_grpo_samples(groups)
    sk.write_samples(tmp_path / "samples.jsonl", samples)
    found = [sample.info["group"] for sample in sk.read_samples(tmp_path / "samples.jsonl")]
    assert (found, {type(name) for name in found}) == ([plain] * 2, {type(plain)})


@pytest.mark.parametrize("value", [None, 3, completion([2]), STEPS[0]], ids=str)
def test_one_thing_in_the_place_of_several(value):
    refused(lambda: sk.Group([1], value), "expected a list of Completion")
    refused(lambda: sk.Trajectory(value), "expected a list of Step")


def test_several_of_another_kind_are_named_by_index():
    refused(lambda: sk.Group([1], [completion([2]), "x"]), "completions[1] is a str, expected a Completion")
    refused(lambda: sk.Trajectory([*STEPS, None]), "steps[1] is None, expected a Step")
    refused(lambda: sk.Group([1], []), "completions is empty")
    refused(lambda: sk.Trajectory(()), "steps is empty")


@pytest.mark.parametrize("rewards", [3, None, "1", {0: 1.0}, 0.5, {1.0}, frozenset({1.0}), {0: 1.0}.keys()], ids=str)
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


ODD = 2**53 + 1


@pytest.mark.parametrize("rewards", [[ODD, 2**53], [2**53, ODD], [0.5, ODD], np.array([ODD, 2**53]), np.array([0, ODD], object),
    torch.tensor([ODD, 2**53]), [torch.tensor(ODD), 0], [np.int64(ODD), 0], np.array([ODD, 1], np.uint64), [-ODD, 0]], ids=repr)  # fmt: skip
def test_whole_rewards_that_a_float_would_round_are_named(rewards):
    index = [abs(int(value)) for value in rewards].index(ODD)
    group = sk.Group([1], [completion([2]), completion([3])])
    for make in (
        lambda: sk.group_advantages(rewards),
        lambda: group.with_rewards(rewards),
        lambda: sk.build_trajectory_samples([episode(([1], [2]))] * 2, advantages=rewards),
    ):
        with pytest.raises(sk.SampleError, match=rf"(rewards|advantages)\[{index}\] is .*which a float would round"):
            make()


@pytest.mark.parametrize(
    "rewards", [[2**54, 2**54 + 4], np.array([2**60, 2**61]), [float(2**60), 2**61], [-(2**53), 2**53]], ids=repr
)
def test_large_whole_rewards_that_a_float_holds_are_compared(rewards):
    low, high = sk.group_advantages(rewards, scale="none")
    assert high == -low == (int(rewards[1]) - int(rewards[0])) / 2


ONE = (1, 1.0, True, np.float32(1), np.int8(1), np.array(1), torch.tensor(1.0), torch.tensor([1.0]))
NO_NUMBER = ("1", b"1", np.array([1.0]), np.ma.masked, 1j, [1.0], {1.0}, 1e39, -1e39)


@pytest.mark.parametrize("value", ONE, ids=repr)
def test_one_number_however_it_is_wrapped(value):
    assert completion([2], reward=value).reward == 1.0


@pytest.mark.parametrize("value", NO_NUMBER, ids=repr)
def test_what_is_no_number_is_no_reward(value):
    refused(lambda: completion([2], reward=value), "completion.reward is ")
    refused(lambda: sk.Trajectory(STEPS, reward=value), "trajectory.reward is ")
    refused(lambda: sk.Group([1], [completion([2])]).with_rewards(lambda _: value), "rewards[0] is ")


@pytest.mark.parametrize("value", ["no", 1, 0, None, [], np.True_], ids=repr)
@pytest.mark.parametrize("name", ["merge", "drop_degenerate"])
def test_flags_that_are_neither_true_nor_false(name, value):
    for items in ([], [episode(([1], [2]), reward=reward) for reward in (0.0, 1.0)]):
        refused(
            lambda items=items: sk.build_trajectory_samples(items, **{name: value}),
            f"{name} is {value!r}, expected True or False",
        )


def test_rewards_whose_advantage_no_float32_holds_are_named():
    rewards = [0.0, 3.4e38, -3.4e38]
    group = sk.Group([1], [completion([2], reward=reward) for reward in rewards], id="wide")
    episodes = [episode(([1], [2]), reward=reward, group="wide") for reward in rewards]
    settings = {"scale": "none", "baseline": "leave_one_out"}
    assert len(sk.build_grpo_samples([group], scale="none")) == 3
    words = " (group 'wide') has the reward 3.4e+38 and with it an advantage of 5.1e+38"
    refused(lambda: sk.build_grpo_samples([group], **settings), f"groups[0].completions[1]{words}")
    refused(lambda: sk.build_trajectory_samples(episodes, **settings), f"trajectories[1]{words}")


@pytest.mark.parametrize(
    ("advantages", "words"),
    [([0.0, math.nan], r"advantages[1] is nan"), ([None, 1], "advantages[0] is None"), ({0: 1.0}, "advantages is a dict"),
     ("ab", "advantages is a str"), (np.ones((2, 1)), "advantages has shape (2, 1)"), ([], "advantages is empty")],
    ids=str,
)  # fmt: skip
def test_advantages_that_are_none_speak_of_trajectories(advantages, words):
    episodes = [episode(([1], [2]))] * 2
    with pytest.raises(sk.SampleError) as caught:
        sk.build_trajectory_samples(episodes, advantages=advantages)
    assert words in str(caught.value)
    assert "trajector" in str(caught.value)
    assert "completion" not in str(caught.value)
    assert "reward" not in str(caught.value)


@pytest.mark.parametrize("advantages", [[1.0], (0, 0), np.ones(3), torch.ones(2)], ids=str)
def test_advantages_of_no_trajectory(advantages):
    words = f"advantages holds {len(advantages)} values, expected one for each of 0 trajectories"
    refused(lambda: sk.build_trajectory_samples([], advantages=advantages), words, sk.AlignmentError)
    assert sk.build_trajectory_samples([], advantages=[]) == sk.build_trajectory_samples([]) == []


def test_an_operation_in_the_place_of_its_result():
    class Operation:
        def result(self):
            raise AssertionError("a result is not fetched unasked")

    refused(
        lambda: sk.build_grpo_samples(Operation()),
        "groups is an Operation, expected a list of Group: pass its .result()",
    )
