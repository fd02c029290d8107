"""Every public function of rollouts against every hostile value in every place: taken for a stated reason, or refused as ours."""

import enum
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from real_tokenizers import toy
from rollout_doubles import completion, episode

import samplekit as sk

Colour = enum.Enum("Colour", {"RED": 1})
VALUES = {
    "None": lambda: None, "5": lambda: 5, "text": lambda: "x", "bytes": lambda: b"x", "object": object,
    "generator": lambda: (number for number in [1, 2]), "dict": lambda: {1: 1.0, 2: 2.0}, "set": lambda: {1, 2},
    "frozenset": lambda: frozenset({1, 2}), "nested": lambda: [[1], [2]], "ragged": lambda: [[1], 2],
    "masked": lambda: np.ma.array([1, 2], mask=[False, True]), "masked floats": lambda: np.ma.array([-1.0, -2.0], mask=[0, 1]),
    "meta": lambda: torch.empty(2, device="meta"), "0-d meta": lambda: torch.empty((), device="meta"),
    "nan": lambda: math.nan, "inf": lambda: math.inf, "huge": lambda: 10**400, "True": lambda: True, "Enum": lambda: Colour.RED,
    "Enum class": lambda: Colour, "nans": lambda: [math.nan] * 2, "infs": lambda: [-math.inf] * 2, "huges": lambda: [10**400] * 2,
    "bools": lambda: [True, False], "texts": lambda: ["x", "y"], "digits": lambda: ["9" * 5000] * 2, "Nones": lambda: [None] * 2,
    "0-d": lambda: np.array(1), "objects": lambda: [object()] * 2, "sentinels": lambda: [-9999.0] * 2, "empty": list,
    "array of bools": lambda: np.array([True, False]), "tensor of bools": lambda: torch.tensor([True, False]), "type": lambda: list,
    "surrogate": lambda: "\ud800", "array": lambda: np.array([1, 2]), "complex": lambda: [1j, 2j], "2-d": lambda: np.ones((2, 2)),
}  # fmt: skip


def scored(**options):
    return sk.Group([1], [completion([2], reward=0.0), completion([3], reward=1.0)], **options)


EPISODES = [episode(([1], [2]), reward=reward) for reward in (0.0, 1.0)]


def openai(**changes):
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "token_ids": [1, 2],
        "prompt_token_ids": [5],
        "logprobs": {"token_logprobs": [-1, -2]},
    }
    return {"choices": [{**choice, **changes}]}  # fmt: skip


def vllm(prompt=(5,), **changes):
    sampled = {"token_ids": [1, 2], "finish_reason": "stop", "logprobs": [{1: -1.0}, {2: -2.0}], **changes}
    return SimpleNamespace(prompt_token_ids=list(prompt), outputs=[SimpleNamespace(**sampled)])


def together(**changes):
    return {"results": [{"sequences": [{"tokens": [1, 2], "logprobs": [-1, -2], "stop_reason": "stop", **changes}]}]}


PLACES = {
    "Completion tokens": lambda v: sk.Completion(v, [-0.5, -0.5]),
    "Completion logprobs": lambda v: sk.Completion([1, 2], v),
    "Completion reward": lambda v: sk.Completion([1], [-0.5], reward=v),
    "Completion stop_reason": lambda v: sk.Completion([1], [-0.5], stop_reason=v),
    "Completion key": lambda v: sk.Completion([1], [-0.5], routed_experts_key=v),
    "Completion.with_reward": lambda v: completion([1]).with_reward(v),
    "Group prompt": lambda v: sk.Group(v, [completion([1])]),
    "Group completions": lambda v: sk.Group([1], v),
    "Group id": lambda v: sk.Group([1], [completion([1])], id=v),
    "Group prompt_logprobs": lambda v: sk.Group([1, 2], [completion([1])], prompt_logprobs=v),
    "Group.with_rewards": lambda v: scored().with_rewards([v, v] if callable(v) else v),  # a function's own error passes
    "Group.with_rewards by a function": lambda v: scored().with_rewards(lambda _: v),
    "Step prompt": lambda v: sk.Step(v, completion([1])),
    "Step completion": lambda v: sk.Step([1], v),
    "Trajectory steps": sk.Trajectory,
    "Trajectory reward": lambda v: sk.Trajectory(EPISODES[0].steps, reward=v),
    "Trajectory group": lambda v: sk.Trajectory(EPISODES[0].steps, group=v),
    "Trajectory.with_reward": EPISODES[0].with_reward,
    "group_advantages rewards": sk.group_advantages,
    "group_advantages groups": lambda v: sk.group_advantages([1.0, 0.0], v),
    **{f"group_advantages {name}": lambda v, name=name: sk.group_advantages([1.0, 0.0], **{name: v})
       for name in ("scale", "baseline", "ddof", "floor")},
    "build_grpo_samples groups": sk.build_grpo_samples,
    **{f"build_grpo_samples {name}": lambda v, name=name: sk.build_grpo_samples([scored()], **{name: v})
       for name in ("scale", "baseline", "drop_degenerate", "overlong", "max_length")},
    "build_trajectory_samples trajectories": sk.build_trajectory_samples,
    **{f"build_trajectory_samples {name}": lambda v, name=name: sk.build_trajectory_samples(EPISODES, **{name: v})
       for name in ("advantages", "merge", "scale", "baseline", "drop_degenerate", "max_length")},
    "rollout_metrics": sk.rollout_metrics,
    "group_metrics": sk.group_metrics,
    "encoding_drift text": lambda v: sk.encoding_drift(v, [5], toy()),
    "encoding_drift ids": lambda v: sk.encoding_drift("a", v, toy()),
    "encoding_drift tokenizer": lambda v: sk.encoding_drift("a", [5], v),
    "groups_from_together result": lambda v: sk.groups_from_together(v, [[1]]),
    "groups_from_together prompts": lambda v: sk.groups_from_together(together(), v),
    "groups_from_together a prompt": lambda v: sk.groups_from_together(together(), [v]),
    "groups_from_together ids": lambda v: sk.groups_from_together(together(), [[1]], ids=v),
    **{f"groups_from_together {name}": lambda v, name=name: sk.groups_from_together(together(**{name: v}), [[1]])
       for name in ("tokens", "logprobs", "stop_reason", "routed_experts_key")},
    "group_from_openai response": sk.group_from_openai,
    "group_from_openai prompt": lambda v: sk.group_from_openai(openai(), v),
    "group_from_openai id": lambda v: sk.group_from_openai(openai(), id=v),
    **{f"group_from_openai {name}": lambda v, name=name: sk.group_from_openai(openai(**{name: v}))
       for name in ("index", "finish_reason", "token_ids", "prompt_token_ids", "logprobs", "prompt_logprobs")},
    **{f"group_from_openai logprobs {name}": lambda v, name=name: sk.group_from_openai(
        openai(logprobs={"token_logprobs": [-1, -2], name: v})) for name in ("token_logprobs", "tokens", "token_ids")},
    "group_from_openai logprobs content": lambda v: sk.group_from_openai(openai(logprobs={"content": v})),
    "groups_from_openai num_samples": lambda v: sk.groups_from_openai(openai(), v),
    "groups_from_openai prompts": lambda v: sk.groups_from_openai(openai(), 1, v),
    "groups_from_openai ids": lambda v: sk.groups_from_openai(openai(), 1, ids=v),
    "group_from_vllm output": sk.group_from_vllm,
    "group_from_vllm id": lambda v: sk.group_from_vllm(vllm(), id=v),
    **{f"group_from_vllm {name}": lambda v, name=name: sk.group_from_vllm(vllm(**{name: v}))
       for name in ("token_ids", "finish_reason", "logprobs", "index")},
}  # fmt: skip
NUMBERS = {"5", "True"}
SCORES = {"generator", "array", "bools", "array of bools", "tensor of bools", "sentinels"}
LISTS = {"generator", "nested", "ragged", "Enum class", "nans", "infs", "huges", "bools", "texts", "digits", "Nones", "objects",
         "sentinels", "empty", "array of bools", "tensor of bools", "array", "complex", "2-d"}  # fmt: skip
NONE_IS_LEFT_OUT = "None stands for not given"
TAKEN = {  # what may be given in a place, beside what every place refuses, and why
    "Completion tokens": ({"array"}, "ids"),
    "Completion reward": ({"None", *NUMBERS, "0-d"}, f"{NONE_IS_LEFT_OUT}; a bool is 1 or 0"),
    "Completion stop_reason": ({"None", "text"}, NONE_IS_LEFT_OUT),
    "Completion key": ({"None", "text"}, NONE_IS_LEFT_OUT),
    "Completion.with_reward": ({*NUMBERS, "0-d", "None"}, "a bool is 1 or 0; None takes the score away"),
    "Group prompt": ({"array"}, "ids"),
    "Group id": ({"None", "text", "5"}, NONE_IS_LEFT_OUT),
    "Group prompt_logprobs": ({"None"}, NONE_IS_LEFT_OUT),
    "Group.with_rewards": (SCORES, "a bool is 1 or 0, and an iterator has an order"),
    "Group.with_rewards by a function": ({*NUMBERS, "0-d"}, "a bool is 1 or 0"),
    "Step prompt": ({"array"}, "ids"),
    "Trajectory reward": ({"None", *NUMBERS, "0-d"}, NONE_IS_LEFT_OUT),
    "Trajectory group": ({"None", "text", "5"}, NONE_IS_LEFT_OUT),
    "Trajectory.with_reward": ({*NUMBERS, "0-d", "None"}, "as Completion.with_reward"),
    "group_advantages rewards": (SCORES, "a bool is 1 or 0"),
    "group_advantages groups": ({"None", "digits"}, "one group, or any text"),
    "group_advantages floor": ({"5"}, "a number"),
    "build_grpo_samples groups": ({"empty"}, "no groups give no samples"),
    "build_grpo_samples drop_degenerate": ({"True"}, "a flag"),
    "build_grpo_samples max_length": ({"None", "5", "huge"}, "no limit"),
    "build_trajectory_samples trajectories": ({"empty"}, "no episodes give no samples"),
    "build_trajectory_samples advantages": ({"None", *SCORES}, "None compares rewards"),
    "build_trajectory_samples merge": ({"True"}, "a flag"),
    "build_trajectory_samples drop_degenerate": ({"True"}, "a flag"),
    "build_trajectory_samples max_length": ({"None", "5", "huge"}, "no limit"),
    "rollout_metrics": ({"empty"}, "no groups count 0"),
    "group_metrics": ({"empty"}, "no groups give no rows"),
    "encoding_drift text": ({"text"}, "text"),
    "encoding_drift ids": ({"array", "empty"}, "ids, of which there may be none"),
    "groups_from_together a prompt": ({"array"}, "ids"),
    "groups_from_together ids": ({"None"}, NONE_IS_LEFT_OUT),
    "groups_from_together tokens": ({"array"}, "ids"),
    "groups_from_together stop_reason": ({"None", "text", "Enum", "dict"}, "an Enum's name; a mapping may tell no type"),
    "groups_from_together routed_experts_key": ({"None", "text"}, NONE_IS_LEFT_OUT),
    "group_from_openai prompt": ({"None"}, "the response tells it"),
    "group_from_openai id": ({"None", "text", "5"}, NONE_IS_LEFT_OUT),
    "group_from_openai index": ({"None"}, "not every server numbers choices"),
    "group_from_openai finish_reason": ({"None", "text", "Enum", "dict"}, "an Enum's name; a mapping may tell no type"),
    "group_from_openai token_ids": ({"array", "generator"}, "ids in order"),
    "group_from_openai prompt_token_ids": ({"array"}, "ids"),
    "group_from_openai prompt_logprobs": ({"None"}, NONE_IS_LEFT_OUT),
    "group_from_openai logprobs tokens": ({"None", *LISTS}, "not ids, and so not read"),
    "group_from_openai logprobs token_ids": ({"None", "array", "generator"}, "the same ids"),
    "groups_from_openai prompts": ({"None"}, "the response tells them"),
    "groups_from_openai ids": ({"None"}, NONE_IS_LEFT_OUT),
    "group_from_vllm id": ({"None", "text", "5"}, NONE_IS_LEFT_OUT),
    "group_from_vllm finish_reason": ({"None", "text", "Enum", "dict"}, "an Enum's name; a mapping may tell no type"),
    "group_from_vllm token_ids": ({"array"}, "ids"),
    "group_from_vllm index": ({"None"}, NONE_IS_LEFT_OUT),
}  # fmt: skip


def outcome(place, value):
    try:
        PLACES[place](VALUES[value]())
    except sk.SampleError as error:
        return "refused" if ", expected " in str(error) or ": " in str(error) else f"says little: {error}"
    except Exception as error:  # noqa: BLE001 - what must never come out
        return repr(error)
    return "taken"


@pytest.mark.parametrize("place", PLACES)
def test_taken_for_a_reason_or_refused_as_ours(place):
    taken, _reason = TAKEN.get(place, (set(), ""))
    found = {value: outcome(place, value) for value in VALUES}
    assert found == {value: "taken" if value in taken else "refused" for value in VALUES}
