"""What each loss adds at every position, and its slope there: the formulas, differentiated by hand.

lp, q and ref are the log-probabilities of the trained, the sampling and the frozen policy, A the advantage, w the
weight, and r = exp(lp - q). All inputs are 0 where nothing trains, and so is every term and slope.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np

from samplekit.losses import CISPO, DPPO, DRO, GRPO, PPO, CrossEntropy, ImportanceSampling, Loss
from samplekit.training.positions import Float64Array, Positions
from samplekit.training.rows import BoolArray

KlEstimator: TypeAlias = Literal["k1", "k2", "k3"]

HIGH = "loss/clip/high_fraction"
LOW = "loss/clip/low_fraction"
RATIO = "loss/ratio/mean"
KL_POLICY = "loss/kl_policy/mean"
KL_REF = "loss/kl_ref/mean"


@dataclass(frozen=True)
class Terms:
    """A loss before it is added up.

    Attributes:
        values: what each position adds, (N,).
        slopes: d value / d lp, (N,).
        sums: metrics summed over the trained positions.
    """

    values: Float64Array
    slopes: Float64Array
    sums: dict[str, float] = field(default_factory=dict[str, float])


def kl_terms(log_ratio: Float64Array, estimator: KlEstimator) -> tuple[Float64Array, Float64Array]:
    """Estimate KL(p || other) at tokens that p drew, and give its slope.

    Args:
        log_ratio: d = log other - log p, in nats, (N,).
        estimator: ``"k1"``: -d; ``"k2"``: d**2 / 2; ``"k3"``: exp(d) - d - 1, never below 0.

    Returns:
        The estimate and its derivative by d, (N,) each.

    Source: Schulman 2020, Approximating KL Divergence.
    """
    if estimator == "k1":
        return -log_ratio, np.full_like(log_ratio, -1.0)
    if estimator == "k2":
        return log_ratio * log_ratio / 2, log_ratio
    slopes = np.expm1(log_ratio)
    return slopes - log_ratio, slopes


def terms_of(positions: Positions, loss: Loss, kl: KlEstimator) -> Terms:
    """Evaluate a loss at every position; see `samplekit.training.compute_loss` for its settings."""
    return _FORMULAS[type(loss)](positions, loss, kl)


def knows(loss: object) -> bool:
    """Tell whether there is a formula for a loss."""
    return type(loss) in _FORMULAS


def _cross_entropy(positions: Positions, _loss: CrossEntropy, _kl: KlEstimator) -> Terms:
    slopes = -positions.weights
    return Terms(slopes * positions.policy, slopes)


def _importance_sampling(positions: Positions, _loss: ImportanceSampling, kl: KlEstimator) -> Terms:
    log_ratio = _log_ratio(positions)
    ratio = np.exp(log_ratio)
    values = -_times(ratio, positions.inputs["advantages"])
    return Terms(values, values, _ratio_sums(positions, ratio, log_ratio, kl))


def _ppo(positions: Positions, loss: PPO | GRPO, kl: KlEstimator) -> Terms:
    log_ratio = _log_ratio(positions)
    ratio = np.exp(log_ratio)
    return _clipped(positions, loss, ratio, _ratio_sums(positions, ratio, log_ratio, kl))


def _grpo(positions: Positions, loss: GRPO, kl: KlEstimator) -> Terms:
    if loss.ratio == "token":
        terms = _ppo(positions, loss, kl)
    else:
        log_ratio = _log_ratio(positions)
        means = positions.per_sample(log_ratio) / np.maximum(positions.counts, 1)
        # the ratio of the sequence stands at each of its tokens, and each passes the gradient on to itself alone
        ratio = np.where(positions.trained, positions.per_position(np.exp(means)), 1.0)
        sums = _ratio_sums(positions, np.exp(log_ratio), log_ratio, kl)
        terms = _clipped(positions, loss, ratio, {**sums, RATIO: _sum_trained(positions, ratio)})
    if "reference_logprobs" not in positions.inputs:
        return terms
    estimates, by_log_ratio = kl_terms(positions.inputs["reference_logprobs"] - positions.policy, kl)
    sums = {**terms.sums, KL_REF: float(estimates.sum())}
    if loss.beta == 0:
        return Terms(terms.values, terms.slopes, sums)
    if kl == "k1":  # its slope is not 0 where lp and ref are
        by_log_ratio = np.where(positions.trained, by_log_ratio, 0.0)
    return Terms(terms.values + loss.beta * estimates, terms.slopes - loss.beta * by_log_ratio, sums)


def _cispo(positions: Positions, loss: CISPO, kl: KlEstimator) -> Terms:
    log_ratio, advantages = _log_ratio(positions), positions.inputs["advantages"]
    ratio = np.exp(log_ratio)
    slopes = -np.clip(ratio, loss.clip_low, loss.clip_high) * advantages
    high, low = _outside(ratio, advantages, loss)
    sums = _ratio_sums(positions, ratio, log_ratio, kl)
    return Terms(slopes * positions.policy, slopes, {**_fractions(high, low), **sums})


def _dppo(positions: Positions, loss: DPPO, kl: KlEstimator) -> Terms:
    sampler, advantages = positions.inputs["logprobs"], positions.inputs["advantages"]
    log_ratio = _log_ratio(positions)
    ratio = np.exp(log_ratio)
    risen = np.exp(positions.policy) - np.exp(sampler)
    high, low = (advantages > 0) & (risen > loss.delta_high), (advantages < 0) & (-risen > loss.delta_low)
    values = np.where(high | low, 0.0, -_times(ratio, advantages))
    return Terms(values, values, {**_fractions(high, low), **_ratio_sums(positions, ratio, log_ratio, kl)})


def _dro(positions: Positions, loss: DRO, kl: KlEstimator) -> Terms:
    log_ratio, advantages = _log_ratio(positions), positions.inputs["advantages"]
    pull = loss.beta * log_ratio
    values = pull * log_ratio / 2 - positions.policy * advantages
    return Terms(values, pull - advantages, _ratio_sums(positions, np.exp(log_ratio), log_ratio, kl))


def _clipped(positions: Positions, loss: PPO | GRPO, ratio: Float64Array, sums: dict[str, float]) -> Terms:
    """Give PPO's surrogate; where the bound is what counts, nothing flows."""
    advantages = positions.inputs["advantages"]
    slopes = -_times(ratio, advantages)
    values = slopes.copy()
    high, low = _outside(ratio, advantages, loss)
    for found, bound in ((high, loss.clip_high), (low, loss.clip_low)):
        places = np.flatnonzero(found)  # few, and nothing flows there
        values[places] = -bound * advantages[places]
        slopes[places] = 0.0
    return Terms(values, slopes, {**_fractions(high, low), **sums})


def _times(ratio: Float64Array, advantages: Float64Array) -> Float64Array:
    """Multiply; an advantage of 0 gives 0 even where the ratio is beyond all numbers."""
    found = ratio * advantages
    if ratio.max() == np.inf:
        found[advantages == 0] = 0.0
    return found


def _outside(ratio: Float64Array, advantages: Float64Array, loss: PPO | GRPO | CISPO) -> tuple[BoolArray, BoolArray]:
    return (ratio > loss.clip_high) & (advantages > 0), (ratio < loss.clip_low) & (advantages < 0)


def _fractions(high: BoolArray, low: BoolArray) -> dict[str, float]:
    return {HIGH: float(np.count_nonzero(high)), LOW: float(np.count_nonzero(low))}


def _log_ratio(positions: Positions) -> Float64Array:
    return positions.policy - positions.inputs["logprobs"]


def _ratio_sums(
    positions: Positions, ratio: Float64Array, log_ratio: Float64Array, kl: KlEstimator
) -> dict[str, float]:
    """Sum the ratios of tokens, and the estimates of KL(sampler || policy) at tokens that the sampler drew."""
    estimates = ratio - 1 - log_ratio if kl == "k3" else kl_terms(log_ratio, kl)[0]
    return {RATIO: _sum_trained(positions, ratio), KL_POLICY: float(estimates.sum())}


def _sum_trained(positions: Positions, ratio: Float64Array) -> float:
    """Sum ratios, less the 1 that stands where nothing trains."""
    return float(ratio.sum()) - (len(ratio) - int(positions.counts.sum()))


_FORMULAS: Mapping[type[Loss], Callable[[Positions, Any, KlEstimator], Terms]] = MappingProxyType({
    CrossEntropy: _cross_entropy,
    ImportanceSampling: _importance_sampling,
    PPO: _ppo,
    GRPO: _grpo,
    CISPO: _cispo,
    DPPO: _dppo,
    DRO: _dro,
})  # fmt: skip
