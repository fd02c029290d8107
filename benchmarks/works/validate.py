"""Row "validate": a batch without faults is looked through; each contender gives how many faults it found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.forms import FORMS, RECIPE, SDK_DICTS
from benchmarks.meters import cpu_time
from benchmarks.rollouts import rollouts
from benchmarks.row import FLOOR, OURS, Case, Gate, Reading, Row, Size, Work, offer, require

SDK = "SDK on lists"


def _prepare(size: Size) -> Case:
    loads: Mapping[str, Callable[[Size], Work]] = {OURS: _ours, FLOOR: _floor, SDK: _sdk, RECIPE: _recipe}
    contenders, skipped = offer({name: partial(load, size) for name, load in loads.items()})
    return Case(contenders, lambda _name, num_faults: num_faults, skipped)


def _built(form: str, size: Size) -> list[Any]:
    build = FORMS[form]()
    return [build(rollout) for rollout in rollouts(size)]


def _ours(size: Size) -> Work:
    from samplekit import ImportanceSampling, check

    samples, loss = _built(OURS, size), ImportanceSampling()

    def work() -> int:
        report = check(samples, loss=loss)
        return len(report.errors) + len(report.warnings)

    return work


def _floor(size: Size) -> Work:
    """Take one max() of every array."""
    batch = [
        [sample.model_input.tokens, *(tensor.data for tensor in sample.loss_fn_inputs.values())]
        for sample in _built(OURS, size)
    ]

    def work() -> int:
        for arrays in batch:
            for values in arrays:
                values.max()
        return 0

    return work


def _sdk(size: Size) -> Work:
    """Do what together's client does before it sends a batch: number types, ranges, names and dtypes; not values."""
    require("together.post_training")
    from together.post_training import LossConfig
    from together.post_training._losses import validate_loss_config
    from together.post_training.clients.trainer import _coerce_batch

    samples, loss = _built(SDK_DICTS, size), LossConfig(type="LOSS_TYPE_IMPORTANCE_SAMPLING")

    def work() -> int:
        _coerce_batch(samples, validate_loss_config(loss))  # raises at the first fault
        return 0

    return work


def _recipe(size: Size) -> Work:
    """Write our rules by hand over lists."""
    samples = _built(RECIPE, size)
    return lambda: sum(_count_faults(sample) for sample in samples)


def _count_faults(sample: Mapping[str, list[float]]) -> int:
    tokens, targets, weights = sample["tokens"], sample["target_tokens"], sample["weights"]
    floats = [sample[name] for name in ("weights", "logprobs", "advantages")]
    return (
        sum(len(values) != len(tokens) for values in (targets, *floats))
        + sum(not isinstance(token, int) or isinstance(token, bool) or token < 0 for token in tokens)
        + sum(not math.isfinite(value) for values in floats for value in values)
        + sum(
            weight != 0 and token != target for weight, token, target in zip(weights, tokens[1:], targets, strict=False)
        )
        + sum(weight != 0 and value > 0.001 for weight, value in zip(weights, sample["logprobs"], strict=True))
        + sum(weight == 0 and value != 0 for weight, value in zip(weights, sample["advantages"], strict=True))
        + (not any(weights))
    )


ROW = Row(
    key="validate",
    work="validate",
    prepare=_prepare,
    readings=[Reading("CPU time", cpu_time, (Gate(SDK, 45), Gate(FLOOR, 5.5, "floor"), Gate(RECIPE)))],
)
