"""A loss and its gradient in closed form, in float64, without autograd."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from samplekit.errors import SampleError
from samplekit.losses import GRPO, Loss
from samplekit.sample.kinds import shown
from samplekit.training.positions import Float64Array, IndexArray, Positions, read_batch, views
from samplekit.training.ranges import refuse_outside
from samplekit.training.rows import FloatsArray
from samplekit.training.terms import KlEstimator, knows, terms_of

if TYPE_CHECKING:
    from samplekit.sample import Sample

SequenceMean: TypeAlias = Literal["means", "sums"]


@dataclass(frozen=True)
class Settings:
    """What the service does not document, decided by name; see `samplekit.training.compute_loss`.

    Raises:
        SampleError: a setting is out of its range.
    """

    horizon: float | None = None
    normalizer: float | None = None
    sequence_mean: SequenceMean = "means"
    kl: KlEstimator = "k3"

    def __post_init__(self) -> None:
        for name in ("horizon", "normalizer"):
            if getattr(self, name) is not None:
                refuse_outside(name, getattr(self, name), "pass a count of tokens")
        for name, choices in (("sequence_mean", get_args(SequenceMean)), ("kl", get_args(KlEstimator))):
            value: object = getattr(self, name)
            if not isinstance(value, str) or value not in choices:
                raise SampleError(f"{name} is {shown(value)}, expected one of {', '.join(choices)}")


@dataclass(frozen=True)
class Evaluation:
    """A loss in numbers; flat arrays hold one sample after the other.

    Attributes:
        loss: of the whole batch.
        sample_losses: what each sample adds to it, float64 (S,).
        lengths: positions of each sample.
        values: the terms before they are added up, (N,).
        gradients: d loss / d logprob, (N,).
        metrics: means over the trained positions; empty where none trains.
        num_trained: how many positions train.
    """

    loss: float
    sample_losses: Float64Array
    lengths: list[int]
    values: FloatsArray
    gradients: FloatsArray
    metrics: dict[str, float]
    num_trained: int


def evaluate(
    policy_logprobs: Sequence[Any], samples: Sequence[Sample], loss: Loss, settings: Settings
) -> Evaluation:  # fmt: skip
    """Evaluate a loss and its gradient in float64.

    Args:
        policy_logprobs: one (T_i,) tensor or array a sample; where a sample does not train, anything may stand.
        samples: as many.
        loss: which loss.
        settings: how terms become one number.

    Returns:
        Arrays in float64 where a row of policy_logprobs is, else float32.

    Raises:
        LossInputError: a sample lacks an input.
        AlignmentError: a row has another length than its sample.
        SampleError: there is no formula for the loss, no sample, or a row that is not finite where its sample trains.
    """
    if not knows(loss):
        raise SampleError(f"loss is {shown(loss)}, expected a loss of samplekit, such as samplekit.GRPO()")
    batch = read_batch(policy_logprobs, samples, str(loss), loss.required_inputs(), loss.optional_inputs())
    scales = _scales(batch.counts, loss, settings)
    lengths, doubled = batch.lengths, any(row.dtype == np.float64 for row in batch.rows)
    values: FloatsArray = np.zeros(sum(lengths), dtype=np.float64 if doubled else np.float32)
    gradients = np.zeros_like(values)
    value_rows, gradient_rows = views(values, lengths), views(gradients, lengths)
    sample_losses, sums = np.empty_like(scales), dict[str, float]()
    with np.errstate(over="ignore", invalid="ignore"):  # a ratio beyond all numbers makes the loss so, visibly
        for part, block in batch.blocks():
            terms = terms_of(block, loss, settings.kl)
            batch.put(terms.values, part, value_rows)
            batch.put(terms.slopes * _spread(scales[part], block), part, gradient_rows)
            sample_losses[part] = block.per_sample(terms.values) * scales[part]
            sums = {name: sums.get(name, 0.0) + value for name, value in terms.sums.items()}
    count = batch.num_trained
    metrics = {name: value / count for name, value in sums.items()} if count else {}
    return Evaluation(_exact_sum(sample_losses), sample_losses, lengths, values, gradients, metrics, count)


def divisor(counts: IndexArray, loss: Loss, settings: Settings) -> float:
    """Say what the sum of a batch is divided by; what is not counted above is not counted below.

    Args:
        counts: trained positions of each sample, int64 (S,).
        loss: which loss.
        settings: a normalizer decides alone.
    """
    if settings.normalizer is not None:
        return settings.normalizer
    aggregation = _aggregation(loss)
    if aggregation == "fixed_horizon":
        return 1.0 if settings.horizon is None else settings.horizon * len(counts)
    counted = counts.sum() if aggregation == "token_mean" else np.count_nonzero(counts)
    return max(int(counted), 1)


def _scales(counts: IndexArray, loss: Loss, settings: Settings) -> Float64Array:
    """Say what each sample's sum is multiplied by, (S,)."""
    means = _aggregation(loss) == "sequence_mean" and settings.sequence_mean == "means"
    terms = np.maximum(counts, 1) if means else np.ones(len(counts))
    scales: Float64Array = 1.0 / terms / divisor(counts, loss, settings)
    return scales


def _aggregation(loss: Loss) -> str:
    return loss.aggregation if isinstance(loss, GRPO) else "fixed_horizon"


def _spread(scales: Float64Array, block: Positions) -> Float64Array | float:
    """Give one number where all samples share it, else one a position."""
    return float(scales[0]) if (scales == scales[0]).all() else block.per_position(scales)


def _exact_sum(values: Float64Array) -> float:
    """Add up so that the order of samples changes no digit."""
    return math.fsum(values) if np.isfinite(values).all() else float(values.sum())
