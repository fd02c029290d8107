"""Faults met in the field (data/cases/open_cases.json) that concern rewards and rollouts, and the class each stands for."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from real_tokenizers import toy, toy_ids

import samplekit as sk

FOLDER = Path(__file__).parent.parent / "data/cases"
CASES = {case["id"]: case for case in json.loads((FOLDER / "open_cases.json").read_text())}
ELSEWHERE = {"logprobs-05"}  # drawing warns when its settings bend the ratio: tests/client/test_generation.py


def given(case_id):
    return CASES[case_id]["input"]


def right(case_id):
    return CASES[case_id]["right"]


def assert_refused(make, expected):
    assert expected["type"] == "ValueError"
    with pytest.raises(sk.SampleError) as caught:
        make()
    for phrase in expected["message_must_mention"]:
        assert re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", str(caught.value)), phrase


def test_every_case_of_the_kinds_that_concern_rollouts_is_tested_here():
    here = {case_id for case_id, case in CASES.items() if case["kind"] in {"advantage", "logprobs"}} - ELSEWHERE
    tested = re.findall(r"def test_(advantage|logprobs)_(\d\d)_", Path(__file__).read_text())
    assert {f"{kind}-{number}" for kind, number in tested} == here


@pytest.mark.parametrize("kind", [float, np.float32, np.float16, torch.tensor])
@pytest.mark.parametrize("size", [2, 7, 64, 1000])
@pytest.mark.parametrize("value", [0.95, 0.1, -3.3, 1 / 3, 1e-5, 12345.678])
@pytest.mark.parametrize("baseline", ["mean", "leave_one_out"])
def test_advantage_01_equal_rewards_have_no_advantage(kind, size, value, baseline):
    case = given("advantage-01")
    assert sk.group_advantages(case["rewards"], case["groups"]).tolist() == right("advantage-01")["result"]
    found = sk.group_advantages([kind(value)] * size, baseline=baseline)
    assert found.tolist() == [0.0] * size


def test_advantage_01_and_their_group_is_reported():
    assert right("advantage-01")["also"] == "group reported as degenerate"
    completions = [sk.Completion([3], [-0.5]) for _ in range(7)]
    group = sk.Group([1], completions, id="equal").with_rewards(torch.full((7,), 0.95).tolist())
    assert sk.build_grpo_samples([group]).dropped == {"degenerate": 7}
    assert sk.rollout_metrics([group])["group/degenerate_fraction"] == 1


def test_advantage_03_groups_of_unequal_size_are_compared_apart():
    case, expected = given("advantage-03"), right("advantage-03")
    with pytest.raises(sk.SampleError, match=r"rewards\[2\] \(group 'r'\) is the only completion"):
        sk.group_advantages(case["rewards"], case["groups"])  # a group of one: signatures.md wins
    found = sk.group_advantages([*case["rewards"], 5], [*case["groups"], "r"], scale="none")
    assert found.tolist() == [*expected["result_center"], 0]
    scaled = sk.group_advantages([*case["rewards"], 5], [*case["groups"], "r"])
    assert scaled.tolist() == pytest.approx([*expected["result_std_ddof1"], 0], abs=5e-6)


@pytest.mark.parametrize("sizes", [[2, 3], [3, 2, 2], [8, 7, 8], [2, 100, 2]])
def test_advantage_03_whatever_the_sizes(sizes):
    generator = np.random.default_rng(sum(sizes))
    rewards = [generator.random(size) + 10 * number for number, size in enumerate(sizes)]
    groups = [name for name, size in zip("prst", sizes, strict=False) for _ in range(size)]
    found = sk.group_advantages(np.concatenate(rewards), groups, scale="none")
    np.testing.assert_allclose(found, np.concatenate([values - values.mean() for values in rewards]), atol=1e-12)


def test_advantage_05_interleaved_groups_are_compared_by_id():
    case = given("advantage-05")
    assert (
        sk.group_advantages(case["rewards"], case["groups"], scale="none").tolist() == right("advantage-05")["result"]
    )
    assert sk.group_advantages(case["rewards"], case["groups"]).tolist() == right("advantage-05")["result"]


@pytest.mark.parametrize("num_groups", [2, 3, 7])
@pytest.mark.parametrize("size", [2, 4, 5])
def test_advantage_05_whatever_their_number_and_size(num_groups, size):
    groups = [number for _ in range(size) for number in range(num_groups)]
    rewards = [number + place for place in range(size) for number in range(num_groups)]
    found = sk.group_advantages(rewards, groups, scale="none").reshape(size, num_groups)
    assert (found == (np.arange(size) - (size - 1) / 2)[:, None]).all()


def test_advantage_07_the_division_is_a_choice_that_is_named():
    case, expected = given("advantage-07"), right("advantage-07")["result"]
    for settings, name in (({"scale": "none"}, "center"), ({"ddof": 0}, "std_ddof0"), ({"ddof": 1}, "std_ddof1")):
        found = sk.group_advantages(case["rewards"], case["groups"], **settings)
        assert found.tolist() == pytest.approx(expected[name], abs=5e-6)
    assert "torch" in sk.group_advantages.__doc__
    assert "numpy" in sk.group_advantages.__doc__


@pytest.mark.parametrize("rewards", [[0, 1], [0, 0, 1], [3, 1, 4, 1, 5, 9], [-1, 1e6]])
def test_advantage_07_as_torch_and_numpy_divide(rewards):
    values = torch.tensor(rewards, dtype=torch.float64)
    by_torch = (values - values.mean()) / values.std()
    by_numpy = (values.numpy() - values.numpy().mean()) / values.numpy().std()
    np.testing.assert_allclose(sk.group_advantages(rewards), by_torch, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sk.group_advantages(rewards, ddof=0), by_numpy, rtol=1e-9, atol=1e-12)


def arrays(sample):
    return {name: tensor.data.tolist() for name, tensor in sample.loss_fn_inputs.items()}


def test_advantage_09_a_gap_does_not_end_the_episode():
    case, expected = given("advantage-09"), right("advantage-09")["result"]
    sample = sk.build_sample(case["tokens"], case["loss_mask"], advantages=case["advantage"])
    assert arrays(sample).items() >= expected.items()
    (merged,) = sk.build_trajectory_samples(
        [sk.Trajectory([sk.Step([9], sk.Completion([21], [-0.1])), sk.Step([9, 21, 31], sk.Completion([22], [-0.2]))])],
        advantages=[case["advantage"]],
    )
    assert merged.tokens.tolist() == case["tokens"]
    assert arrays(merged).items() >= expected.items()


@pytest.mark.parametrize("num_steps", [2, 3, 8])
@pytest.mark.parametrize("num_observed", [0, 1, 5])
def test_advantage_09_whatever_the_number_and_the_length_of_the_gaps(num_steps, num_observed):
    tokens, steps, mask = [9], [], [0]
    for number in range(num_steps):
        done = [20 + number] * (number + 1)
        steps.append(sk.Step(tokens, sk.Completion(done, [-0.5] * len(done))))
        tokens = tokens + done + [31] * num_observed
        mask += [1] * len(done) + [0] * num_observed
    (merged,) = sk.build_trajectory_samples([sk.Trajectory(steps)], advantages=[-2.0])
    kept = mask[1 : len(mask) - num_observed]
    assert arrays(merged)["weights"] == kept
    assert arrays(merged)["advantages"] == [-2.0 * weight for weight in kept]


def test_logprobs_01_too_few_are_refused_not_padded():
    case = given("logprobs-01")
    assert_refused(lambda: sk.Completion(case["completion_ids"], case["logprobs"]), right("logprobs-01")["error"])


@pytest.mark.parametrize("num_tokens", [1, 3, 40])
@pytest.mark.parametrize("difference", [-1, 1, 7])
@pytest.mark.parametrize("cast", [list, np.array, torch.tensor])
def test_logprobs_01_whatever_the_length(num_tokens, difference, cast):
    num_logprobs = max(0, num_tokens + difference)
    with pytest.raises(sk.AlignmentError) as caught:
        sk.Completion(range(num_tokens), cast([-0.1] * num_logprobs))
    assert "completion.logprobs" in str(caught.value)
    assert str(num_logprobs) in str(caught.value) or "empty" in str(caught.value)


NAMED = {"-Infinity": -math.inf}


@pytest.mark.parametrize("number", range(3))
def test_logprobs_03_what_is_missing_passes_only_where_nothing_trains(number):
    case, expected = given("logprobs-03"), right("logprobs-03")[f"case{number}"]
    logprobs = [NAMED.get(value, value) for value in case["logprobs_cases"][number]]
    if number == 0:
        assert "logprobs [-1.0,-.1,-.2]" in expected
        sample = sk.build_sample(case["tokens"], case["loss_mask"], logprobs=logprobs)
        assert arrays(sample)["logprobs"] == [-1.0, np.float32(-0.1), np.float32(-0.2)]
        return
    assert_refused(lambda: sk.build_sample(case["tokens"], case["loss_mask"], logprobs=logprobs), expected["error"])


@pytest.mark.parametrize("value", [None, math.nan, -math.inf, math.inf, 0.5])
@pytest.mark.parametrize("index", [0, 1, 4])
def test_logprobs_03_a_completion_has_every_one_of_its_own(value, index):
    logprobs = [-0.5] * 5
    logprobs[index] = value
    with pytest.raises(sk.SampleError, match=rf"completion\.logprobs.*{index}"):
        sk.Completion(range(5), logprobs)
    answer = {
        "results": [
            {"sequences": [{"tokens": ["7"], "logprobs": [-0.5]}, {"tokens": list(range(5)), "logprobs": logprobs}]}
        ]
    }
    with pytest.raises(sk.SampleError, match=r"results\[0\]\.sequences\[1\]: completion\.logprobs"):
        sk.groups_from_together(answer, [[1]])


def test_logprobs_07_sampled_ids_are_kept_whatever_their_text_encodes_to():
    case = given("logprobs-07")
    assert case["tokenizer"] == "TOK-M"
    tokenizer, sampled = toy(merges=True), toy_ids(case["sampled"])
    text = tokenizer.decode(sampled)
    drift = sk.encoding_drift(text, sampled, tokenizer)
    assert (drift.index, drift.encoded_context) == (1, ("a", ".m"))
    completions = [sk.Completion(sampled, [-0.1, -0.2, -0.3]), sk.Completion(tokenizer.encode(text), [-0.1, -0.2])]
    samples = sk.build_grpo_samples([sk.Group([1], completions).with_rewards([1.0, 0.0])])
    assert samples[0].tokens.tolist()[1:] == toy_ids(right("logprobs-07")["result_tokens"])
    assert [sample.num_trained for sample in samples] == [3, 2]


@pytest.mark.parametrize("text", [".m", "a.m.m", "..m", "\n\n", "x\n\n\n"])
def test_logprobs_07_whatever_was_sampled_apart(text):
    sampled = toy_ids([*text])
    assert sk.encoding_drift(text, sampled, toy(merges=True)) is not None
    step = sk.Step([1], sk.Completion(sampled, [-0.5] * len(sampled)))
    (sample,) = sk.build_trajectory_samples([sk.Trajectory([step])], advantages=[1.0])
    assert sample.tokens.tolist() == [1, *sampled]
