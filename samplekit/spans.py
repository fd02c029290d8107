"""A sample as runs of tokens that train or do not: what viewers draw."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from samplekit.sample import Sample


class Span(NamedTuple):
    """A run of neighbouring tokens with one weight.

    Attributes:
        start: the first token's place in the full sequence.
        stop: the place behind the last one.
        weight: how much each of them trains; 0.0 for context.
    """

    start: int
    stop: int
    weight: float


def sample_spans(sample: Sample) -> list[Span]:
    """Cut a sample's full sequence (T + 1 tokens) into the longest runs of equal weight.

    Token 0 is never trained, for no position predicts it.

        >>> from samplekit import build_sample
        >>> sample_spans(build_sample([10, 11, 12, 13, 14, 15], [0, 0, 0, 1, 1, 1]))
        [Span(start=0, stop=3, weight=0.0), Span(start=3, stop=6, weight=1.0)]
    """
    mask = sample.loss_mask
    ends = np.append(np.flatnonzero(np.diff(mask)) + 1, len(mask)).tolist()
    starts = [0, *ends]
    return [Span(start, stop, float(mask[start])) for start, stop in zip(starts, ends, strict=False)]
