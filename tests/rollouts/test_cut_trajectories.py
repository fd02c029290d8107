"""Trajectories that were cut off are kept, masked or dropped; those in several samples are counted."""

import pytest
from rollout_doubles import completion, read

import samplekit as sk
from samplekit.rollouts import Drop


def run(reward, stops=("stop", "stop"), *, name="a"):
    """Two steps, the second one continuing the first."""
    steps = [sk.Step([1, 2], completion([3], stop_reason=stops[0])),
             sk.Step([1, 2, 3, 4], completion([5, 6], stop_reason=stops[1]))]  # fmt: skip
    return sk.Trajectory(steps, reward=reward, group=name)


ITEMS = [run(0.0), run(1.0), run(5.0, ("length", "stop"))]


def last_advantages(samples):
    return [read(sample, "advantages")[-1] for sample in samples]


@pytest.mark.parametrize(
    ("overlong", "advantages"),
    [("keep", [-2, -1, 3]), ("mask", [-2, -1]), ("drop", [-0.5, 0.5])],  # means: 2, 2, 0.5
)
def test_a_cut_trajectory_is_kept_or_counts_in_the_baseline_or_is_left_out(overlong, advantages):
    samples = sk.build_trajectory_samples(ITEMS, overlong=overlong, scale="none")
    assert last_advantages(samples) == advantages
    assert [sample.info["group_size"] for sample in samples] == [2 if overlong == "drop" else 3] * len(advantages)
    places = () if overlong == "keep" else (0, 1)
    assert samples.drops == tuple(Drop("overlong", f"trajectories[2].steps[{n}]", "a") for n in places)


@pytest.mark.parametrize("stops", [("abort", "stop"), ("stop", "MAX_TOKENS"), ("content_filter", "error")])
def test_any_cut_completion_makes_its_trajectory_overlong(stops):
    samples = sk.build_trajectory_samples([run(0.0), run(1.0), run(5.0, stops)], overlong="mask", scale="none")
    assert samples.dropped == {"overlong": 2}


@pytest.mark.parametrize(("max_length", "dropped"), [(6, {}), (5, {"overlong": 6})])
def test_a_step_that_does_not_fit_makes_its_trajectory_overlong(max_length, dropped):
    samples = sk.build_trajectory_samples([run(0.0), run(1.0), run(5.0)], overlong="mask", max_length=max_length)
    assert samples.dropped == dropped


def test_the_only_one_left_of_its_group_is_alone():
    samples = sk.build_trajectory_samples([run(0.0), run(5.0, ("length", "stop"))], overlong="drop")
    assert (samples, samples.dropped) == ([], {"overlong": 2, "alone": 2})
    masked = sk.build_trajectory_samples([run(0.0), run(5.0, ("length", "stop"))], overlong="mask", scale="none")
    assert last_advantages(masked) == [-2.5]


@pytest.mark.parametrize(("overlong", "size"), [("mask", 3), ("drop", 2)])
def test_given_advantages_stay_as_they_are(overlong, size):
    samples = sk.build_trajectory_samples(ITEMS, advantages=[0.5, -2.0, 9.0], overlong=overlong)
    assert last_advantages(samples) == [0.5, -2.0]
    assert [sample.info["group_size"] for sample in samples] == [size, size]
    assert samples.dropped == {"overlong": 2}


def test_dropping_may_leave_a_group_that_teaches_nothing():
    for options in ({}, {"advantages": [0.0, 0.0, 3.0]}):
        items = [run(1.0), run(1.0), run(5.0, ("length", "stop"))]
        samples = sk.build_trajectory_samples(items, overlong="drop", **options)
        assert samples.dropped == {"overlong": 2, "degenerate": 4}


def test_another_overlong_is_refused():
    with pytest.raises(sk.SampleError, match="overlong is 'cut', expected one of keep, mask, drop"):
        sk.build_trajectory_samples(ITEMS, overlong="cut")


def test_trajectories_in_several_samples_are_counted():
    rewritten = sk.Trajectory(
        [sk.Step([1, 2], completion([3])), sk.Step([1, 9], completion([5]))], reward=2.0, group="a"
    )
    samples = sk.build_trajectory_samples([run(0.0), rewritten, run(5.0)])
    assert [(item.info.get("run"), item.info.get("num_runs")) for item in samples] == [
        (None, None), (0, 2), (1, 2), (None, None),
    ]  # fmt: skip
    assert samples.num_split == 1
    assert (samples + samples).num_split == 2
    assert sk.build_trajectory_samples([run(0.0), run(5.0)], merge=False).num_split == 2
    assert sk.SampleList().num_split == 0


def test_two_trajectories_that_share_a_first_step_both_train_it():
    samples = sk.build_trajectory_samples([run(0.0), run(1.0)], scale="none")
    assert [sample.tokens.tolist() for sample in samples] == [[1, 2, 3, 4, 5, 6]] * 2
    assert [read(sample, "advantages") for sample in samples] == [[0, -0.5, 0, -0.5, -0.5], [0, 0.5, 0, 0.5, 0.5]]


def test_metrics_of_trajectories_by_hand():
    flat = [run(1.0, name="b"), run(1.0, name="b")]
    one_step = sk.Trajectory([sk.Step([1, 2, 3], completion([4]))], reward=2.0, group="a")
    found = sk.rollout_metrics([run(0.0), run(1.0, ("stop", "abort")), one_step, *flat])
    assert (found["trajectory/count"], found["trajectory/steps/mean"]) == (5, 9 / 5)
    assert (found["trajectory/steps/min"], found["trajectory/steps/max"]) == (1, 2)
    assert (found["group/count"], found["group/size/mean"], found["group/degenerate_fraction"]) == (2, 2.5, 0.5)
    assert (found["completion/count"], found["completion/cut_fraction"]) == (9, 1 / 9)
    assert found["completion/length/mean"] == pytest.approx((4 * 3 + 1) / 9)
    assert found["prompt/length/mean"] == pytest.approx((4 * (2 + 4) + 3) / 9)
    assert (found["reward/mean"], found["reward/max"]) == (1.0, 2.0)
    assert found["reward/group_std/mean"] == pytest.approx(0.5)  # 1 of 0, 1, 2 and 0 of 1, 1
    first, second = sk.group_metrics([run(0.0), run(1.0, ("stop", "abort")), one_step, *flat])
    assert (first["group"], first["size"], first["degenerate"], first["reward/mean"]) == ("a", 3, 0, 1)
    assert (second["group"], second["degenerate"], second["completion/length/mean"]) == ("b", 1, 1.5)


def test_one_group_where_none_is_named_and_no_reward_where_none_is_scored():
    items = [sk.Trajectory(item.steps) for item in ITEMS]
    found = sk.rollout_metrics(iter(items))
    assert (found["group/count"], found["group/size/mean"]) == (1, 3)
    assert "reward/mean" not in found


def test_what_are_no_trajectories_of_one_batch_is_refused():
    group = sk.Group([1], [completion([2])])
    with pytest.raises(sk.SampleError, match=r"trajectories\[1\] is a Group, expected a Trajectory"):
        sk.rollout_metrics([ITEMS[0], group])
    with pytest.raises(sk.SampleError, match=r"trajectories\[0\] is a Group, expected a Trajectory"):
        sk.rollout_metrics([group, ITEMS[0]])
    with pytest.raises(sk.SampleError, match=r"groups\[0\] is a Sample, expected a Group"):
        sk.rollout_metrics(sk.build_trajectory_samples(ITEMS))
    with pytest.raises(sk.SampleError, match=r"1 of 2 trajectories have no reward.*Trajectory\.with_reward"):
        sk.rollout_metrics([ITEMS[0], sk.Trajectory(ITEMS[1].steps, group="a")])
    with pytest.raises(sk.SampleError, match=r"trajectories\[1\].group is None while others"):
        sk.rollout_metrics([ITEMS[0], sk.Trajectory(ITEMS[1].steps, reward=1.0)])
    for wrong in (group, ITEMS[0]):
        with pytest.raises(sk.SampleError, match="groups is a"):
            sk.rollout_metrics(wrong)
