"""Episodes become samples: each sampled token trains once, in the context it was sampled in, merged or not."""

import copy
import math
import pickle
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_doubles import completion, episode, read

import samplekit as sk
from samplekit.rollouts import Drop

TOOL_USE = ([1, 2], [10, 11]), ([1, 2, 10, 11, 7, 8], [20])


def test_steps_and_trajectories_are_frozen_compared_and_copied():
    step = sk.Step(["1", 2], completion([3]))
    assert (step.prompt.tolist(), step.tokens.tolist()) == ([1, 2], [1, 2, 3])
    whole = sk.Trajectory([step], reward=1, group="a")
    assert (whole.reward, whole.group, len(whole)) == (1.0, "a", 1)
    for make in (copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))):
        assert make(whole) == whole
        assert hash(make(whole)) == hash(whole)
        assert not make(whole).steps[0].prompt.flags.writeable
    assert whole != whole.with_reward(2.0) != sk.Trajectory([step, step], reward=2.0, group="a")
    with pytest.raises(AttributeError):
        whole.reward = 2.0
    with pytest.raises(AttributeError):
        step.prompt = [1]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sk.Step([1], [2]), "step.completion is a list"), (lambda: sk.Step([], completion([3])), "step.prompt is empty"),
        (lambda: sk.Step([1.5], completion([3])), "step.prompt"), (lambda: sk.Trajectory([]), "steps is empty"),
        (lambda: sk.Trajectory([([1], completion([3]))]), r"steps\[0\] is a tuple"),
        (lambda: episode(*TOOL_USE, reward=math.nan), "trajectory.reward is nan"),
    ],
)  # fmt: skip
def test_what_is_no_step_or_trajectory_is_refused(make, words):
    with pytest.raises(sk.SampleError, match=words):
        make()


def test_a_tool_call_is_one_sample_by_hand():
    (sample,) = sk.build_trajectory_samples([episode(*TOOL_USE)], advantages=[0.5])
    assert sample.tokens.tolist() == [1, 2, 10, 11, 7, 8, 20]
    assert read(sample, "weights") == [0, 1, 1, 0, 0, 1]
    assert read(sample, "advantages") == [0, 0.5, 0.5, 0, 0, 0.5]
    assert read(sample, "logprobs") == [0, -1, -1.015625, 0, 0, -2]
    assert sample.info == {"group_size": 1, "source": "trajectories[0]", "stop_reason": "stop", "steps": [0, 1]}


def test_without_merging_every_step_is_a_sample():
    samples = sk.build_trajectory_samples([episode(*TOOL_USE)], advantages=[0.5], merge=False)
    assert [sample.tokens.tolist() for sample in samples] == [[1, 2, 10, 11], [1, 2, 10, 11, 7, 8, 20]]
    assert [read(sample, "weights") for sample in samples] == [[0, 1, 1], [0, 0, 0, 0, 0, 1]]


def test_a_step_continues_the_longest_run_not_the_first():
    first, second = ([1], [2]), ([1, 2], [3])
    both = sk.build_trajectory_samples([episode(first, ([1, 2, 5], [6]), ([1, 2, 5, 6], [7]))], advantages=[1])
    assert [sample.info["steps"] for sample in both] == [[0, 1, 2]]
    # Two runs are open, [1, 2] as sampled anew and [1, 2, 3]; the last step continues both.
    twice = sk.build_trajectory_samples([episode(first, first, second, ([1, 2, 3, 9], [4]))], advantages=[1])
    assert [sample.info["steps"] for sample in twice] == [[0, 2, 3], [1]]
    nested = sk.build_trajectory_samples(
        [episode(([1], [2]), ([1, 8], [9]), ([1, 2], [3]), ([1], [2, 3, 4]), ([1, 2, 3, 4, 5], [6]))], advantages=[1]
    )
    assert [sample.info["steps"] for sample in nested] == [[0, 2], [1], [3, 4]]


def test_a_fork_starts_a_sample_of_its_own_and_trains_nothing_twice():
    samples = sk.build_trajectory_samples([episode(([1], [2]), ([1, 2, 5], [6]), ([1, 2, 7], [8]))], advantages=[1])
    assert [sample.info["steps"] for sample in samples] == [[0, 1], [2]]
    assert read(samples[1], "weights") == [0, 0, 1]  # [2] trained in the first sample


@pytest.mark.parametrize(
    "rewritten",
    [[1, 2, 10, 99, 7], [1, 2, 10], [1, 2], [9, 1, 2, 10, 11], [1, 2, 11, 10, 7]],
    ids=str,
)
def test_a_history_that_was_rewritten_is_never_merged(rewritten):
    samples = sk.build_trajectory_samples([episode(TOOL_USE[0], (rewritten, [20]))], advantages=[1])
    assert [sample.tokens.tolist() for sample in samples] == [[1, 2, 10, 11], [*rewritten, 20]]


def test_a_prompt_that_adds_nothing_continues_too():
    (sample,) = sk.build_trajectory_samples([episode(([1], [2, 3]), ([1, 2, 3], [4]))], advantages=[1])
    assert read(sample, "weights") == [1, 1, 1]


def test_steps_join_only_where_they_fit_together():
    whole = episode(([1], [2, 3]), ([1, 2, 3, 4], [5]), ([1, 2, 3, 4, 5, 6], [7, 8]))
    for max_length, steps in ((8, [[0, 1, 2]]), (7, [[0, 1], [2]]), (4, [[0]])):
        samples = sk.build_trajectory_samples([whole], advantages=[1], max_length=max_length)
        assert [sample.info["steps"] for sample in samples] == steps
        assert all(sample.length + 1 <= max_length for sample in samples)
    assert sk.build_trajectory_samples([whole], advantages=[1], max_length=7)[1].info["cut_tokens"] == 1
    assert samples.drops == tuple(Drop("no_room", f"trajectories[0].steps[{n}]", None) for n in (1, 2))


def test_a_step_without_tokens_is_named_and_parts_nothing():
    samples = sk.build_trajectory_samples([episode(([1], [2]), ([1, 2, 3], []), ([1, 2, 3, 4], [5]))], advantages=[1])
    assert [sample.info["steps"] for sample in samples] == [[0, 2]]
    assert samples.drops == (Drop("empty", "trajectories[0].steps[1]", None),)


def test_steps_that_carry_a_key_of_the_experts_stay_alone():
    steps = [sk.Step([1], completion([2], key="a")), sk.Step([1, 2], completion([3])), sk.Step([1, 2, 3], completion([4])),
             sk.Step([1, 2, 3, 4], completion([5], key="b"))]  # fmt: skip
    samples = sk.build_trajectory_samples([sk.Trajectory(steps)], advantages=[1])
    assert [(sample.info["steps"], sample.routed_experts_key) for sample in samples] == [
        ([0], "a"), ([1, 2], None), ([3], "b"),
    ]  # fmt: skip


def test_rewards_are_compared_within_groups_in_any_order():
    items = [episode(*TOOL_USE, reward=reward, group=name) for reward, name in [(0, "a"), (5, "b"), (1, "a"), (7, "b")]]
    samples = sk.build_trajectory_samples(items, scale="none")
    assert [read(sample, "advantages")[-1] for sample in samples] == [-0.5, -1, 0.5, 1]
    assert samples[1].info == {
        "group": "b",
        "group_size": 2,
        "reward": 5.0,
        "source": "trajectories[1]",
        "stop_reason": "stop",
        "steps": [0, 1],
    }
    others = sk.build_trajectory_samples(items, baseline="leave_one_out")
    half = math.sqrt(0.5)
    assert [read(sample, "advantages")[-1] for sample in others] == pytest.approx([-2 * half] * 2 + [2 * half] * 2)


def test_where_none_names_its_group_all_are_one():
    items = [episode(*TOOL_USE, reward=reward) for reward in (0, 1, 5)]
    samples = sk.build_trajectory_samples(items, scale="none")
    assert [read(sample, "advantages")[-1] for sample in samples] == [-2, -1, 3]


@pytest.mark.parametrize("by", ["rewards", "advantages"])
def test_degenerate_groups_are_dropped_by_step_or_kept_as_zeros(by):
    rewards = [1, 1, 0, 2]
    items = [episode(*TOOL_USE, reward=reward, group=name) for reward, name in zip(rewards, "aabb", strict=True)]
    options = {"advantages": [0.0, 0.0, -1.0, 0.0]} if by == "advantages" else {}
    samples = sk.build_trajectory_samples(items, **options)
    assert samples.dropped == {"degenerate": 4}
    assert [sample.info["group"] for sample in samples] == ["b", "b"]
    kept = sk.build_trajectory_samples(items, drop_degenerate=False, **options)
    assert (len(kept), kept.dropped) == (4, {})
    assert not any(read(kept[0], "advantages"))


def test_no_trajectories_give_no_samples():
    samples = sk.build_trajectory_samples(iter([]))
    assert (samples, samples.dropped) == ([], {})


ONE = episode(*TOOL_USE, reward=1.0, group="a")


@pytest.mark.parametrize(
    ("items", "options", "words"),
    [
        ([ONE], {}, r"trajectories\[0\] \(group 'a'\) is the only trajectory of its group"),
        ([ONE, ONE, ONE.with_reward(0.0), sk.Trajectory(ONE.steps, reward=0.0, group="b")], {}, r"trajectories\[3\] \(group 'b'\) is the only"),
        ([ONE, sk.Trajectory(ONE.steps, group="a")], {}, r"trajectories\[1\]\.reward is None"),
        ([ONE, sk.Trajectory(ONE.steps, reward=1.0)], {}, r"trajectories\[1\]\.group is None"),
        ([ONE, 5], {}, r"trajectories\[1\] is 5"), (ONE, {}, "trajectories is a Trajectory"), (7, {}, "trajectories is 7"),
        ([ONE, ONE], {"advantages": [1.0]}, "advantages holds 1 values, expected one for each of 2"),
        ([ONE, ONE], {"advantages": [1.0, math.nan]}, r"advantages\[1\] is nan"),
        ([ONE, ONE], {"advantages": [1.0, None]}, r"advantages\[1\] is None"),
        ([ONE, ONE], {"advantages": 1.0}, "advantages is 1.0"),
        ([], {"scale": "var"}, "scale is 'var'"), ([], {"max_length": 1}, "max_length is 1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("merge", [True, False])
def test_what_cannot_be_built_is_named(items, options, words, merge):
    with pytest.raises(sk.SampleError, match=words):
        sk.build_trajectory_samples(items, merge=merge, **options)


def trained(samples):
    """Every trained token with all that stands before it, its logprob and its advantage."""
    found = Counter()
    for sample in samples:
        tokens = sample.tokens.tolist()
        values = zip(*(read(sample, name) for name in ("weights", "logprobs", "advantages")), strict=True)
        for place, (weight, logprob, advantage) in enumerate(values, start=1):
            found[tuple(tokens[: place + 1]), logprob, advantage] += weight != 0
            assert weight or (logprob, advantage) == (0, 0)
    return +found


@st.composite
def episodes(draw):
    """Steps whose prompts continue an earlier step, rewrite it, or start anew; few tokens, so that they meet."""
    ids = st.lists(st.integers(1, 3), max_size=3)
    steps = []
    for _ in range(draw(st.integers(1, 6))):
        before = draw(st.sampled_from([[1], *([*prompt, *done] for prompt, done in steps)]))
        steps.append((before + draw(ids), draw(ids)))
    return steps


@given(episodes())
def test_merging_changes_no_trained_token_its_context_or_its_values(steps):
    item = episode(*steps)
    merged = sk.build_trajectory_samples([item], advantages=[2.0])
    apart = sk.build_trajectory_samples([item], advantages=[2.0], merge=False)
    assert trained(merged) == trained(apart)
    assert sum(trained(merged).values()) == sum(len(done) for _, done in steps)
    assert len(merged) <= len(apart)
    assert merged.drops == apart.drops
    assert sorted(index for sample in merged for index in sample.info["steps"]) == [
        index for index, (_, done) in enumerate(steps) if done
    ]


@given(episodes())
def test_a_chain_of_steps_is_one_sample(steps):
    chain, tokens = [], []
    for observed, done in steps:
        tokens = tokens + observed
        chain.append((tokens, done or [9]))
        tokens = tokens + (done or [9])
    (sample,) = sk.build_trajectory_samples([episode(*chain)], advantages=[1.0])
    assert sample.tokens.tolist() == tokens
