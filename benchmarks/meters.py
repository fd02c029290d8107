"""How contenders are measured: interleaved, on CPU time, with the garbage collector out of the way.

Every meter gives one number a round and a contender. Contenders of one round run right after one another, so a ratio is
taken within a round and a busy machine slows both of its sides.
"""

from __future__ import annotations

import gc
import math
import resource
import tracemalloc
from collections.abc import Callable, Mapping
from time import process_time

from benchmarks.row import Work

SHORTEST_SECONDS = 0.03
"""Shorter work is repeated within a round."""


def cpu_time(contenders: Mapping[str, Work], rounds: int) -> dict[str, list[float]]:
    """Measure this process's CPU seconds a run."""
    warm_up = _interleaved(contenders, 2, lambda _name, work: _run_seconds(work, 1))
    repeats = {name: _repeats(min(seconds)) for name, seconds in warm_up.items()}
    return _interleaved(contenders, rounds, lambda name, work: _run_seconds(work, repeats[name]))


def child_cpu_time(contenders: Mapping[str, Work], rounds: int) -> dict[str, list[float]]:
    """Measure CPU seconds of the child processes that a run starts and waits for."""
    for work in contenders.values():
        work()
    return _interleaved(contenders, rounds, lambda _name, work: _child_seconds(work))


def held_bytes(contenders: Mapping[str, Work], rounds: int) -> dict[str, list[float]]:
    """Measure the bytes that a run's result keeps alive; they do not vary, so one round is enough."""
    del rounds
    return _interleaved(contenders, 1, lambda _name, work: _held(work))


def output_bytes(contenders: Mapping[str, Work], rounds: int) -> dict[str, list[float]]:
    """Measure the length of the bytes that a run gives; it does not vary, so one round is enough."""
    del rounds
    return _interleaved(contenders, 1, lambda _name, work: float(len(work())))


def _interleaved(
    contenders: Mapping[str, Work], rounds: int, measure: Callable[[str, Work], float]
) -> dict[str, list[float]]:
    """Run every contender once a round; a round starts with another one each time."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    gc.collect()
    gc.freeze()  # collecting between runs need not walk what was there before them
    try:
        for index in range(rounds):
            start = index % len(names)
            for name in names[start:] + names[:start]:
                found[name].append(measure(name, contenders[name]))
    finally:
        gc.unfreeze()
    return found


def _repeats(seconds: float) -> int:
    return max(1, math.ceil(SHORTEST_SECONDS / max(seconds, 1e-6)))


def _run_seconds(work: Work, repeats: int) -> float:
    gc.collect()
    gc.disable()
    try:
        result = None
        start = process_time()
        for _ in range(repeats):
            result = work()
        seconds = process_time() - start
        del result  # freed off the clock
    finally:
        gc.enable()
    return seconds / repeats


def _child_seconds(work: Work) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _held(work: Work) -> float:
    work()  # caches of first use are not the result's
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        result = work()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        del result
    finally:
        tracemalloc.stop()
    return float(after - before)
