"""The check itself: every sample read, every rule applied, findings labelled and counted."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, cast

import numpy as np

from samplekit.checks.groups import GroupWatch
from samplekit.checks.read import Fault, read
from samplekit.checks.report import CODES, Finding, Report
from samplekit.checks.rules import rule_faults
from samplekit.errors import SampleError
from samplekit.losses import Loss
from samplekit.sample import Sample
from samplekit.sample.kinds import describe_kind, is_mapping, is_number, is_whole_number, shown


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
        allow: codes of `samplekit.checks.CODES` to accept, such as ``{"target_not_next"}``.

    Returns:
        A Report; `Report.raise_for_errors` raises where there is an error.

    Raises:
        SampleError: the call itself is at fault: no list of samples, an unknown code in allow, or a setting of another
            kind.
    """
    accepted = _accepted(allow)
    given = _several(samples)
    _refuse_settings(loss, vocab_size, max_length, expected_share)
    found: list[Finding] = []
    lengths: list[int] = []
    num_trained = 0
    watch = GroupWatch.of(loss)
    for index, sample in enumerate(given):
        arrays = read(sample)
        lengths.append(arrays.length)
        num_trained += arrays.num_trained
        watch.see(index, arrays)
        faults = [*arrays.faults, *rule_faults(arrays, loss, vocab_size, max_length)]
        found += [_finding(index, fault) for fault in faults]
    stats = _stats(lengths, num_trained)
    found += watch.findings()
    found += _batch_findings(stats, expected_share)
    found = [item for item in found if item.code not in accepted]
    return Report(
        errors=[item for item in found if CODES[item.code].startswith("error")],
        warnings=[item for item in found if CODES[item.code].startswith("warning")],
        stats=stats,
    )


def _several(samples: Any) -> Iterator[Any]:  # noqa: ANN401 - whatever a caller holds
    """Give samples one by one, for there may be many."""
    given: Any = samples
    single = isinstance(samples, Sample | AbstractSet | str | bytes | bytearray) or is_mapping(samples)
    if not single and isinstance(samples, Iterable):
        with contextlib.suppress(TypeError):  # a tensor of no dimension says only here that it holds nothing
            return iter(given)
    raise SampleError(f"samples is {describe_kind(given)}, expected several of them in order: pass a list")


def _refuse_settings(loss: object, vocab_size: object, max_length: object, expected_share: object) -> None:
    if loss is not None and not isinstance(loss, Loss):
        raise SampleError(f"loss is {describe_kind(loss)}, expected a loss such as samplekit.CrossEntropy() or None")
    for name, value in (("vocab_size", vocab_size), ("max_length", max_length)):
        if value is not None and not (is_whole_number(value) and value > 0):
            raise SampleError(f"{name} is {shown(value)}, expected a whole number of 1 or more, or None")
    if expected_share is not None and not (
        isinstance(expected_share, tuple | list)
        and len(expected_share) == 2  # pyright: ignore[reportUnknownArgumentType]
        and all(map(is_number, expected_share))  # pyright: ignore[reportUnknownArgumentType]
        and expected_share[0] <= expected_share[1]
    ):
        raise SampleError(f"expected_share is {shown(expected_share)}, expected (low, high), such as (0.1, 0.9)")


def _accepted(allow: Any) -> frozenset[str]:  # noqa: ANN401 - whatever a caller holds
    known = f"expected codes of a finding: {', '.join(sorted(CODES))}"
    given: Any = [allow] if isinstance(allow, str) else allow
    if not isinstance(given, list | tuple | AbstractSet):
        raise SampleError(f"allow is {describe_kind(allow)}, {known}")
    codes: list[Any] = list(cast("Collection[Any]", given))
    unknown = [code for code in codes if not isinstance(code, str) or code not in CODES]
    if unknown:
        raise SampleError(f"allow holds {shown(unknown)}, {known}")
    return frozenset(codes)


def _finding(index: int, fault: Fault) -> Finding:
    path = f"samples[{index}]{'.' if fault.slot else ''}{fault.slot}"
    advice = ""
    if fault.code == "missing_input":
        how = " (Sample.with_reference_logprobs)" if "'reference_logprobs'" in fault.text.partition(",")[0] else ""
        advice = f": give sample {index} that input{how} or choose another loss"
    return Finding(fault.code, path, f"{path} {fault.text}{advice}")


def _stats(lengths: list[int], num_trained: int) -> dict[str, Any]:
    num_tokens = sum(lengths)
    return {
        "num_samples": len(lengths),
        "num_tokens": num_tokens,
        "num_trained": num_trained,
        "trained_share": num_trained / num_tokens if num_tokens else 0.0,
        "lengths": {
            "min": min(lengths, default=0),
            "median": float(np.median(lengths)) if lengths else 0.0,
            "mean": num_tokens / len(lengths) if lengths else 0.0,
            "max": max(lengths, default=0),
        },
    }


def _batch_findings(stats: Mapping[str, Any], expected_share: tuple[float, float] | None) -> list[Finding]:
    if stats["num_samples"] == 0:
        return [
            Finding(
                "empty_batch", "samples", "samples is empty, expected at least one sample: look at what was skipped"
            )
        ]
    share = stats["trained_share"]
    if expected_share is None or expected_share[0] <= share <= expected_share[1]:
        return []
    low, high = expected_share
    text = f"samples train {share:.1%} of their tokens, expected {low:.1%} to {high:.1%}: look at the masks"
    return [Finding("trained_share", "samples", text)]
