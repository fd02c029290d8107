"""Advantages that a caller gives to completions, scores put on what was checked once, and long histories."""

import math

import numpy as np
import pytest
from rollout_doubles import completion, group, read

import samplekit as sk
from samplekit.rollouts.prefixes import prefix_runs

UNSCORED = [group([None, None], id="a"), group([None], id="b"), group([None, None], id="a")]


def test_given_advantages_go_to_completions_in_the_order_of_the_groups():
    samples = sk.build_grpo_samples(UNSCORED, advantages=[1.0, -2.0, 0.25, 4.0, -0.5])
    assert [read(sample, "advantages")[-1] for sample in samples] == [1.0, -2.0, 0.25, 4.0, -0.5]
    assert [sample.info["source"] for sample in samples][1:4] == [
        "groups[0].completions[1]", "groups[1].completions[0]", "groups[2].completions[0]",
    ]  # fmt: skip
    assert [sample.info["group_size"] for sample in samples] == [4, 4, 1, 4, 4]
    assert "reward" not in samples[0].info


def test_given_advantages_replace_those_of_rewards():
    samples = sk.build_grpo_samples([group([0.0, 8.0])], advantages=np.array([0.5, 0.5]))
    assert [read(sample, "advantages")[-1] for sample in samples] == [0.5, 0.5]
    assert [sample.info["reward"] for sample in samples] == [0.0, 8.0]


def test_a_group_whose_given_advantages_are_all_0_is_degenerate():
    given = [0.0, -0.0, 1.0, 0.0, 0.0]
    samples = sk.build_grpo_samples(UNSCORED, advantages=given)
    assert (len(samples), samples.dropped) == (1, {"degenerate": 4})
    kept = sk.build_grpo_samples(UNSCORED, advantages=given, drop_degenerate=False)
    assert [read(sample, "advantages")[-1] for sample in kept] == given


def test_what_drop_leaves_out_does_not_keep_its_group_from_being_degenerate():
    groups = [group([None, None], stops=["stop", "length"])]
    samples = sk.build_grpo_samples(groups, advantages=[0.0, 3.0], overlong="drop")
    assert samples.dropped == {"overlong": 1, "degenerate": 1}
    assert sk.build_grpo_samples(groups, advantages=[0.0, 3.0], overlong="mask").dropped == {"overlong": 1}


@pytest.mark.parametrize(
    ("groups", "advantages", "words"),
    [
        (UNSCORED, [1.0] * 3, "advantages holds 3 values, expected one for each of 5 completions"),
        (UNSCORED, [1.0] * 6, "advantages holds 6 values, expected one for each of 5 completions"),
        (UNSCORED, [], "advantages is empty"), ([], [1.0], "advantages holds 1 values, expected one for each of 0 comp"),
        (UNSCORED, [1.0, 1.0, math.nan, 1.0, 1.0], r"advantages\[2\] is nan.*repair what gives the completions their"),
        (UNSCORED, np.ones((5, 1)), r"advantages has shape \(5, 1\)"), (UNSCORED, 1.0, "advantages is 1.0"),
        (UNSCORED, None, r"groups\[0\].completions\[0\].reward is None.*or pass advantages"),
    ],
)  # fmt: skip
def test_other_advantages_are_refused(groups, advantages, words):
    with pytest.raises(sk.SampleError, match=words):
        sk.build_grpo_samples(groups, advantages=advantages)


def test_no_groups_take_no_advantages():
    assert sk.build_grpo_samples([], advantages=[]) == []


def test_a_sample_of_several_steps_says_why_its_last_one_ended():
    steps = [
        sk.Step([1, 2], completion([3], stop_reason="stop")),
        sk.Step([1, 2, 3, 4], completion([5], stop_reason="length")),
    ]
    other = sk.Trajectory([sk.Step([1, 2], completion([6], stop_reason=None))])
    joined, silent = sk.build_trajectory_samples([sk.Trajectory(steps), other], advantages=[1.0, -1.0])
    assert joined.info["stop_reason"] == "length"
    assert "stop_reason" not in silent.info
    apart = sk.build_trajectory_samples([sk.Trajectory(steps)], advantages=[1.0], merge=False)
    assert [sample.info["stop_reason"] for sample in apart] == ["stop", "length"]


def test_a_score_is_put_on_the_same_read_only_tokens():
    given = sk.Group([1, 2], [completion([3, 4], key="k"), completion([5])], id="g", prompt_logprobs=[0.0, -0.5])
    scored = given.with_rewards([1, 0.5])
    assert [item.reward for item in scored.completions] == [1.0, 0.5]
    assert [item.reward for item in given.completions] == [None, None]
    for before, after in zip(given.completions, scored.completions, strict=True):
        assert np.shares_memory(before.tokens, after.tokens)
        assert not after.tokens.flags.writeable
        assert after == sk.Completion(
            before.tokens, before.logprobs, reward=after.reward, stop_reason=before.stop_reason,
            routed_experts_key=before.routed_experts_key,
        )  # fmt: skip
    assert scored == sk.Group([1, 2], scored.completions, id="g", prompt_logprobs=[0.0, -0.5])
    with pytest.raises(sk.SampleError, match=r"completion\.reward is nan"):
        given.completions[0].with_reward(math.nan)


@pytest.mark.parametrize("place", [None, 0, 7, 135, 136, 137, 198, 199])
def test_a_history_that_was_rewritten_anywhere_starts_a_run_of_its_own(place):
    first = sk.Step(range(10, 200), completion(range(300, 310)))  # 200 tokens
    prompt = [*range(10, 200), *range(300, 310), 7, 8]
    if place is not None:
        prompt[place] = 9
    assert prefix_runs([first, sk.Step(prompt, completion([1]))], None) == ([[0, 1]] if place is None else [[0], [1]])


def test_a_short_history_that_was_rewritten_is_noticed_too():
    first = sk.Step([1, 2], completion([3]))
    assert prefix_runs([first, sk.Step([1, 2, 3], completion([4]))], None) == [[0, 1]]
    assert prefix_runs([first, sk.Step([9, 2, 3], completion([4]))], None) == [[0], [1]]
