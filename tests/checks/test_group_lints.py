"""Faults of whole batches of rollouts: groups that teach nothing, and completions that are compared with nothing."""

import pytest

import samplekit as sk
from samplekit.checks import CODES

POLICY_LOSSES = [None, sk.ImportanceSampling(), sk.PPO(), sk.GRPO(), sk.CISPO(), sk.DPPO(), sk.DRO(beta=0.1)]


def rollout(advantage, group=None, size=None):
    info = {name: value for name, value in (("group", group), ("group_size", size)) if value is not None}
    return sk.build_sample([5, 6, 7, 8], [0, 0, 1, 1], advantages=advantage, logprobs=[0, 0, -1, -1], info=info)


def found(samples, **options):
    report = sk.check(samples, **options)
    assert report.ok
    return [(item.code, item.path) for item in report.warnings]


def as_mappings(samples):
    return [{**sample.to_wire(), "info": sample.info} for sample in samples]


FORMS = pytest.mark.parametrize("form", [list, as_mappings], ids=["samples", "mappings"])


@FORMS
@pytest.mark.parametrize("loss", POLICY_LOSSES, ids=repr)
@pytest.mark.parametrize("groups", [[None] * 4, list("aabb"), ["a", "a", None, None]], ids=str)
def test_a_batch_without_any_advantage_is_told_once(form, loss, groups):
    samples = form([rollout(0.0, group) for group in groups])
    assert found(samples, loss=loss) == [("zero_advantages", "samples")]
    left = "only the penalty trains" if isinstance(loss, sk.DRO) else "the policy gradient is 0"
    assert f"so {left}: skip the step" in sk.check(samples, loss=loss).warnings[0].message
    assert found(samples, loss=loss, allow="zero_advantages") == []


@pytest.mark.parametrize(("beta", "left"), [(0.0, "the policy gradient is 0"), (0.1, "only the penalty trains")])
@pytest.mark.parametrize("kind", [sk.DRO, sk.GRPO])
def test_without_any_advantage_a_penalty_still_trains(kind, beta, left):
    full = [0, 0, -1, -1]
    samples = [
        sk.build_sample([5, 6, 7, 8], [0, 0, 1, 1], advantages=0.0, logprobs=full, reference_logprobs=full)
        for _ in range(2)
    ]
    (message,) = [item.message for item in sk.check(samples, loss=kind(beta=beta)).warnings if item.path == "samples"]
    assert f", so {left}: " in message


@FORMS
@pytest.mark.parametrize("index", [0, 1, 3])
@pytest.mark.parametrize("advantage", [1.0, -1e-20])
def test_one_advantage_anywhere_is_enough(form, index, advantage):
    samples = [rollout(advantage if place == index else 0.0) for place in range(4)]
    assert found(form(samples)) == []


def test_only_advantages_at_trained_positions_count():
    outside = sk.build_sample([5, 6, 7, 8], [0, 0, 1, 1], advantages=[0, 1, 0, 0], logprobs=[0, 0, -1, -1])
    codes = [code for code, _ in found([outside])]
    assert codes == ["advantage_outside_mask", "zero_advantages"]


def test_advantages_that_nothing_reads_are_not_judged():
    assert found([rollout(0.0, "a")], loss=sk.CrossEntropy()) == []
    assert found([sk.build_sample([1, 2, 3], [0, 1, 1], info={"group": "a"})]) == []


@FORMS
@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("first", [0, 2])
def test_a_group_of_equal_rewards_is_named_by_its_first_sample(form, size, first):
    steep = [rollout(value, "steep", size) for value in (1.0, -1.0, 0.0)]
    flat = [rollout(0.0, "flat", size) for _ in range(3)]
    samples = form(steep[:first] + flat + steep[first:])
    assert found(samples) == [("constant_group", f"samples[{first}].info['group']")]
    message = sk.check(samples).warnings[0].message
    assert "is 'flat', and all its 3 samples have advantages of 0 only" in message
    assert found(samples, allow={"constant_group"}) == []


def test_a_part_of_a_group_is_not_called_constant():
    part = [rollout(0.0, "a", 4), rollout(0.0, "a", 4), rollout(1.0, "b", 2), rollout(-1.0, "b", 2)]
    assert found(part) == []
    assert found([rollout(0.0, "a", 4), rollout(0.0, "a", 4), *part]) == [
        ("constant_group", "samples[0].info['group']")
    ]


@FORMS
@pytest.mark.parametrize("size", [None, 1])
def test_a_completion_that_is_compared_with_nothing_is_named(form, size):
    samples = form([rollout(1.0, "a"), rollout(-1.0, "a"), rollout(0.5, "alone", size)])
    assert found(samples) == [("single_completion", "samples[2].info['group']")]
    assert "is 'alone', a group of one, expected two or more" in sk.check(samples).warnings[0].message


def test_the_rest_of_a_group_may_be_in_another_batch():
    assert found([rollout(1.0, "a", 8), rollout(-1.0, "b", 8)]) == []


@pytest.mark.parametrize("group", [["unhashable"], {"a": 1}, ("a", [1])], ids=str)
def test_a_group_that_is_no_id_is_left_alone(group):
    assert found([rollout(1.0, group), rollout(-1.0, group)]) == []


def test_what_the_builders_give_has_no_finding():
    group = sk.Group([1, 2], [sk.Completion([3 + n], [-0.5]) for n in range(4)], id="a").with_rewards([0, 1, 1, 3])
    assert found(sk.build_grpo_samples([group]), loss=sk.GRPO()) == []
    flat = group.with_rewards([1, 1, 1, 1])
    assert found(sk.build_grpo_samples([flat], drop_degenerate=False)) == [("zero_advantages", "samples")]
    other = sk.Group([1, 2], group.completions, id="b")
    both = sk.build_grpo_samples([other, flat], drop_degenerate=False)
    assert found(both) == [("constant_group", "samples[4].info['group']")]


def test_the_codes_are_warnings():
    for code in ("zero_advantages", "constant_group", "single_completion"):
        assert CODES[code].startswith("warning: ")
