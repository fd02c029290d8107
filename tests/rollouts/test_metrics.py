"""Numbers that describe a batch of groups, held to sums by hand."""

import json
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_doubles import group

import samplekit as sk

FLAT = group([1.0, 1.0], id="flat", lengths=[1, 3])
STEEP = group([0.0, 2.0, 4.0], id="steep", prompt=[1, 2, 3, 4], lengths=[2, 0, 4], stops=["stop", "stop", "length"])


def test_a_batch_by_hand():
    found = sk.rollout_metrics([FLAT, STEEP])
    # Logprobs of n tokens are -0.5, -0.5 - 1/64, ...: minus their sum is n / 2 + n (n - 1) / 128.
    entropy = sum(n / 2 + n * (n - 1) / 128 for n in (1, 3, 2, 0, 4)) / 10
    assert found == pytest.approx({
        "group/count": 2, "group/size/mean": 2.5, "group/degenerate_fraction": 0.5,
        "reward/mean": 1.6, "reward/std": statistics.stdev([1, 1, 0, 2, 4]), "reward/min": 0, "reward/max": 4,
        "reward/group_std/mean": (0 + 2) / 2, "prompt/length/mean": 3,
        "completion/count": 5, "completion/length/mean": 2, "completion/length/std": statistics.stdev([1, 3, 2, 0, 4]),
        "completion/length/min": 0, "completion/length/max": 4, "completion/cut_fraction": 0.2,
        "completion/empty_fraction": 0.2, "entropy/mean": entropy,
    })  # fmt: skip


def test_every_group_has_a_row():
    flat, steep = sk.group_metrics([FLAT, STEEP])
    assert steep == pytest.approx({
        "group": "steep", "size": 3, "degenerate": 0, "reward/mean": 2, "reward/std": 2, "reward/min": 0, "reward/max": 4,
        "completion/length/mean": 2, "completion/length/std": 2, "completion/length/min": 0, "completion/length/max": 4,
        "entropy/mean": (2 / 2 + 2 / 128 + 4 / 2 + 12 / 128) / 6,
    })  # fmt: skip
    assert (flat["degenerate"], flat["reward/std"]) == (1, 0)


def test_groups_are_formed_by_id_as_samples_are():
    halves = [sk.Group([1], STEEP.completions[:1], id="steep"), FLAT, sk.Group([1], STEEP.completions[1:], id="steep")]
    assert (
        sk.rollout_metrics(halves)["reward/group_std/mean"]
        == sk.rollout_metrics([FLAT, STEEP])["reward/group_std/mean"]
    )
    assert [row["group"] for row in sk.group_metrics(halves)] == ["steep", "flat"]
    unnamed = [group([0.0, 1.0], id=None), group([0.0, 1.0], id=None)]
    assert sk.rollout_metrics(unnamed)["group/count"] == 2


def test_what_cannot_be_told_is_left_out():
    assert sk.rollout_metrics([]) == {"group/count": 0, "completion/count": 0}
    assert sk.group_metrics([]) == []
    unscored = group([None, None])
    assert not [name for name in sk.rollout_metrics([unscored]) if "reward" in name or "degenerate" in name]
    assert "degenerate" not in sk.group_metrics([unscored])[0]
    assert "entropy/mean" not in sk.rollout_metrics([group([0.0, 1.0], lengths=[0, 0])])
    one = sk.rollout_metrics([group([1.0])])
    assert (one["reward/std"], one["group/degenerate_fraction"]) == (0, 1)
    assert "reward/group_std/mean" not in one


@pytest.mark.parametrize("function", [sk.rollout_metrics, sk.group_metrics])
@pytest.mark.parametrize(
    ("groups", "words"),
    [([group([1.0, None])], "1 of 2 completions have no reward"), (FLAT, "groups is a Group"), (3, "groups is 3"),
     ([3], r"groups\[0\] is 3")],
)  # fmt: skip
def test_what_cannot_be_described_is_refused(function, groups, words):
    with pytest.raises(sk.SampleError, match=words):
        function(groups)


scored = st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), min_size=1, max_size=6)


@given(st.lists(scored, max_size=5))
def test_every_number_is_finite_json_and_agrees_with_the_samples(of):
    groups = [group(values, id=str(number)) for number, values in enumerate(of)]
    found = sk.rollout_metrics(groups)
    assert all(type(value) is float and math.isfinite(value) for value in found.values())
    assert json.loads(json.dumps(found)) == found
    several = [item for item in groups if len(item) > 1]
    dropped = sk.build_grpo_samples(several).dropped["degenerate"]
    flat = [row for row in sk.group_metrics(several) if row["degenerate"]]
    assert dropped == sum(row["size"] for row in flat)
    assert sk.rollout_metrics(several).get("group/degenerate_fraction", 0) * len(several) == pytest.approx(len(flat))
