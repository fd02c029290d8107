"""What may be asked of a generator."""

from __future__ import annotations

import copy
import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from service_double import OPERATIONS, operation

import samplekit as sk
from samplekit.client import DrawnGroup, PolicySegment


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_samples": 0}, "num_samples is 0"),
        ({"num_samples": -1}, "num_samples"),
        ({"num_samples": 1.5}, "num_samples"),
        ({"num_samples": True}, "num_samples"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 1e-45}, "temperature is 1e-45, expected 0, which takes the likeliest token, or 1e-30 or more"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 1.0}, "top_k"),
        ({"seed": "7"}, "seed is '7', expected a whole number"),
        ({"seed": 2**70}, f"seed is {2**70}, expected a whole number"),
        ({"seed": True}, "seed is True"),
        ({"num_samples": torch.tensor(2)}, "num_samples is a Tensor, expected a whole number of 1 or more"),
        ({"max_tokens": 2**63}, "max_tokens"),
        ({"temperature": torch.tensor(1.0)}, "temperature is a Tensor, expected a finite number"),
        ({"temperature": 10**400}, "temperature"),
        ({"temperature": "1"}, "temperature is '1'"),
        ({"top_p": np.float32("nan")}, "top_p is np.float32.nan., expected a number above 0"),
        ({"prompt_logprobs": "no"}, "prompt_logprobs is 'no', expected True or False"),
        ({"stop": 5}, "stop is 5, expected several strings"),
        ({"stop": None}, "stop is None"),
        ({"stop": [151645]}, r"stop\[0\] is 151645.*stop_strings"),
        ({"stop": ["ok", 3]}, r"stop\[1\]"),
        ({"stop": [""]}, r"stop\[0\]"),
    ],
)
def test_settings_out_of_range_are_refused_before_any_request(side, options, words):
    session = side.session()
    with pytest.raises(sk.SampleError, match=words):
        session.generate([[1, 2]], **options)
    assert side.double.seen == []


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        ([], "prompts is empty"),
        ([[]], r"prompts\[0\]"),
        ([[1], []], r"prompts\[1\]"),
        ([1, 2], "wrap it"),
        ("text", "prompts is a str"),
        (5, "prompts is 5, expected several prompts"),
        (None, "prompts is None"),
        ({"a": [1]}, "prompts is a dict"),
        (sk.ModelInput.from_tokens([1]), "prompts is a ModelInput.*pass a list"),
        (torch.tensor(1), "prompts is a Tensor"),
        (torch.tensor([1, 2]), "wrap it"),
        (np.array([1, 2]), "wrap it"),
        (["text"], r"prompts\[0\] is text"),
        ([[{"role": "user", "content": "hi"}]], r"prompts\[0\] holds messages.*ChatTemplate.prompt"),
        ([{"role": "user", "content": "hi"}], r"prompts\[0\] holds messages"),
        ([[1, -2]], r"prompts\[0\].*-2"),
        ([[1, 1.5]], r"prompts\[0\]"),
        ([["7"]], r"prompts\[0\]"),
        ([[True]], r"prompts\[0\]"),
    ],
)
def test_prompts_that_are_none_are_refused_before_any_request(side, prompts, words):
    session = side.session()
    with pytest.raises(sk.SampleError, match=words):
        session.generate(prompts)
    assert side.double.seen == []


def test_prompts_may_be_lists_arrays_ranges_or_model_inputs(side):
    side.double.answer(f"POST {OPERATIONS}/sample", operation("PENDING"))
    side.session().generate([[1, 2], np.array([1, 2]), range(1, 3), sk.ModelInput.from_tokens([1, 2])], stop="<end>")
    body = side.double.seen[0].body
    assert body["model_inputs"] == [{"chunks": [{"encoded_text": {"tokens": [1, 2]}}]}] * 4
    assert body["sampling_params"] == {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "stop": ["<end>"]}


# logprobs-05: top-p, top-k and temperature renormalise; a ratio of 0.9 would multiply every token in silence.
@pytest.mark.parametrize("options", [{"top_p": 0.9}, {"top_k": 40}, {"temperature": 0.7}, {"temperature": 1.3}])
def test_sampling_that_bends_the_ratio_warns(side, options):
    side.double.answer(f"POST {OPERATIONS}/sample", operation("PENDING"))
    session = side.session()
    with pytest.warns(UserWarning, match=next(iter(options))):
        session.generate([[1]], **options)


@pytest.mark.parametrize("temperature", [1, 0])
def test_plain_and_greedy_sampling_do_not_warn(side, temperature):
    side.double.answer(f"POST {OPERATIONS}/sample", operation("PENDING"))
    session = side.session()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.generate([[1]], temperature=temperature, top_p=1, top_k=-1, seed=3, num_samples=4)


def test_numbers_of_numpy_are_numbers(side):
    side.double.answer(f"POST {OPERATIONS}/sample", operation("PENDING"))
    settings = {"num_samples": np.int64(2), "max_tokens": np.uint8(3), "top_k": np.int32(-1), "seed": np.int64(7)}
    side.session().generate([[1]], **settings, temperature=np.float32(1), top_p=np.float64(1))
    body = side.double.seen[0].body
    assert body["num_samples"] == 2
    assert body["sampling_params"] == {"max_tokens": 3, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "seed": 7}


def test_an_empty_prompt_is_named_in_plain_words(side):
    with pytest.raises(sk.SampleError, match=r"^prompts\[1\]: tokens is empty"):
        side.session().generate([[1], []])
    assert side.double.seen == []


def drawn(side, segments):
    sequence = {"tokens": ["5", 6, 7], "logprobs": [-0.5] * 3}
    result = {"sequences": [sequence, sequence], "policy_segments": segments}
    side.double.answer(f"POST {OPERATIONS}/sample", operation("COMPLETED", {"results": [result]}))
    (group,) = side.session().generate([[1, 2]], num_samples=2).result()
    return group


@pytest.mark.parametrize("segments", [
    [{"version": "3", "start_token": "0"}, {"version": "4", "start_token": "2"}],
    [{"version": 3, "start_token": 0}, {"version": 4, "start_token": 2}],
    [{"version": 3}, {"version": 4, "start_token": 2, "new_member": 1}],
])  # fmt: skip
def test_a_group_keeps_which_weights_drew_it_when_they_changed_in_the_middle(side, segments):
    group = drawn(side, segments)
    assert isinstance(group, DrawnGroup)
    scored = group.with_rewards([1.0, 2.0])
    assert [item.reward for item in scored.completions] == [1.0, 2.0]
    for item in (group, scored, pickle.loads(pickle.dumps(group)), copy.deepcopy(scored)):
        assert item.policy_segments == (PolicySegment(3, 0), PolicySegment(4, 2))
        assert item.topk_prompt_logprobs == ()
    assert {type(value) for item in group.policy_segments for value in vars(item).values()} == {int}


@pytest.mark.parametrize("segments", [None, []])
def test_a_group_of_unknown_weights_is_a_plain_one(side, segments):
    assert type(drawn(side, segments)) is sk.Group


@pytest.mark.parametrize(
    "segments", [3, "v3", {"version": 3}, [{"version": "x"}], [{"version": 1.5}], [{"start_token": []}]]
)
def test_odd_segments_are_a_named_error(side, segments):
    with pytest.raises(sk.OperationError, match=r"results\[0\]\.policy_segments"):
        drawn(side, segments)
