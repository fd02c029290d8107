"""Row "memory kept": what a batch of samples holds once the lists it was built from are gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.forms import FORMS, PYDANTIC_LISTS, SDK_DICTS, TINKER, Build, arrays_of
from benchmarks.meters import held_bytes
from benchmarks.rollouts import rollouts
from benchmarks.row import OURS, Case, Gate, Reading, Row, Size, Work, offer


def _prepare(size: Size) -> Case:
    names = (OURS, SDK_DICTS, TINKER, PYDANTIC_LISTS)
    contenders, skipped = offer({name: partial(_work, FORMS[name], size) for name in names})
    return Case(contenders, _normal, skipped)


def _work(form: Callable[[], Build], size: Size) -> Work:
    build = form()
    # the rollouts are made within the work, so that only what a sample keeps of them stays
    return lambda: [build(rollout) for rollout in rollouts(size)]


def _normal(name: str, samples: list[Any]) -> list[dict[str, list[float]]]:
    return [arrays_of(name, sample) for sample in samples]


def _bytes_a_token(contenders: Mapping[str, Work], rounds: int) -> dict[str, list[float]]:
    num_tokens = sum(sample.length + 1 for sample in contenders[OURS]())
    return {name: [held / num_tokens for held in found] for name, found in held_bytes(contenders, rounds).items()}


ROW = Row(
    key="memory",
    work="memory kept",
    prepare=_prepare,
    readings=[
        Reading("bytes held", _bytes_a_token, (
            Gate(SDK_DICTS, 4), Gate(OURS, 20, "value", "bytes/token"), Gate(TINKER), Gate(PYDANTIC_LISTS),
        )),
    ],
)  # fmt: skip
