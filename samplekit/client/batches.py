"""Samples -> batches that the service takes: shuffled by a seed, no larger than its limits."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from samplekit.client.settings import several, whole_number
from samplekit.errors import SampleError
from samplekit.sample import Sample
from samplekit.sample.kinds import describe_kind

if TYPE_CHECKING:
    from samplekit.wire.answers import Limits

DEFAULT_BATCH_SIZE = 32


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
    """Give every sample once per epoch, in an order drawn from the seed.

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
        parts = _by_count(shuffled, size) if max_tokens is None else _by_tokens(shuffled, size, max_tokens)
        for part in parts:
            yield Batch(part, epoch=epoch)


def _by_count(samples: list[Sample], size: int) -> Iterator[list[Sample]]:
    """Cut into as few batches as the size allows, whose sizes differ by one at most."""
    count = math.ceil(len(samples) / size)
    for index in range(count):
        yield samples[index * len(samples) // count : (index + 1) * len(samples) // count]


def _by_tokens(samples: list[Sample], size: int, max_tokens: int) -> Iterator[list[Sample]]:
    """Fill batches in order up to a number of tokens."""
    part, tokens = list[Sample](), 0
    for sample in samples:
        if part and (len(part) == size or tokens + sample.length > max_tokens):
            yield part
            part, tokens = [], 0
        part.append(sample)
        tokens += sample.length
    yield part


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
