"""Causes at the first step, on tokens drawn from real softmaxes, by many seeds: true ones found, no false one named."""

import numpy as np
import pytest

import samplekit as sk
from samplekit.training import diagnose_first_step

SEEDS = range(20)
TRIED = (0.6, 0.7, 0.8, 0.9, 1.3)


def log_softmax(logits, temperature=1.0):
    lowered = (logits - logits.max(-1, keepdims=True)) / temperature
    return lowered - np.log(np.exp(lowered).sum(-1, keepdims=True))


def kept(logprobs, top_p):
    """The likeliest tokens that hold a share of the mass, normalised again; the others are impossible."""
    ordered = -np.sort(-logprobs, -1)
    before = np.cumsum(np.exp(ordered), -1) - np.exp(ordered)
    least = np.where(before < top_p, ordered, np.inf).min(-1, keepdims=True)
    left = np.where(logprobs >= least, logprobs, -np.inf)
    return left - np.log(np.exp(left).sum(-1, keepdims=True))


class Drawn:
    """Tokens that a sampler drew, position by position, and what both sides say of them."""

    def __init__(self, seed, *, temperature=1.0, top_p=1.0, spread=2.5, num_tokens=200, moved_weights=0.0):
        rng = np.random.default_rng(seed)
        self.logits = spread * rng.normal(size=(num_tokens, 300))
        shares = kept(log_softmax(self.logits, temperature), top_p)
        self.tokens = (shares + rng.gumbel(size=shares.shape)).argmax(-1)  # draws by exp(shares)
        self.sampler = np.minimum(self.of(shares), 0)
        self.logits = self.logits + moved_weights * rng.normal(size=self.logits.shape)

    def of(self, logprobs):
        return logprobs[np.arange(len(self.tokens)), self.tokens]

    def diagnosed(self, tried=TRIED, shift=0):
        full = np.roll(np.append(0.0, self.sampler), shift)
        mask = np.append(0, np.ones(len(self.tokens)))
        sample = sk.build_sample(np.append(0, self.tokens), mask, logprobs=full)
        others = {item: [self.of(log_softmax(self.logits, item))] for item in tried}
        return diagnose_first_step([self.of(log_softmax(self.logits))], [sample], at_temperatures=others)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("tried", [(), TRIED])
class TestNoFalseCause:
    @pytest.mark.parametrize("top_p", [0.5, 0.8, 0.9])
    def test_logprobs_normalised_again_are_asked_about(self, seed, tried, top_p):
        found = Drawn(seed, top_p=top_p).diagnosed(tried)
        assert (found.ok, found.cause) == (False, "unknown")
        assert "were they normalised again after top_p or top_k?" in found.message

    @pytest.mark.parametrize("moved", [0.3, 1.0, 5.0])
    def test_other_weights_are_unknown(self, seed, tried, moved):
        found = Drawn(seed, moved_weights=moved).diagnosed(tried)
        assert (found.ok, found.cause) == (False, "unknown")
        assert found.message.endswith("are the weights the sampler's?")
        assert "normalised again" not in found.message

    def test_the_same_weights_have_none(self, seed, tried):
        assert Drawn(seed).diagnosed(tried).cause == "none"

    @pytest.mark.parametrize("num_tokens", [1, 2, 15])
    def test_of_few_positions_no_cause_is_named(self, seed, tried, num_tokens):
        found = Drawn(seed, num_tokens=num_tokens, moved_weights=3.0).diagnosed(tried)
        assert found.cause == "unknown"
        assert f"{num_tokens} trained positions are too few to tell why: compare 16 or more" in found.message

    def test_one_position_less_than_enough_is_no_shift(self, seed, tried):
        assert Drawn(seed, num_tokens=16).diagnosed(tried, shift=1).cause == "unknown"  # 15 pairs


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("spread", [1.5, 2.5, 4.0])
class TestTrueCauses:
    @pytest.mark.parametrize("temperature", [0.6, 0.7, 1.3])
    def test_a_temperature_that_is_tried_is_found(self, seed, spread, temperature):
        found = Drawn(seed, temperature=temperature, spread=spread).diagnosed()
        assert found.cause == "temperature"
        assert f"taken at temperature {temperature:g}" in found.message

    def test_one_that_is_not_tried_is_not_denied(self, seed, spread):
        found = Drawn(seed, temperature=0.7, spread=spread).diagnosed(())
        assert found.cause == "unknown"
        assert "no shift explains it, and no temperature was tried: pass at_temperatures=" in found.message

    @pytest.mark.parametrize(("shift", "cause"), [(1, "shifted_late"), (-1, "shifted_early")])
    @pytest.mark.parametrize("tried", [(), TRIED])
    def test_shifts_are_found(self, seed, spread, shift, cause, tried):
        assert Drawn(seed, spread=spread).diagnosed(tried, shift).cause == cause


def test_the_temperatures_that_were_tried_are_told():
    found = Drawn(0, temperature=0.3).diagnosed((0.9, 1.3))
    assert "neither a shift nor a temperature of 0.9, 1.3 explains it" in found.message


def test_two_causes_that_explain_as_well_are_none():
    wave = np.tile([-1.0, -3.0], 20)  # as well one earlier as one later
    sample = sk.build_sample(np.arange(41), np.append(0, np.ones(40)), logprobs=np.append(0.0, wave))
    assert diagnose_first_step([wave[::-1].copy()], [sample]).cause == "unknown"
