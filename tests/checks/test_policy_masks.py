"""What keeps the prompt out of a policy loss, and what a weight below 0 does to one: each told once, and truly."""

import pytest
from faulty_samples import changed, right_sample, with_input

import samplekit as sk

POLICY_LOSSES = [sk.ImportanceSampling(), sk.PPO(), sk.GRPO(), sk.CISPO(), sk.DPPO()]


def bare(advantages):
    """A sample without weights."""
    sample = changed(("loss_fn_inputs", "weights"), None)
    sample["loss_fn_inputs"]["advantages"]["data"] = advantages
    return sample


def warned(sample, **options):
    report = sk.check([sample], **options)
    assert report.ok
    return [(item.code, item.path) for item in report.warnings]


@pytest.mark.parametrize("form", [dict, sk.Sample.from_wire], ids=["mapping", "sample"])
@pytest.mark.parametrize("loss", POLICY_LOSSES, ids=repr)
def test_without_a_mask_and_without_an_advantage_of_0_the_prompt_trains(form, loss):
    sample = form(bare([0.5, 0.5, -0.5]))
    assert warned(sample, loss=loss) == [("no_mask", "samples[0].loss_fn_inputs")]
    (finding,) = sk.check([sample], loss=loss).warnings
    assert "its advantages are nowhere 0, so every position trains, the prompt's too: add weights" in finding.message


@pytest.mark.parametrize("loss", POLICY_LOSSES, ids=repr)
@pytest.mark.parametrize("advantages", [[0.0, 0.5, 0.5], [0.5, 0.5, 0.0]])
def test_advantages_of_0_keep_the_prompt_out_of_a_loss_that_is_a_sum(loss, advantages):
    assert warned(bare(advantages), loss=loss) == []


def test_an_unknown_loss_may_train_everything():
    assert warned(bare([0.5, 0.5, 0.5])) == []


def test_a_loss_that_reads_every_position_says_so_whatever_the_advantages():
    for advantages in ([0.5, 0.5, 0.5], [0.0, 0.5, 0.5]):
        (finding,) = sk.check([bare(advantages)], loss=sk.DRO(beta=0.1)).warnings
        assert "DRO (dro) as it is set reads every position" in finding.message


@pytest.mark.parametrize("loss", [*POLICY_LOSSES, sk.DRO(beta=0.1)], ids=repr)
def test_a_policy_loss_does_not_turn_round_for_a_negative_weight(loss):
    sample = with_input("weights", [0.0, -1.0, 1.0])
    (finding,) = sk.check([sample], loss=loss).warnings
    assert finding.code == "negative_weight"
    assert "holds -1.0 at index 1, and" in finding.message
    assert "counts every non-zero weight as 1, so the sign is lost" in finding.message
    assert "down" not in finding.message


def test_a_negative_and_a_fractional_weight_are_two_findings_of_their_own_values():
    sample = with_input("weights", [0.0, -1.0, 0.5])
    found = {item.code: item.message for item in sk.check([sample], loss=sk.PPO()).warnings}
    assert set(found) == {"negative_weight", "fractional_weight"}
    assert "holds -1.0 at index 1, " in found["negative_weight"]
    assert "holds 0.5 at index 2, " in found["fractional_weight"]


def test_cross_entropy_pushes_a_token_of_negative_weight_down():
    for loss in (None, sk.CrossEntropy()):
        (finding,) = sk.check([with_input("weights", [0.0, -1.0, 0.5])], loss=loss).warnings
        assert finding.code == "negative_weight"
        assert "cross-entropy then pushes the token's probability down" in finding.message


def test_a_right_sample_has_none_of_this():
    assert warned(right_sample(), loss=sk.PPO()) == []
