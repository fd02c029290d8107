"""What is sent is checked before the first byte: samples, gradients, settings, limits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from service_double import OPERATIONS, of_its_own, operation

import samplekit as sk

SUBMIT = f"POST {OPERATIONS}/.*"


# validation-06: what a loss reads is looked for here, not at the service.
def test_a_sample_without_what_its_loss_reads_is_refused_before_it_is_sent(side, sample):
    bare = sk.Sample(sample.model_input, {"weights": sample.loss_fn_inputs["weights"]})
    with pytest.raises(ValueError, match="target_tokens") as caught:
        side.session().forward_backward([bare], sk.CrossEntropy())
    assert "samples[0]" in str(caught.value)
    assert "cross_entropy" in str(caught.value)
    assert side.double.seen == []


LOSSES = [
    sk.CrossEntropy(), sk.ImportanceSampling(), sk.PPO(), sk.GRPO(beta=0.1), sk.CISPO(), sk.DPPO(), sk.DRO(beta=0.1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("loss", "missing"),
    [(loss, name) for loss in LOSSES for name in sorted(loss.required_inputs())],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_every_input_that_a_loss_requires_is_looked_for(side, loss, missing):
    full = sk.build_sample(
        [1, 2, 3, 4], [0, 0, 1, 1], advantages=1.0, logprobs=[-1.0] * 4, reference_logprobs=[-1.0] * 4
    )
    inputs = {name: value for name, value in full.loss_fn_inputs.items() if name != missing}
    with pytest.raises(sk.SampleError) as caught:
        side.session().forward_backward([full, sk.Sample(full.model_input, inputs)], loss)
    assert f"'{missing}'" in str(caught.value)
    assert "samples[1]" in str(caught.value)
    assert side.double.seen == []


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_what_a_loss_does_not_read_is_left_out(side, loss):
    side.double.answer(SUBMIT, operation("PENDING"))
    full = sk.build_sample(
        [1, 2, 3, 4], [0, 0, 1, 1], advantages=1.0, logprobs=[-1.0] * 4, reference_logprobs=[-1.0] * 4,
        extra={"note": [1.0] * 4},
    )  # fmt: skip
    side.session().forward_backward([full], loss)
    sent = set(side.double.seen[0].body["samples"][0]["loss_fn_inputs"])
    assert loss.required_inputs() <= sent <= loss.required_inputs() | loss.optional_inputs()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([], "empty"),
        (None, "samples is None, expected several of them: pass a list"),
        (5, "samples is 5.*pass a list"),
        ("text", "samples is a str.*pass a list"),
        ({"model_input": {}}, "samples is a dict.*pass a list"),
        ([3], r"samples\[0\]"),
    ],
)
def test_what_is_no_batch_is_refused(side, bad, words):
    for call in ("forward", "forward_backward"):
        with pytest.raises(sk.SampleError, match=words):
            getattr(side.session(), call)(bad, sk.CrossEntropy())
    with pytest.raises(sk.SampleError, match=words):
        side.session().custom_forward_backward(bad, [])
    assert side.double.seen == []


def test_one_sample_is_no_batch(side, sample):
    for call in ("forward", "forward_backward"):
        with pytest.raises(sk.SampleError, match="samples is a Sample, expected several of them: pass a list"):
            getattr(side.session(), call)(sample, sk.CrossEntropy())
    with pytest.raises(sk.SampleError, match=r"gradients is 5.*pass a list"):
        side.session().custom_forward_backward([sample], 5)
    assert side.double.seen == []


def test_a_loss_that_is_none_is_refused(side, sample):
    for loss in ("cross_entropy", None, sk.CrossEntropy):
        with pytest.raises(sk.SampleError, match="CrossEntropy"):
            side.session().forward_backward([sample], loss)


def test_wire_mappings_are_samples_too(side, sample):
    side.double.answer(SUBMIT, operation("COMPLETED", {"loss": 3.0}))
    result = side.session().forward_backward([sample.to_wire()], sk.CrossEntropy()).result()
    assert result.mean_loss == 1.0
    assert sk.Sample.from_wire(side.double.seen[0].body["samples"][0]) == sample


def test_samples_that_train_nothing_are_scored_and_given_gradients_but_not_trained(side, sample):
    side.double.answer(SUBMIT, of_its_own(operation("PENDING")))
    inputs = {**sample.loss_fn_inputs, "weights": sk.TensorData([0.0] * 5, "float32")}
    idle = sk.Sample(sample.model_input, inputs)
    session = side.session()
    with pytest.raises(sk.SampleError, match="weights"):
        session.forward_backward([idle], sk.CrossEntropy())
    session.forward([idle], sk.CrossEntropy())
    session.custom_forward_backward([idle], [[0.0] * 5])
    assert len(side.double.seen) == 2


@pytest.mark.parametrize(
    ("gradients", "error", "words"),
    [
        ([], sk.AlignmentError, "0 arrays"),
        ([[0.0] * 4], sk.AlignmentError, r"gradients\[0\] holds 4"),
        ([[0.0] * 5] * 2, sk.AlignmentError, "2 arrays"),
        ([[0.0] * 4 + [float("nan")]], sk.SampleError, r"gradients\[0\].*nan.*4"),
        ([["0"] * 5], sk.SampleError, r"gradients\[0\]"),
    ],
)
def test_gradients_that_do_not_match_are_refused(side, sample, gradients, error, words):
    with pytest.raises(error, match=words):
        side.session().custom_forward_backward([sample], gradients)
    assert side.double.seen == []


def test_the_models_limits_are_kept(side, sample):
    full = {"max_batch_size": 2, "max_seq_length": 5}
    config = {"gpu_type": "B200-SXM", "trainer_config": {"full": full}}
    side.double.answer("GET .*/supported-models", {"data": [{"base_model": "m", "compute_configs": [config]}]})
    side.double.answer(SUBMIT, operation("PENDING"))
    session = side.session()
    session.forward_backward([sample] * 2, sk.CrossEntropy())
    with pytest.raises(sk.SampleError, match=r"3 samples.*at most 2.*session\.batches"):
        session.forward_backward([sample] * 3, sk.CrossEntropy())
    with pytest.raises(sk.SampleError, match="limit"):
        session.forward_backward([sk.build_sample(range(7), [1] * 7)], sk.CrossEntropy())
    assert len(side.double.seen) == 1


@pytest.mark.parametrize(
    "setting",
    [
        {"learning_rate": -1.0},
        {"eps": float("nan")},
        {"beta1": "0.9"},
        {"beta1": 1.0},
        {"beta2": 1.5},
        {"learning_rate": torch.tensor(1.0)},
        {"learning_rate": 10**400},
        {"muon": [0.1]},
        {"muon": {"schedule": [0.1, float("nan")]}},
        {"muon": {"momentum": torch.tensor(1.0)}},
        {"weight_decay": True},
        {"grad_clip_norm": float("inf")},
    ],
)
def test_optimizer_settings_out_of_range_are_refused(side, setting):
    with pytest.raises(sk.SampleError, match=next(iter(setting))):
        side.session().optim_step(**setting)
    assert side.double.seen == []


def test_adams_settings_beside_muon_are_refused(side):
    with pytest.raises(sk.SampleError, match="muon"):
        side.session().optim_step(learning_rate=1.0, muon={"learning_rate": 0.1})
    with pytest.raises(sk.SampleError, match="finite"):
        side.session().optim_step(muon={"adam": {"learning_rate": float("nan")}})


def test_settings_may_be_numbers_of_numpy(side):
    side.double.answer(SUBMIT, operation("PENDING"))
    side.session().optim_step(learning_rate=np.float32(0.5), grad_clip_norm=np.int64(0))
    assert side.double.seen[0].body == {"adam_params": {"learning_rate": 0.5, "grad_clip_norm": 0.0}}


@pytest.mark.parametrize("kind", ["fast", 5, None, ["synchronous"]])
def test_a_kind_of_sync_that_is_none_is_refused(side, kind):
    with pytest.raises(sk.SampleError, match=r"kind is .*expected one of synchronous"):
        side.session().weights_sync(kind)
    assert side.double.seen == []
