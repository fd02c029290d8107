"""Where two sequences of ids part."""

from __future__ import annotations

import numpy as np

from samplekit.sample.arrays import IntArray


def shared_start(left: IntArray, right: IntArray) -> int:
    """Count the values that two arrays share at their start.

    Args:
        left: int64 (N,).
        right: int64 (M,).

    Returns:
        The index of the first value that differs, or that only the longer one has; N where both are the same.
    """
    shared = min(len(left), len(right))
    differs = np.flatnonzero(left[:shared] != right[:shared])
    return int(differs[0]) if len(differs) else shared
