"""Samples -> batches that the service takes: shuffled by a seed, evened out in tokens, no larger than its limits."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from samplekit.client.settings import several, whole_number
from samplekit.errors import SampleError
from samplekit.packing import balance
from samplekit.sample import Sample
from samplekit.sample.kinds import describe_kind

if TYPE_CHECKING:
    from samplekit.wire.offers import Limits

DEFAULT_BATCH_SIZE = 32
_EVEN = 1.01  # the largest batch over the smallest, in tokens, at which they are even enough
_MOST_ROUNDS = 8  # of evening out; heavy-tailed lengths reach 1.01 in four to six, and small batches never may


class Batch(list[Sample]):
    """The samples of one forward_backward.

    Attributes:
        num_trained: positions that train, over all samples: what a summed loss is divided by.
        num_tokens: positions, over all samples.
        epoch: which pass over the data it belongs to, from 0.
    """

    def __init__(self, samples: Sequence[Sample], *, epoch: int = 0) -> None:
        super().__init__(samples)
        self.num_trained = sum(sample.num_trained for sample in samples)
        self.num_tokens = sum(sample.length for sample in samples)
        self.epoch = epoch


def make_batches(
    samples: Sequence[Sample],
    limits: Limits | None,
    *,
    batch_size: int | None,
    max_tokens: int | None,
    epochs: int,
    seed: int,
) -> Iterator[Batch]:
    """Give every sample once per epoch, in an order drawn from the seed, in batches of about equally many tokens.

    Batches are cut from the shuffled samples and then trade samples until their tokens are alike, so that which samples
    meet in a batch changes with every epoch and seed. Their number, and how many samples they hold, stay as they were
    cut; with max_tokens only their number does.

    Args:
        samples: what to train on.
        limits: of the model, where known.
        batch_size: samples in a batch at most; None means 32, or the model's limit where that is less.
        max_tokens: positions in a batch at most; None for no limit.
        epochs: passes over the data.
        seed: of the order; equal seeds give equal batches.

    Raises:
        SampleError: a setting is out of range, a sample is longer than the model or the batch takes, or there is none.
    """
    items = several("samples", samples, "Samples")
    size = _batch_size(batch_size, limits)
    num_epochs, order_seed = whole_number("epochs", epochs, least=1), whole_number("seed", seed)
    bound = None if max_tokens is None else whole_number("max_tokens", max_tokens, least=1)
    _require_fit(items, limits, bound)
    return _batches(items, size, bound, num_epochs, order_seed)


def _batches(samples: Sequence[Sample], size: int, max_tokens: int | None, epochs: int, seed: int) -> Iterator[Batch]:
    for epoch in range(epochs):
        order = list(range(len(samples)))
        random.Random(f"{seed}/{epoch}").shuffle(order)
        shuffled = [samples[index] for index in order]
        lengths = [sample.length for sample in shuffled]
        for part in _evened(list(_cut(lengths, size, max_tokens)), lengths):
            yield Batch([shuffled[place] for place in part], epoch=epoch)


def _cut(lengths: list[int], size: int, max_tokens: int | None) -> Iterator[Sequence[int]]:
    """Cut into as few batches as the size allows, whose sizes differ by one at most; or fill them up to max_tokens."""
    if max_tokens is None:
        count = math.ceil(len(lengths) / size)
        for index in range(count):
            yield range(index * len(lengths) // count, (index + 1) * len(lengths) // count)
        return
    start, tokens = 0, 0
    for place, length in enumerate(lengths):
        if place > start and (place - start == size or tokens + length > max_tokens):
            yield range(start, place)
            start, tokens = place, 0
        tokens += length
    yield range(start, len(lengths))


def _evened(parts: list[Sequence[int]], lengths: list[int]) -> list[Sequence[int]]:
    """Let batches trade samples in pairs until they hold about equally many tokens.

    One `balance` over the whole epoch would be as even, but depends on lengths alone: the longest sample would meet the
    shortest ones in every epoch, whatever the seed.
    """
    tokens = [sum(lengths[place] for place in part) for part in parts]
    half, idle = len(parts) // 2, 0
    for number in range(_MOST_ROUNDS):
        if idle == 2 or len(parts) == len(lengths) or max(tokens) <= _EVEN * min(tokens):
            break
        order = sorted(range(len(parts)), key=tokens.__getitem__)
        partners = order[-half:] if number % 2 else order[: -half - 1 : -1]  # the lightest with the heaviest first
        traded = [_trade(parts, tokens, lengths, pair) for pair in zip(order[:half], partners, strict=True)]
        idle = 0 if any(traded) else idle + 1
    return parts


def _trade(parts: list[Sequence[int]], tokens: list[int], lengths: list[int], pair: tuple[int, int]) -> bool:
    """Divide the samples of two batches anew between them, half each, where the larger one gets smaller by it."""
    pool = sorted(place for index in pair for place in parts[index])
    halves = balance([lengths[place] for place in pool], 2, equal_size=True)
    found = [sorted(pool[item] for item in half) for half in halves]
    sums = [sum(lengths[place] for place in part) for part in found]
    if max(sums) >= max(tokens[index] for index in pair):
        return False
    for index, part, total in zip(pair, found, sums, strict=True):
        parts[index], tokens[index] = part, total
    return True


def _batch_size(batch_size: int | None, limits: Limits | None) -> int:
    largest = limits.max_batch_size if limits is not None else None
    if batch_size is None:
        return min(DEFAULT_BATCH_SIZE, largest or DEFAULT_BATCH_SIZE)
    given = whole_number("batch_size", batch_size, least=1)
    if largest is not None and given > largest:
        raise SampleError(f"batch_size is {given}, expected at most {largest}, the model's max_batch_size")
    return given


def _require_fit(samples: Sequence[Sample], limits: Limits | None, max_tokens: int | None) -> None:
    if not samples:
        raise SampleError("samples is empty, expected at least one Sample")
    for index, item in enumerate(samples):
        if not isinstance(item, Sample):
            raise SampleError(f"samples[{index}] is {describe_kind(item)}, expected a Sample: use Sample.from_wire")
    bounds = {
        "the model's max_seq_length": limits.max_seq_length if limits is not None else None,
        "max_tokens": max_tokens,
    }
    for name, bound in bounds.items():
        found = next((n for n, sample in enumerate(samples) if bound is not None and sample.length > bound), None)
        if found is not None:
            raise SampleError(
                f"samples[{found}] has {samples[found].length} positions, expected at most {bound} ({name}): "
                "cut it with build_sample(max_length=...) or drop it"
            )
