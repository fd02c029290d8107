"""Which samples of a file do not train but score: a share or a number of them, in whole conversations."""

from __future__ import annotations

import math
import random

from samplekit.errors import SampleError
from samplekit.sample import Sample
from samplekit.sample.kinds import is_whole_number


def split_held_out(samples: list[Sample], held_out: str, seed: int) -> tuple[list[Sample], list[Sample]]:
    """Keep a share (below 1) or a number of the samples apart, drawn by the seed; more, to keep conversations whole.

    Raises:
        SampleError: it is neither, or leaves nothing to train on.
    """
    try:
        wanted = float(held_out)
    except ValueError:
        wanted = math.nan
    is_whole = held_out.strip().isdecimal() and wanted >= 1
    if not (is_whole or 0 < wanted < 1):
        raise SampleError(
            f"--held-out is {held_out!r}, expected a share above 0 and below 1 (0.1), a whole number of samples (20) "
            "or a samples file"
        )
    count = wanted if is_whole else max(1, round(wanted * len(samples)))
    chosen = _drawn(samples, count, random.Random(f"held-out/{seed}"))
    if len(chosen) == len(samples):
        raise SampleError(f"--held-out {held_out} of {len(samples)} samples leaves nothing to train on: hold out fewer")
    return (
        [sample for index, sample in enumerate(samples) if index not in chosen],
        [samples[index] for index in sorted(chosen)],
    )


def _drawn(samples: list[Sample], count: float, draws: random.Random) -> set[int]:
    """Draw so many samples, or somewhat more: those of one conversation stay together, for they share their text."""
    conversations: list[list[int]] = []
    for index, sample in enumerate(samples):
        if index and _is_of_same(samples[index - 1], sample):
            conversations[-1].append(index)
        else:
            conversations.append([index])
    draws.shuffle(conversations)
    chosen: set[int] = set()
    while len(chosen) < min(count, len(samples)):
        chosen.update(conversations.pop())
    return chosen


def _is_of_same(earlier: Sample, sample: Sample) -> bool:
    """Tell whether a sample is a later reply of the conversation before it, as `samplekit build` writes them in a row.

    A source alone does not tell: many datasets name themselves there.
    """
    before, place = earlier.info.get("message_index"), sample.info.get("message_index")
    is_later = is_whole_number(before) and is_whole_number(place) and before < place
    return is_later and earlier.info.get("source") == sample.info.get("source")
