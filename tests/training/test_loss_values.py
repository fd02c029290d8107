"""Three numbers for each loss, with the arithmetic beside them, and the worked examples of the losses' page."""

import pytest
import torch
from loss_batches import hand_sample, renamed, replaced

import samplekit as sk
from samplekit.training import compute_loss

LN2 = 0.6931471805599453
RATIOS = {"logprobs": [-2.0, -2.0, -2.0], "advantages": [1.0, -1.0, 2.0]}
ROW = [-2.0 + LN2, -2.0 - LN2, -2.0]  # r = 2, 0.5, 1


def found(loss, row, sample, **settings):
    row = torch.tensor(row, dtype=torch.float64, requires_grad=True)
    output = compute_loss([row], [sample], loss, **settings)
    output.loss.backward()
    return output, row.grad.tolist()


def assert_terms(output, gradient, terms, slopes):
    assert output.token_losses[0].tolist() == pytest.approx(terms, rel=1e-12)
    assert float(output.loss.detach()) == pytest.approx(sum(terms), rel=1e-12)
    assert gradient == pytest.approx(slopes, rel=1e-12)


def test_cross_entropy():
    # -w * lp: 1 * 0.5, 0.25 * 2, 2 * 0.125
    output, gradient = found(sk.CrossEntropy(), [-0.5, -2.0, -0.125], hand_sample([1, 0.25, 2]))
    assert_terms(output, gradient, [0.5, 0.5, 0.25], [-1, -0.25, -2])
    assert output.metrics == {}


def test_importance_sampling():
    # -r * A: -2 * 1, -0.5 * -1, -1 * 2; its own derivative
    output, gradient = found(sk.ImportanceSampling(), ROW, hand_sample([1, 1, 1], **RATIOS))
    assert_terms(output, gradient, [-2, 0.5, -2], [-2, 0.5, -2])
    assert output.metrics["loss/ratio/mean"] == pytest.approx((2 + 0.5 + 1) / 3)
    # r - 1 - log r: 1 - ln 2, ln 2 - 0.5, 0
    assert output.metrics["loss/kl_policy/mean"] == pytest.approx(0.5 / 3)


@pytest.mark.parametrize("loss", [sk.PPO(), sk.GRPO()])
def test_ppo_and_grpo_clip_what_moved_the_way_the_advantage_points(loss):
    # r = 2, A = 1: -min(2, 1.2); r = 0.5, A = -1: -min(-0.5, -0.8); r = 1, A = 2: -2. Both clipped ones are flat.
    output, gradient = found(loss, ROW, hand_sample([1, 1, 1], **RATIOS))
    assert_terms(output, gradient, [-1.2, 0.8, -2], [0, 0, -2])
    assert output.metrics["loss/clip/high_fraction"] == pytest.approx(1 / 3)
    assert output.metrics["loss/clip/low_fraction"] == pytest.approx(1 / 3)
    assert "loss/kl_ref/mean" not in output.metrics


def test_ppo_does_not_clip_what_moved_the_other_way():
    # r = 2, A = -1: -min(-2, -1.2) = 2; r = 0.5, A = 1: -min(0.5, 0.8) = -0.5; r = 1, A = 0: 0
    sample = hand_sample([1, 1, 1], logprobs=RATIOS["logprobs"], advantages=[-1.0, 1.0, 0.0])
    output, gradient = found(sk.PPO(), ROW, sample)
    assert_terms(output, gradient, [2, -0.5, 0], [2, -0.5, 0])
    assert output.metrics["loss/clip/high_fraction"] == output.metrics["loss/clip/low_fraction"] == 0


@pytest.mark.parametrize(
    ("kl", "terms", "slopes"),
    [
        # d = ref - lp = ln 2, -ln 2, 0
        ("k1", [-LN2, LN2, 0], [1, 1, 1]),
        ("k2", [LN2**2 / 2, LN2**2 / 2, 0], [-LN2, LN2, 0]),
        ("k3", [2 - LN2 - 1, 0.5 + LN2 - 1, 0], [1 - 2, 1 - 0.5, 0]),
    ],
)
def test_grpo_adds_beta_times_each_estimate_of_kl(kl, terms, slopes):
    sample = hand_sample([1, 1, 1], [0.0] * 3, [-1.0] * 3, [-1.0 + LN2 - LN2, -1.0, -1.0])
    row = [-1.0 - LN2, -1.0 + LN2, -1.0]
    output, gradient = found(sk.GRPO(beta=0.5), row, sample, kl=kl)
    assert_terms(output, gradient, [term / 2 for term in terms], [slope / 2 for slope in slopes])
    assert output.metrics["loss/kl_ref/mean"] == pytest.approx(sum(terms) / 3)


def test_grpo_shows_the_kl_of_a_reference_that_its_beta_of_0_leaves_out():
    output, gradient = found(sk.GRPO(), ROW, hand_sample([1, 1, 1], [0.0] * 3, ROW, [item + LN2 for item in ROW]))
    assert_terms(output, gradient, [0, 0, 0], [0, 0, 0])
    assert output.metrics["loss/kl_ref/mean"] == pytest.approx(1 - LN2)


def test_grpo_with_one_ratio_a_sequence():
    # log ratios 0.3, 0.1, -0.1 have the mean 0.1: r = e**0.1 at each token, below 1.2; A = 1, -1, 2
    sample = hand_sample([1, 1, 1], RATIOS["advantages"], RATIOS["logprobs"])
    output, gradient = found(sk.GRPO(ratio="sequence"), [-1.7, -1.9, -2.1], sample)
    r = 1.1051709180756477
    assert_terms(output, gradient, [-r, r, -2 * r], [-r, r, -2 * r])
    assert output.metrics["loss/ratio/mean"] == pytest.approx(r)


def test_cispo():
    # -clip(r, 0, 1.5) * A * lp: r = 2 is held at 1.5 and still has a gradient
    output, gradient = found(sk.CISPO(clip_high=1.5), ROW, hand_sample([1, 1, 1], **RATIOS))
    assert_terms(output, gradient, [-1.5 * (LN2 - 2), 0.5 * (-2 - LN2), 4], [-1.5, 0.5, -2])
    assert output.metrics["loss/clip/high_fraction"] == pytest.approx(1 / 3)
    assert output.metrics["loss/clip/low_fraction"] == 0


def test_dppo_drops_what_moved_too_far_in_the_wrong_direction():
    # probabilities: 0.25 -> 0.5 with A > 0 is dropped; 0.25 -> 0.125 with A < 0 is kept within 0.15; 0.25 -> 0.5 with
    # A < 0 moved the right way: r * 1 = 2
    quarter = -2 * LN2
    row = [-LN2, -3 * LN2, -LN2]
    sample = hand_sample([1, 1, 1], [1.0, -1.0, -1.0], [quarter] * 3)
    output, gradient = found(sk.DPPO(), row, sample)
    assert output.token_losses[0].tolist() == pytest.approx([0, 0.5, 2], rel=1e-6)  # ln 4 is rounded to float32
    assert gradient == pytest.approx([0, 0.5, 2], rel=1e-6)
    assert output.metrics["loss/clip/high_fraction"] == pytest.approx(1 / 3)
    tight, slopes = found(sk.DPPO(delta_low=0.1), row, sample)  # 0.125 > 0.1: now dropped as well
    assert slopes == pytest.approx([0, 0, 2], rel=1e-6)
    assert tight.metrics["loss/clip/low_fraction"] == pytest.approx(1 / 3)


def test_dro():
    # -(lp * A - beta / 2 * (lp - q)**2) with beta 0.5: 1 + 0.25 * 1, -2 + 0, 6 + 0.25 * 1; slope -(A - 0.5 * (lp - q))
    sample = hand_sample([1, 1, 1], [1.0, -1.0, 2.0], [-2.0, -2.0, -2.0])
    output, gradient = found(sk.DRO(beta=0.5), [-1.0, -2.0, -3.0], sample)
    assert_terms(output, gradient, [1.25, -2, 6.25], [-0.5, 1, -2.5])


def test_the_worked_example_is_divided_by_what_trains():
    # 26 tokens, 25 positions, three of them trained with -lp of 0.50, 1.00 and 0.30
    sample = sk.build_sample(range(26), [0] * 23 + [1] * 3)
    row = torch.full((25,), -7.0, dtype=torch.float64)
    row[-3:] = torch.tensor([-0.5, -1.0, -0.3])
    total = float(compute_loss([row], [sample], sk.CrossEntropy()).loss)
    mean = float(compute_loss([row], [sample], sk.CrossEntropy(), normalizer=sample.num_trained).loss)
    wrong = float(compute_loss([row], [sample], sk.CrossEntropy(), normalizer=26).loss)
    assert total == pytest.approx(1.80)
    assert mean == pytest.approx(0.600)
    assert wrong == pytest.approx(0.0692, abs=5e-5)
    assert mean / wrong == pytest.approx(26 / 3)


TRAP_LOGPROBS = [-3.0, -2.0, -1.0]  # two positions of the prompt, then one of the completion


def trap_sample():
    """The prompt's reference is padded with 0; at the completion ref - lp = ln 2 and the advantage is 1."""
    return hand_sample([0, 0, 1], [0.0, 0.0, 1.0], TRAP_LOGPROBS, [0.0, 0.0, -1.0 + LN2])


def test_without_a_mask_the_kl_penalty_pulls_at_the_prompt():
    # beta * (1 - exp(ref - lp)): 0.1 * (1 - e**3), 0.1 * (1 - e**2); completion: -1 + 0.1 * (1 - 2)
    loss = sk.GRPO(beta=0.1)
    _, gradient = found(loss, TRAP_LOGPROBS, renamed(trap_sample(), None))
    assert gradient == pytest.approx([-1.91, -0.64, -1.10], abs=0.005)
    _, masked = found(loss, TRAP_LOGPROBS, trap_sample())
    assert masked[:2] == [0, 0]
    assert masked[2] == pytest.approx(-1.10, abs=1e-6)


@pytest.mark.parametrize("mask", ["weights", "mask"])
def test_without_a_mask_dro_pulls_at_the_prompt(mask):
    # beta * (lp - q) at the prompt, where q is padded with 0: 0.1 * -3, 0.1 * -2
    sample = hand_sample([0, 0, 1], [0.0, 0.0, 1.0], [0.0, 0.0, -1.0])
    _, gradient = found(sk.DRO(beta=0.1), TRAP_LOGPROBS, renamed(sample, None))
    assert gradient == pytest.approx([-0.3, -0.2, -1])
    _, masked = found(sk.DRO(beta=0.1), TRAP_LOGPROBS, renamed(sample, mask) if mask == "mask" else sample)
    assert masked == pytest.approx([0, 0, -1])


def test_without_a_mask_the_ratio_of_a_sequence_counts_the_prompt():
    # log ratios -3, -2 and 0 have the mean -5/3: r = 0.189 instead of 1
    sample = hand_sample([0, 0, 1], [0.0, 0.0, 1.0], [0.0, 0.0, -1.0])
    loss = sk.GRPO(ratio="sequence")
    output, gradient = found(loss, TRAP_LOGPROBS, renamed(sample, None))
    assert gradient == pytest.approx([0, 0, -0.188876], abs=1e-6)
    output, gradient = found(loss, TRAP_LOGPROBS, sample)
    assert gradient == [0, 0, -1]
    assert output.metrics["loss/ratio/mean"] == 1


@pytest.mark.parametrize("loss", [sk.PPO(), sk.GRPO(), sk.ImportanceSampling()])
def test_a_horizon_counts_samples_that_do_not_train_too(loss):
    # on policy each trained position adds -1: two of them, over 2 samples of 10 positions
    samples = [hand_sample([1, 1], [1.0, 1.0], [-1.0, -1.0]), hand_sample([1], [1.0], [-1.0])]
    samples[1] = replaced(samples[1], weights=[0.0])
    rows = [torch.tensor([-1.0, -1.0]), torch.tensor([-1.0])]
    assert float(compute_loss(rows, samples, loss, horizon=10).loss) == pytest.approx(-2 / 20)
