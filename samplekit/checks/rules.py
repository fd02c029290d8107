"""The rules a sample's arrays are held to; each yields faults, and costs a few numpy calls where there are none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from samplekit.checks.read import Arrays, Fault
from samplekit.losses import DRO, GRPO, CrossEntropy, Loss
from samplekit.sample import KNOWN_DTYPES
from samplekit.sample.arrays import AnyArray

_LOGPROB_LIMIT = 0.001


def rule_faults(arrays: Arrays, loss: Loss | None, vocab_size: int | None, max_length: int | None) -> Iterator[Fault]:
    """Yield every fault of one sample's arrays.

    Args:
        arrays: what could be read of the sample.
        loss: the loss it is meant for, if known.
        vocab_size: ids must be below it, if known.
        max_length: the most tokens the full sequence (T + 1) may hold, if any.
    """
    weights = arrays.inputs.get("weights")
    if weights is None:
        weights = arrays.inputs.get("mask")
    yield from _names(arrays, loss)
    if weights is not None:
        yield from _weights(arrays, weights, loss)
    elif isinstance(loss, DRO) or (isinstance(loss, GRPO) and (loss.beta > 0 or loss.ratio == "sequence")):
        if not arrays.names & {"weights", "mask"}:
            yield Fault("no_mask", "loss_fn_inputs", f"has neither weights nor mask, and {type(loss).__name__} as it is set "
                        "acts on every position, also those of advantage 0: add weights")  # fmt: skip
    yield from _targets(arrays, weights)
    yield from _logprobs(arrays, weights)
    yield from _limits(arrays, vocab_size, max_length)


def _names(arrays: Arrays, loss: Loss | None) -> Iterator[Fault]:
    required = frozenset({"target_tokens"}) if loss is None else loss.required_inputs()
    if not required <= arrays.names:
        for name in sorted(required - arrays.names):
            why = f"which {_spoken(loss)} reads" if loss else "which every loss reads"
            yield Fault("missing_input", "loss_fn_inputs", f"has no {name!r}, {why}, found {sorted(arrays.names)}")
    if not arrays.names <= KNOWN_DTYPES.keys():
        for name in sorted(arrays.names - KNOWN_DTYPES.keys()):
            yield Fault(
                "unknown_input",
                f"loss_fn_inputs[{name!r}]",
                "is not an input the service knows: it is left out of requests",
            )
    if isinstance(loss, GRPO) and loss.beta == 0 and "reference_logprobs" in arrays.names:
        yield Fault("unused_input", "loss_fn_inputs['reference_logprobs']", "changes nothing while GRPO's beta is 0")


def _spoken(loss: Loss) -> str:
    return f"{type(loss).__name__} ({loss.wire_type.removeprefix('LOSS_TYPE_').lower()})"


def _weights(arrays: Arrays, weights: AnyArray, loss: Loss | None) -> Iterator[Fault]:
    slot = "loss_fn_inputs['weights']" if "weights" in arrays.inputs else "loss_fn_inputs['mask']"
    if not weights.any():
        yield Fault("nothing_trained", slot, "is 0 everywhere, expected at least one trained position: drop the sample")
    if weights.min() < 0:
        yield Fault(
            "negative_weight", slot, f"holds {_first(weights, weights < 0)}: it pushes the token's probability down"
        )
    if loss is not None and not isinstance(loss, CrossEntropy):
        fractional = (weights != 0) & (weights != 1)
        if fractional.any():
            yield Fault("fractional_weight", slot, f"holds {_first(weights, fractional)}, and {type(loss).__name__} counts every "
                        "non-zero weight as 1: scale the advantages instead")  # fmt: skip
    advantages = arrays.inputs.get("advantages")
    if advantages is not None and len(advantages) == len(weights):
        outside = (advantages != 0) & (weights == 0)
        if outside.any():
            yield Fault("advantage_outside_mask", "loss_fn_inputs['advantages']",
                        f"holds {_first(advantages, outside)}, where the weight is 0: the loss ignores it")  # fmt: skip


def _targets(arrays: Arrays, weights: AnyArray | None) -> Iterator[Fault]:
    targets, tokens = arrays.inputs.get("target_tokens"), arrays.tokens
    if arrays.shifted or targets is None or tokens is None or len(targets) != len(tokens):
        return
    sequence = np.append(tokens, targets[-1])
    wrong = sequence[len(sequence) - len(targets) :] != targets
    if weights is not None and len(weights) == len(wrong):
        wrong &= weights != 0
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        yield Fault("target_not_next", "loss_fn_inputs['target_tokens']",
                    f"holds {targets[index]} at index {index}, the next input token is {sequence[index + 1]}{_more(wrong)}: "
                    "targets are the input shifted by one; allow='target_not_next' accepts other targets")  # fmt: skip


def _logprobs(arrays: Arrays, weights: AnyArray | None) -> Iterator[Fault]:
    for name in ("logprobs", "reference_logprobs"):
        values = arrays.inputs.get(name)
        if values is None or values.max() < 0:
            continue
        trained: Any = True if weights is None or len(weights) != len(values) else weights != 0
        for code, found, advice in (
            (
                "positive_logprob",
                (values > _LOGPROB_LIMIT) & trained,
                "expected at most 0: pass natural-log probabilities",
            ),
            (
                "zero_logprob",
                (values == 0) & trained,
                "a probability of exactly 1: check that the values are not padding",
            ),
        ):
            if found.any():
                yield Fault(
                    code, f"loss_fn_inputs[{name!r}]", f"holds {_first(values, found)} where it trains, {advice}"
                )


def _limits(arrays: Arrays, vocab_size: int | None, max_length: int | None) -> Iterator[Fault]:
    if max_length is not None and arrays.length + 1 > max_length:
        yield Fault("too_long", "model_input", f"and its last target hold {arrays.length + 1} tokens, the limit is {max_length}: "
                    "cut with build_sample(max_length=...)")  # fmt: skip
    if vocab_size is None:
        return
    for slot, ids in (
        ("model_input", arrays.tokens),
        ("loss_fn_inputs['target_tokens']", arrays.inputs.get("target_tokens")),
    ):
        if ids is not None and ids.max() >= vocab_size:
            yield Fault("vocabulary", slot, f"holds token id {_first(ids, ids >= vocab_size)}, the vocabulary has {vocab_size} ids: "
                        "the sample was made with another tokenizer")  # fmt: skip


def _first(values: AnyArray, found: Any) -> str:  # noqa: ANN401 - a boolean array
    index = int(np.flatnonzero(found)[0])
    return f"{values[index]} at index {index}{_more(found)}"


def _more(found: Any) -> str:  # noqa: ANN401 - a boolean array
    more = int(np.count_nonzero(found)) - 1
    return f" (and {more} more)" if more else ""
