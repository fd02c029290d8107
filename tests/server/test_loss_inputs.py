"""What each loss must be given, what it ignores, and what is taken with a note."""

import copy
import math

import pytest

import samplekit as sk

LOSSES = [
    sk.CrossEntropy(),
    sk.ImportanceSampling(),
    sk.PPO(),
    sk.GRPO(),
    sk.GRPO(beta=0.1),
    sk.CISPO(),
    sk.DPPO(),
    sk.DRO(beta=0.1),
]
# What the table of losses says, and nothing of the code's own.
POLICY = {"target_tokens", "logprobs", "advantages"}
REQUIRED = [
    {"target_tokens", "weights"},
    POLICY,
    POLICY,
    POLICY,
    POLICY | {"reference_logprobs"},
    POLICY,
    POLICY,
    POLICY,
]
CASES = [
    (loss, name, name in required)
    for loss, required in zip(LOSSES, REQUIRED, strict=True)
    for name in ("target_tokens", "weights", "logprobs", "advantages", "reference_logprobs")
]
FULL = sk.build_sample(
    [5, 6, 7, 8],
    [0, 0, 1, 1],
    advantages=[0, 0, 1.5, -1],
    logprobs=[0, 0, -7, -8],
    reference_logprobs=[0, 0, -7.5, -8.25],
).to_wire()


def changed(**inputs):
    """The full sample with the values of some inputs replaced, or the inputs left out where None."""
    found = copy.deepcopy(FULL)
    for name, values in inputs.items():
        if values is None:
            del found["loss_fn_inputs"][name]
        else:
            found["loss_fn_inputs"][name] = {"data": values, "dtype": "float32"}
    return found


def body(loss, *samples, **flags):
    return {"loss": loss.to_wire(), "samples": list(samples), "forward_only": True, **flags}


@pytest.mark.parametrize(("loss", "name", "required"), CASES, ids=lambda item: str(item)[:40])
def test_a_missing_input_is_refused_by_sample_and_name_only_where_the_loss_reads_it(session, loss, name, required):
    answer = session.submit("forward-backward", body(loss, FULL, changed(**{name: None})))
    assert answer.status_code == (400 if required else 200), answer.text
    if required:
        message = answer.json()["error"]["message"]
        assert "samples[1]" in message
        assert f"{name!r}" in message
        assert type(loss).__name__ in message


@pytest.mark.parametrize(
    ("loss", "ignored"),
    [
        (sk.CrossEntropy(), ("logprobs", "advantages", "reference_logprobs")),
        (sk.PPO(), ("reference_logprobs",)),
        (sk.GRPO(), ("reference_logprobs",)),
        (sk.DRO(beta=0.1), ("reference_logprobs",)),
    ],
    ids=str,
)
def test_what_a_loss_does_not_read_changes_nothing(session, loss, ignored):
    other = changed(**{name: [-1.0, -2.0, -3.0] for name in ignored})
    found, expected = (session.output("forward-backward", body(loss, item)) for item in (other, FULL))
    assert found["loss"] == expected["loss"] != 0


@pytest.mark.parametrize("loss", LOSSES[1:], ids=str)
def test_what_stands_where_nothing_trains_changes_nothing(session, loss):
    other = changed(advantages=[9, 1.5, -1], logprobs=[-80, -7, -8], reference_logprobs=[-60, -7.5, -8.25])
    found, expected = (session.output("forward-backward", body(loss, item)) for item in (other, FULL))
    assert found == expected


@pytest.mark.parametrize("loss", LOSSES[1:], ids=str)
def test_weights_other_than_0_count_as_1_and_may_be_called_mask_or_be_left_out(session, loss):
    everywhere = {"advantages": [1, 1.5, -1], "logprobs": [-6, -7, -8], "reference_logprobs": [-7, -7.5, -8.25]}
    spelled = [
        changed(**everywhere, weights=[1, 1, 1]),
        changed(**everywhere, weights=[0.5, 2, 1]),
        changed(**everywhere, weights=None),
        changed(**everywhere, weights=None, mask=[1, 1, 1]),
    ]
    losses = [session.output("forward-backward", body(loss, item))["loss"] for item in spelled]
    assert len(set(losses)) == 1


@pytest.mark.parametrize("loss", LOSSES[1:], ids=str)
def test_doubts_are_logged_and_taken(session, loss, caplog):
    doubtful = changed(logprobs=[0, 0.5, -8])
    assert "loss" in session.output("forward-backward", body(loss, FULL, doubtful, forward_only=False))
    (noted,) = [record.message for record in caplog.records if "accepted, but look at it" in record.message]
    assert "samples[1].loss_fn_inputs['logprobs'] holds 0.5 at index 1" in noted


@pytest.mark.parametrize(
    ("wire_loss", "mentioned"),
    [
        ({"type": "LOSS_TYPE_PPO", "ppo_params": {"clip_low_threshold": 0.2, "clip_high_threshold": 0.28}}, "0.28"),
        ({"type": "LOSS_TYPE_CISPO", "cispo_params": {"clip_high_threshold": 0.5}}, "clip_high"),
        ({"type": "LOSS_TYPE_DPPO", "dppo_params": {"delta_low": 1.5}}, "delta_low"),
        ({"type": "LOSS_TYPE_DRO"}, "beta"),
        ({"type": "LOSS_TYPE_DRO", "dro_params": {"beta": -1}}, "beta"),
        ({"type": "LOSS_TYPE_GRPO", "grpo_params": {"agg_type": "TOKEN_MEAN"}}, "aggregation"),
        ({"type": "LOSS_TYPE_GRPO", "ppo_params": {}}, "ppo_params"),
        ({"type": "LOSS_TYPE_IMPORTANCE_SAMPLING", "importance_sampling_params": {"beta": 1}}, "beta"),
    ],
)
def test_settings_of_a_loss_that_are_none_are_refused(session, wire_loss, mentioned):
    answer = session.submit("forward-backward", {"loss": wire_loss, "samples": [FULL]})
    assert answer.status_code == 400
    assert mentioned in answer.json()["error"]["message"]


def test_a_ratio_that_no_bound_holds_fails_the_operation(session):
    far = changed(logprobs=[0, -1000, -8], advantages=[0, -1.5, -1])
    shown = session.run("forward-backward", body(sk.PPO(), far, forward_only=False))
    assert shown["error"]["code"] == "TRAINING_OPERATION_ERROR_CODE_NON_FINITE_LOSS"
    assert "samples[0]" in shown["error"]["message"]


def test_a_ratio_that_a_bound_holds_stays_out_of_the_metrics_alone(session, caplog):
    far = changed(logprobs=[0, -1000, -8])
    found = session.output("forward-backward", body(sk.PPO(), far, forward_only=False, return_loss_fn_outputs=True))
    second = math.exp(found["loss_fn_outputs"][0]["tensors"]["logprobs"]["data"][2] + 8)
    assert found["loss"] == pytest.approx(-1.2 * 1.5 + max(second, 0.8), rel=1e-5)
    assert found["metrics"]["loss/clip/high_fraction"] == 0.5
    assert not found["metrics"].keys() & {"loss/ratio/mean", "loss/kl_policy/mean"}
    assert any("loss/ratio/mean" in record.message for record in caplog.records)
