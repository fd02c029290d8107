"""The check itself: every sample read, every rule applied, findings labelled and counted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from samplekit.checks.read import Arrays, Fault, read_mapping, read_sample
from samplekit.checks.report import CODES, Finding, Report
from samplekit.checks.rules import rule_faults
from samplekit.errors import SampleError
from samplekit.losses import Loss
from samplekit.sample import Sample


def check(
    samples: Iterable[Sample | Mapping[str, Any]],
    *,
    loss: Loss | None = None,
    vocab_size: int | None = None,
    max_length: int | None = None,
    expected_share: tuple[float, float] | None = None,
    allow: Collection[str] = (),
) -> Report:
    """Find every fault in a batch, not only the first, and name its slot.

    Args:
        samples: Samples, or mappings in the service's spelling.
        loss: the loss they are meant for; its required inputs must be there.
        vocab_size: ids must be below it.
        max_length: the most tokens a full sequence (positions + 1) may hold.
        expected_share: (low, high); warns where the trained share of the batch is outside.
        allow: codes of `CODES` to accept, such as ``{"target_not_next"}``.

    Returns:
        A Report; `Report.raise_for_errors` raises where there is an error.

    Raises:
        SampleError: the call itself is at fault: one sample instead of several, or an unknown code in allow.
    """
    accepted = _accepted(allow)
    if isinstance(samples, Sample | Mapping | str | bytes):
        raise SampleError(f"samples is a {type(samples).__name__}, expected a sequence of samples: pass a list")
    found: list[Finding] = []
    lengths: list[int] = []
    num_trained = 0
    for index, sample in enumerate(samples):
        arrays = _read(sample)
        lengths.append(arrays.length)
        num_trained += _count_trained(arrays)
        found += [_finding(index, fault) for fault in arrays.faults]
        found += [_finding(index, fault) for fault in rule_faults(arrays, loss, vocab_size, max_length)]
    stats = _stats(lengths, num_trained)
    found += _batch_findings(stats, expected_share)
    found = [item for item in found if item.code not in accepted]
    return Report(
        errors=[item for item in found if CODES[item.code].startswith("error")],
        warnings=[item for item in found if CODES[item.code].startswith("warning")],
        stats=stats,
    )


def _accepted(allow: Collection[str]) -> frozenset[str]:
    codes = frozenset([allow] if isinstance(allow, str) else allow)
    unknown = codes - CODES.keys()
    if unknown:
        raise SampleError(f"allow holds {sorted(unknown)}, expected codes of a finding: {', '.join(sorted(CODES))}")
    return codes


def _read(sample: object) -> Arrays:
    if isinstance(sample, Sample):
        return read_sample(sample)
    if not isinstance(sample, Mapping) and hasattr(sample, "model_dump"):
        sample = sample.model_dump(exclude_none=True)  # a pydantic model of the vendor's SDK  # pyright: ignore
    if isinstance(sample, Mapping):
        return read_mapping(sample)  # pyright: ignore[reportUnknownArgumentType]
    fault = Fault("invalid_field", "", f"is a {type(sample).__name__}, expected a Sample or a mapping")
    return Arrays(None, {}, 0, frozenset({"target_tokens"}), [fault])


def _finding(index: int, fault: Fault) -> Finding:
    path = f"samples[{index}]{'.' if fault.slot else ''}{fault.slot}"
    return Finding(fault.code, path, f"{path} {fault.text}")


def _count_trained(arrays: Arrays) -> int:
    weights = arrays.inputs.get("weights")
    if weights is None:
        weights = arrays.inputs.get("mask")
    return arrays.length if weights is None else int(np.count_nonzero(weights))


def _stats(lengths: list[int], num_trained: int) -> dict[str, Any]:
    num_tokens = sum(lengths)
    summary = {"min": 0, "median": 0.0, "mean": 0.0, "max": 0}
    if lengths:
        summary = {
            "min": min(lengths), "median": float(np.median(lengths)), "mean": num_tokens / len(lengths), "max": max(lengths),
        }  # fmt: skip
    return {
        "num_samples": len(lengths),
        "num_tokens": num_tokens,
        "num_trained": num_trained,
        "trained_share": num_trained / num_tokens if num_tokens else 0.0,
        "lengths": summary,
    }


def _batch_findings(stats: Mapping[str, Any], expected_share: tuple[float, float] | None) -> list[Finding]:
    if stats["num_samples"] == 0:
        return [Finding("empty_batch", "samples", "samples is empty, expected at least one sample")]
    share = stats["trained_share"]
    if expected_share is not None and not expected_share[0] <= share <= expected_share[1]:
        text = f"samples train {share:.1%} of their tokens, expected {expected_share[0]:.1%} to {expected_share[1]:.1%}: look at the masks"
        return [Finding("trained_share", "samples", text)]
    return []
