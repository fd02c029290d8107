"""Groups become samples: every sampled token with its own logprob and its group's advantage, or a named drop."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_doubles import completion, group, read

import samplekit as sk
from samplekit.rollouts import Drop
from samplekit.rollouts.sample_list import REASONS


def test_one_sample_a_completion_by_hand():
    samples = sk.build_grpo_samples([group([1.0, 0.0], lengths=[1, 3])])
    half = math.sqrt(0.5)  # (1 - 0.5) / std of [0, 1] with ddof 1
    assert [sample.tokens.tolist() for sample in samples] == [[1, 2, 10], [1, 2, 20, 21, 22]]
    assert [read(sample, "weights") for sample in samples] == [[0, 1], [0, 1, 1, 1]]
    assert read(samples[0], "advantages") == pytest.approx([0, half])
    assert read(samples[1], "advantages") == pytest.approx([0, -half, -half, -half])
    assert read(samples[1], "logprobs") == [0, -0.5, -0.515625, -0.53125]
    assert samples[1].info == {
        "group": "g", "group_size": 2, "reward": 0.0, "source": "groups[0].completions[1]", "stop_reason": "stop",
    }  # fmt: skip
    assert samples.dropped == {}
    for loss in (sk.GRPO(), sk.PPO(), sk.DRO(beta=0.1), sk.GRPO(ratio="sequence")):
        report = sk.check(samples, loss=loss)
        assert (report.errors, report.warnings) == ([], [])


@pytest.mark.parametrize("settings", [{"scale": s, "baseline": b} for s in ("std", "none") for b in ("mean", "leave_one_out")], ids=str)  # fmt: skip
def test_settings_reach_the_advantages(settings):
    rewards = [0.0, 0.5, 3.0]
    samples = sk.build_grpo_samples([group(rewards)], **settings)
    found = [read(sample, "advantages")[-1] for sample in samples]
    assert found == pytest.approx(sk.group_advantages(rewards, **settings).tolist(), rel=1e-6)


def advantage_by_token(samples):
    return {sample.tokens.tolist()[2]: read(sample, "advantages")[-1] for sample in samples}


def test_groups_are_formed_by_id_not_by_prompt_or_place():
    one = sk.build_grpo_samples([group([0.0, 1.0, 2.0, 3.0])], scale="none")
    parts = [group([0.0, 1.0, 2.0, 3.0]).completions[start : start + 1] for start in range(4)]
    split = [sk.Group([1, 2], part, id="g") for part in parts]
    other = group([5.0, 7.0], prompt=[1, 2], id="same prompt")
    mixed = sk.build_grpo_samples([split[0], other, *split[1:]], scale="none")
    shared = [sample for sample in mixed if sample.info["group"] == "g"]
    assert advantage_by_token(shared) == advantage_by_token(one) == {10: -1.5, 20: -0.5, 30: 0.5, 40: 1.5}
    assert [sample.info["group"] for sample in mixed] == ["g", *["same prompt"] * 2, "g", "g", "g"]


def test_groups_without_an_id_stand_for_themselves():
    samples = sk.build_grpo_samples([group([0.0, 1.0], id=None), group([5.0, 7.0], id=None)], scale="none")
    assert [read(sample, "advantages")[-1] for sample in samples] == [-0.5, 0.5, -1, 1]
    assert all("group" not in sample.info for sample in samples)


@pytest.mark.parametrize("equal", [[1.0, 1.0], [0.0] * 5, [np.float32(0.95)] * 7, [0.1 + 0.2, 0.3]], ids=str)
def test_degenerate_groups_are_dropped_and_counted_or_kept_as_zeros(equal):
    groups = [group(equal, id="flat"), group([0.0, 1.0], id="steep")]
    samples = sk.build_grpo_samples(groups)
    assert {sample.info["group"] for sample in samples} == {"steep"}
    assert samples.dropped == {"degenerate": len(equal)}
    assert samples.drops[0] == Drop("degenerate", "groups[0].completions[0]", "flat")
    kept = sk.build_grpo_samples(groups, drop_degenerate=False)
    assert len(kept) == len(equal) + 2
    assert kept.dropped == {}
    assert all(read(sample, "advantages") == [0, 0, 0] for sample in kept[: len(equal)])
    assert not sk.build_grpo_samples(groups[:1])


LONG = {"lengths": [2, 2, 2], "stops": ["stop", "length", "stop"]}


@pytest.mark.parametrize(
    ("overlong", "advantages", "dropped", "size"),
    [
        ("keep", [-1, 2, -1], {}, 3),
        ("mask", [-1, -1], {"overlong": 1}, 3),  # 3 counts in the baseline of 1
        ("drop", [0, 0], {"overlong": 1}, 2),  # what is left is degenerate
    ],
)
def test_overlong_completions_are_kept_masked_or_dropped(overlong, advantages, dropped, size):
    given_groups = [group([0.0, 3.0, 0.0], **LONG)]
    samples = sk.build_grpo_samples(given_groups, scale="none", overlong=overlong, drop_degenerate=False)
    assert [read(sample, "advantages")[-1] for sample in samples] == advantages
    assert samples.dropped == dropped
    assert {sample.info["group_size"] for sample in samples} == {size}


def test_what_max_length_would_cut_is_overlong_too():
    groups = [group([0.0, 3.0, 0.0], lengths=[2, 5, 3])]
    assert sk.build_grpo_samples(groups, overlong="mask", max_length=5).drops == (
        Drop("overlong", "groups[0].completions[1]", "g"),
    )
    assert sk.build_grpo_samples(groups, overlong="mask", max_length=7).drops == ()
    kept = sk.build_grpo_samples(groups, max_length=5)
    assert [sample.tokens.tolist() for sample in kept] == [[1, 2, 10, 11], [1, 2, 20, 21, 22], [1, 2, 30, 31, 32]]
    assert [sample.info.get("cut_tokens") for sample in kept] == [None, 2, None]


@pytest.mark.parametrize(
    ("stop", "limit"),
    [
        ("length", True),
        ("LENGTH", True),
        ("STOP_REASON_LENGTH", True),
        ("max_tokens", True),
        ("STOP_REASON_MAX_TOKENS", True),
        ("stop", False),
        (None, False),
        ("<eos>", False),
    ],
)
def test_the_samplers_limit_is_known_in_any_spelling(stop, limit):
    groups = [group([0.0, 3.0], stops=["stop", stop])]
    assert groups[0].completions[1].was_cut == limit
    assert sk.build_grpo_samples(groups, overlong="mask").dropped == ({"overlong": 1} if limit else {})
    assert sk.rollout_metrics(groups)["completion/cut_fraction"] == limit / 2


def test_what_overlong_drop_leaves_alone_is_dropped_by_name():
    groups = [group([0.0, 3.0, 1.0], stops=["length", "stop", "length"]), group([0.0, 1.0], id="h")]
    samples = sk.build_grpo_samples(groups, overlong="drop")
    assert samples.dropped == {"overlong": 2, "alone": 1}
    assert len(samples) == 2
    every = sk.build_grpo_samples([group([0.0, 3.0], stops=["length", "length"])], overlong="drop")
    assert (len(every), every.dropped) == (0, {"overlong": 2})


def test_empty_completions_count_in_the_baseline_and_are_named():
    samples = sk.build_grpo_samples([group([0.0, 3.0, 0.0], lengths=[2, 0, 2])], scale="none")
    assert [read(sample, "advantages")[-1] for sample in samples] == [-1, -1]
    assert samples.drops == (Drop("empty", "groups[0].completions[1]", "g"),)


def test_a_prompt_that_fills_max_length_leaves_no_room():
    groups = [group([0.0, 1.0], prompt=range(1, 6)), group([0.0, 1.0], id="h")]
    samples = sk.build_grpo_samples(groups, max_length=5)
    assert (len(samples), samples.dropped) == (2, {"no_room": 2})


def test_the_key_of_the_experts_stays_with_its_completion():
    made = [completion([3], reward=1.0, key="one"), completion([4], reward=0.0, key="two")]
    samples = sk.build_grpo_samples([sk.Group([1], made)])
    assert [sample.routed_experts_key for sample in samples] == ["one", "two"]


def test_no_groups_give_no_samples():
    samples = sk.build_grpo_samples([])
    assert samples == []
    assert samples.dropped == {}


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([group([0.0, 1.0]), group([0.0, None], id="h")], r"groups\[1\]\.completions\[1\]\.reward is None"),
        ([group([0.0, 1.0]), group([1.0], id="h")], r"groups\[1\]\.completions\[0\] \(group 'h'\) is the only completion"),
        ([group([1.0], id=None), group([1.0], id=None)], r"groups\[0\]\.completions\[0\] is the only"),
        ([1], r"groups\[0\] is 1"), (5, "groups is 5"), (group([0.0, 1.0]), "groups is a Group"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("overlong", ["keep", "mask", "drop"])
def test_what_cannot_be_compared_is_named(groups, words, overlong):
    with pytest.raises(sk.SampleError, match=words):
        sk.build_grpo_samples(groups, overlong=overlong)


@pytest.mark.parametrize(
    ("name", "value"),
    [("scale", "var"), ("baseline", None), ("overlong", "cut"), ("overlong", None), ("max_length", 1), ("max_length", True),
     ("max_length", 2.0), ("drop_degenerate", "x"), ("drop_degenerate", 1), ("drop_degenerate", None), ("drop_degenerate", np.True_)],
)  # fmt: skip
def test_settings_that_are_none_are_refused_even_without_groups(name, value):
    with pytest.raises(sk.SampleError, match=f"^{name} is "):
        sk.build_grpo_samples([], **{name: value})


def test_every_reason_is_told_in_a_list_that_prints_and_pickles():
    groups = [group([0.0, 1.0, 2.0], lengths=[0, 1, 1], stops=["stop", "stop", "length"])]
    samples = sk.build_grpo_samples(groups, overlong="mask")
    copied = pickle.loads(pickle.dumps(samples))
    assert (copied, copied.drops) == (samples, samples.drops)
    assert repr(samples) == "SampleList(1 samples, dropped={'empty': 1, 'overlong': 1})"
    assert set(samples.dropped) <= set(REASONS)


rewards = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=6)


@given(
    of=st.lists(rewards, max_size=5), overlong=st.sampled_from(["keep", "mask", "drop"]),
    drop_degenerate=st.booleans(), max_length=st.sampled_from([None, 2, 4, 6]), data=st.data(),
)  # fmt: skip
def test_every_completion_becomes_a_sample_or_a_named_drop(of, overlong, drop_degenerate, max_length, data):
    groups = [
        group(values, id=str(number),
              lengths=data.draw(st.lists(st.integers(0, 5), min_size=len(values), max_size=len(values))),
              stops=data.draw(st.lists(st.sampled_from(["stop", "length"]), min_size=len(values), max_size=len(values))))
        for number, values in enumerate(of)
    ]  # fmt: skip
    samples = sk.build_grpo_samples(groups, overlong=overlong, drop_degenerate=drop_degenerate, max_length=max_length)
    told = [sample.info["source"] for sample in samples] + [drop.source for drop in samples.drops]
    assert sorted(told) == sorted(
        f"groups[{g}].completions[{c}]" for g, one in enumerate(groups) for c in range(len(one))
    )
    for sample in samples:
        assert read(sample, "weights")[0] == 0
        assert sample.num_trained == sample.length - 1
        assert max_length is None or sample.length + 1 <= max_length
