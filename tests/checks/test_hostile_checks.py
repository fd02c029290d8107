"""Check against every hostile value in every place: what is no batch or no setting is refused, what is no sample is one finding."""

import copy
import enum
import math

import numpy as np
import pytest
import torch

import samplekit as sk
from samplekit.checks import CODES

Colour = enum.Enum("Colour", {"RED": 1})
VALUES = {
    "None": lambda: None, "5": lambda: 5, "True": lambda: True, "text": lambda: "x", "bytes": lambda: b"x", "object": object,
    "generator": lambda: (number for number in [1, 2]), "dict": lambda: {"x": 1}, "set": lambda: {1, 2}, "nested": lambda: [[1], [2]],
    "ragged": lambda: [[1], 2], "masked": lambda: np.ma.array([1.0, 2.0], mask=[0, 1]), "meta": lambda: torch.empty(2, device="meta"),
    "0-d meta": lambda: torch.empty((), device="meta"), "0-d": lambda: np.array(1), "0-d tensor": lambda: torch.tensor(1),
    "nan": lambda: math.nan, "inf": lambda: math.inf, "huge": lambda: 10**400, "Enum": lambda: Colour.RED, "type": lambda: sk.Sample,
    "array": lambda: np.array([1, 2, 3]), "texts": lambda: np.array(["a", "b"]), "objects": lambda: [object()], "surrogate": lambda: "\ud800",
}  # fmt: skip
NO_BATCH = {"None", "5", "True", "text", "bytes", "object", "dict", "set", "0-d meta", "0-d", "0-d tensor", "nan", "inf", "huge", "Enum",
            "type", "surrogate"}  # fmt: skip
PLACES = [
    ("model_input",), ("model_input", "chunks"), ("model_input", "chunks", 0), ("model_input", "chunks", 0, "encoded_text"),
    ("model_input", "chunks", 0, "encoded_text", "tokens"), ("loss_fn_inputs",), ("loss_fn_inputs", "weights"),
    ("loss_fn_inputs", "weights", "data"), ("loss_fn_inputs", "weights", "dtype"), ("loss_fn_inputs", "target_tokens", "data"),
    ("loss_fn_inputs", "advantages", "data"),
]  # fmt: skip
GRPO = sk.GRPO(beta=0.5)


def rollout(group="a"):
    return sk.build_sample(
        [5, 6, 7, 8], [0, 0, 1, 1], advantages=1.0, logprobs=[-1.0] * 4, reference_logprobs=[-1.0] * 4, info={"group": group, "group_size": 1}
    )  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_what_is_no_batch_is_refused(value):
    if value in NO_BATCH:
        with pytest.raises(sk.SampleError, match=r"^samples is .*expected several"):
            sk.check(VALUES[value]())
    else:
        assert not sk.check(VALUES[value]()).ok


@pytest.mark.parametrize("loss", [None, sk.CrossEntropy(), GRPO, sk.DRO(beta=0.1)], ids=str)
@pytest.mark.parametrize("value", [name for name in VALUES if name != "dict"])
def test_what_is_no_sample_is_one_finding(value, loss):
    report = sk.check([rollout(), VALUES[value]()], loss=loss, vocab_size=100, max_length=10)
    found = [item for item in report.errors + report.warnings if item.path.startswith("samples[1]")]
    assert [(item.code, item.path) for item in found] == [("invalid_field", "samples[1]")]
    assert ", expected a Sample or a mapping" in found[0].message


@pytest.mark.parametrize("inputs", [None, 5, [], "x"], ids=repr)
def test_inputs_that_cannot_be_read_are_not_called_missing(inputs):
    sample = {**rollout().to_wire(), "loss_fn_inputs": inputs}
    report = sk.check([sample], loss=GRPO)
    assert [(item.code, item.path) for item in [*report.errors, *report.warnings]] == [
        ("invalid_field", "samples[0].loss_fn_inputs")
    ]


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("value", VALUES)
def test_a_fault_within_a_sample_is_a_finding(place, value):
    sample = copy.deepcopy(rollout().to_wire())
    holder = sample
    for name in place[:-1]:
        holder = holder[name]
    holder[place[-1]] = VALUES[value]()
    right = value == "array" and place[-1] == "data" and place[1] != "target_tokens"
    assert sk.check([sample], loss=GRPO).ok == right


@pytest.mark.parametrize("value", [name for name in VALUES if name != "dict"])
def test_codes_to_allow_that_are_none(value):
    with pytest.raises(sk.SampleError, match=r"^allow (is|holds) .*expected codes of a finding"):
        sk.check([rollout()], allow=VALUES[value]())


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset])
def test_codes_to_allow_in_any_collection(kind):
    assert sk.check([rollout()], allow=kind(CODES)).warnings == []


@pytest.mark.parametrize("name", ["loss", "vocab_size", "max_length", "expected_share"])
@pytest.mark.parametrize("value", sorted(VALUES.keys() - {"None", "5", "huge"}))
def test_settings_of_another_kind(name, value):
    with pytest.raises(sk.SampleError, match=f"^{name} is "):
        sk.check([rollout()], **{name: VALUES[value]()})


def test_a_share_whose_ends_are_swapped():
    with pytest.raises(sk.SampleError, match=r"^expected_share is \(0.9, 0.1\)"):
        sk.check([rollout()], expected_share=(0.9, 0.1))


@pytest.mark.parametrize(("left", "right"), [(1, True), (0, False), (1, 1.0), (1, "1")], ids=repr)
def test_groups_whose_ids_are_only_alike_are_not_one(left, right):
    def made(group, advantage):
        return sk.build_sample([5, 6, 7], [0, 1, 1], advantages=advantage, logprobs=[-1.0] * 3, info={"group": group})

    flat, steep = [made(left, 0.0)] * 2, [made(right, 1.0)] * 2
    found = [item.message for item in sk.check([*flat, *steep]).warnings]
    assert [f"is {left!r}, and all its 2 samples" in message for message in found] == [True]
