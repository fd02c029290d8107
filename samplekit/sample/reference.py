"""The frozen policy's logprobs, as scoring gives them, made fit for a sample that exists already."""

from __future__ import annotations

import math

import numpy as np

from samplekit.errors import AlignmentError, SampleError
from samplekit.sample.arrays import FloatArray, floats_array, freeze, is_finite
from samplekit.sample.kinds import LOGPROB_LIMIT


def reference_array(values: object, weights: FloatArray) -> FloatArray:
    """Read one logprob a position, in nats: float32 (T,), read-only, 0.0 where the weight is 0.

    Args:
        values: shape (T,), value i for target i; whatever stands where the weight is 0 is not read.
        weights: how much each position counts, float32 (T,).

    Raises:
        AlignmentError: not one value a position.
        SampleError: one that trains is no finite number, or above 0.001; the message names its index.
    """
    given = floats_array(values, "reference_logprobs", missing=math.nan)
    if len(given) != len(weights):
        hint = "pass one for every target token, as target_logprobs and TrainResult.logprobs give them"
        if len(given) == len(weights) + 1:
            hint = "these look like one for every token, so leave out the first, or pass them to build_sample"
        raise AlignmentError(
            f"reference_logprobs holds {len(given)} values, the sample has {len(weights)} positions: {hint}"
        )
    trained = weights != 0
    kept = np.where(trained, given, np.float32(0))
    if not is_finite(kept):
        index = int(np.flatnonzero(~np.isfinite(kept))[0])
        raise SampleError(
            f"reference_logprobs holds {kept[index]} at index {index}, where the sample trains, expected a finite "
            "number: score the sample again"
        )
    if kept.max() > LOGPROB_LIMIT:
        index = int(np.flatnonzero(kept > LOGPROB_LIMIT)[0])
        raise SampleError(
            f"reference_logprobs holds {kept[index]} at index {index}, where the sample trains, expected at most 0: "
            "pass natural-log probabilities, not probabilities or negated ones"
        )
    return freeze(kept)
