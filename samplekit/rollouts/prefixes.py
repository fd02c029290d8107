"""Which steps of a trajectory continue each other, token for token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from samplekit.rollouts.trajectory import Step
from samplekit.sample.arrays import IntArray

_END = 64  # tokens that are compared first


def prefix_runs(steps: Sequence[Step], max_length: int | None) -> list[list[int]]:
    """Join steps into runs: each step's prompt begins with all the tokens of the run's step before it.

    A step joins the run that it continues by the most tokens, not the first one. What branches off in the middle of a
    run starts one of its own. Steps with a routed_experts_key stay alone, for a sample holds one key only.

    Args:
        steps: in the order in which they were taken.
        max_length: the most tokens of a joined sequence; None for no limit.

    Returns:
        Indices of steps, run by run, in the order in which the runs start.
    """
    tokens = [step.tokens for step in steps]
    runs: list[list[int]] = []
    for index, step in enumerate(steps):
        fits = max_length is None or len(tokens[index]) <= max_length
        joinable = fits and step.completion.routed_experts_key is None
        found = [run for run in runs if joinable and _continues(steps[run[-1]], tokens[run[-1]], step)]
        if found:
            max(found, key=lambda run: len(tokens[run[-1]])).append(index)
        else:
            runs.append([index])
    return runs


def _continues(before: Step, tokens: IntArray, after: Step) -> bool:
    if before.completion.routed_experts_key is not None:
        return False
    if len(tokens) > len(after.prompt):
        return False
    start = after.prompt[: len(tokens)]
    # a history that was rewritten is most often of another length, so the end alone tells it, however long it is
    return np.array_equal(tokens[-_END:], start[-_END:]) and np.array_equal(tokens, start)
