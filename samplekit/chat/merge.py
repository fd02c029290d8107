"""Turns that continue each other, joined into one sequence: the same tokens train in the same context, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from samplekit.chat.turn import Turn


def merge_turns(turns: Sequence[Turn], max_length: int | None) -> list[Turn]:
    """Join turns into the longest runs that are proved: all of a turn's tokens are a prefix of the next one's prompt.

    Args:
        turns: in the order of the conversation.
        max_length: the most tokens of a joined sequence; None for no limit.

    Returns:
        One turn a run, its mask the union of its turns' masks; ``info["merged"]`` lists the message indices joined.
    """
    runs: list[list[Turn]] = []
    for turn in turns:
        fits = max_length is None or len(turn.ids) <= max_length
        open_runs = [run for run in runs if fits and _continues(run[-1], turn)]
        if open_runs:
            max(open_runs, key=lambda run: len(run[-1].ids)).append(turn)
        else:
            runs.append([turn])
    return [_join(run) for run in runs]


def _continues(before: Turn, after: Turn) -> bool:
    length = len(before.ids)
    return length <= after.prompt_length and np.array_equal(before.ids, after.ids[:length])


def _join(run: list[Turn]) -> Turn:
    last = run[-1]
    weights = last.weights.copy()
    for turn in run:
        weights[turn.prompt_length : len(turn.ids)] = turn.weights[turn.prompt_length :]
    modes = {turn.mode for turn in run}
    mode = last.mode if len(modes) == 1 else "mixed"
    info = {**last.info, "merged": [turn.message_index for turn in run]}
    return replace(last, weights=weights, prompt_length=run[0].prompt_length, mode=mode, info=info)
