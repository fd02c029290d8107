"""Row "build Samples": rollouts in Python lists become samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.forms import FORMS, PYDANTIC_LISTS, PYDANTIC_TYPES, RECIPE, SDK_DICTS, TINKER, Build, arrays_of
from benchmarks.meters import cpu_time
from benchmarks.rollouts import Rollout, rollouts
from benchmarks.row import FLOOR, Case, Gate, Reading, Row, Size, Work, offer


def _prepare(size: Size) -> Case:
    batch = list(rollouts(size))
    contenders, skipped = offer({name: partial(_work, form, batch) for name, form in FORMS.items()})
    return Case(contenders, _normal, skipped)


def _work(form: Callable[[], Build], batch: list[Rollout]) -> Work:
    build = form()
    return lambda: [build(rollout) for rollout in batch]


def _normal(name: str, samples: list[Any]) -> list[dict[str, list[float]]]:
    return [arrays_of(name, sample) for sample in samples]


ROW = Row(
    key="build",
    work="build Samples",
    prepare=_prepare,
    readings=[
        Reading("CPU time", cpu_time, (
            Gate(PYDANTIC_LISTS, 6), Gate(FLOOR, 1.5, "floor"), Gate(PYDANTIC_TYPES), Gate(TINKER), Gate(SDK_DICTS),
            Gate(RECIPE),
        )),
    ],
)  # fmt: skip
