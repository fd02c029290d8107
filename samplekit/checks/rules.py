"""The rules a sample's arrays are held to; each yields faults, and costs a few numpy calls where there are none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from samplekit.checks.read import Arrays, BoolArray, Fault
from samplekit.losses import DRO, GRPO, CrossEntropy, Loss
from samplekit.sample import KNOWN_DTYPES
from samplekit.sample.arrays import AnyArray
from samplekit.sample.kinds import LOGPROB_LIMIT

_KNOWN = frozenset(KNOWN_DTYPES)


def rule_faults(arrays: Arrays, loss: Loss | None, vocab_size: int | None, max_length: int | None) -> Iterator[Fault]:
    """Yield every fault of one sample's arrays.

    Args:
        arrays: what could be read of the sample.
        loss: the loss it is meant for, if known.
        vocab_size: ids must be below it, if known.
        max_length: the most tokens the full sequence (T + 1) may hold, if any.
    """
    if arrays.has_inputs:
        yield from _names(arrays, loss)
    if _is_plain(arrays):
        pass  # nothing to find among weights and advantages
    elif (weights := arrays.weights) is not None:
        yield from _weights(arrays, weights, loss)
        yield from _advantages(arrays)
    elif arrays.has_inputs and not arrays.names & {"weights", "mask"}:
        yield from _no_mask(arrays, loss)
    if arrays.sequence is None:
        yield from _targets(arrays)
    for name in ("logprobs", "reference_logprobs"):
        if name in arrays.names:
            yield from _logprobs(arrays, name)
    yield from _limits(arrays, vocab_size, max_length)


def _names(arrays: Arrays, loss: Loss | None) -> Iterator[Fault]:
    required = frozenset({"target_tokens"}) if loss is None else loss.required_inputs()
    for name in () if required <= arrays.names else sorted(required - arrays.names):
        text = f"has no {name!r}, which {_spoken(loss)} reads, found {sorted(arrays.names)}"
        yield Fault("missing_input", "loss_fn_inputs", text)
    for name in () if arrays.names <= _KNOWN else sorted(arrays.names - _KNOWN):
        yield Fault("unknown_input", _slot(name), "is not an input the service knows: it is left out of requests")
    if "reference_logprobs" in arrays.names and loss is not None and "reference_logprobs" not in required:
        text = f"changes nothing, for {_spoken(loss)} does not read it: leave it out"
        if isinstance(loss, GRPO):
            text = "only shows as loss/kl_ref/mean while beta is 0: set beta, or leave it out"
        yield Fault("unused_input", _slot("reference_logprobs"), text)


def _is_plain(arrays: Arrays) -> bool:
    """Tell by their runs whether weights are a mask of 0 and 1 that trains, and advantages stand in it only."""
    mask, advantages = arrays.weight_runs, arrays.runs.get("advantages")
    if mask is None or not {*(values := mask.values.tolist())} <= {0, 1} or 1 not in values:
        return False
    if advantages is None:
        return "advantages" not in arrays.names
    if advantages.counts.tolist() != mask.counts.tolist():
        return False
    return all(weight or not advantage for weight, advantage in zip(values, advantages.values.tolist(), strict=True))


def _reads_everywhere(loss: Loss | None) -> bool:
    """Tell whether a position changes a loss though its advantage is 0, so that only a mask keeps the prompt out.

    A penalty and the ratio of a sequence act there; a mean over positions counts it in its divisor.
    """
    if isinstance(loss, GRPO):
        return loss.beta > 0 or loss.ratio == "sequence" or loss.aggregation != "fixed_horizon"
    return isinstance(loss, DRO)


def _no_mask(arrays: Arrays, loss: Loss | None) -> Iterator[Fault]:
    """Tell that nothing keeps the prompt out: neither a mask nor, where that would do, an advantage of 0."""
    advantages = arrays.inputs.get("advantages")
    if _reads_everywhere(loss):
        reason = f"and {_spoken(loss)} as it is set reads every position: add weights"
    elif loss is not None and "advantages" in loss.required_inputs() and advantages is not None and advantages.all():
        reason = "and its advantages are nowhere 0, so every position trains, the prompt's too: add weights"
    else:
        return
    yield Fault("no_mask", "loss_fn_inputs", f"has neither weights nor mask, {reason}")


def _weights(arrays: Arrays, weights: AnyArray, loss: Loss | None) -> Iterator[Fault]:
    slot = _slot("weights" if "weights" in arrays.inputs else "mask")
    if not arrays.num_trained:
        yield Fault("nothing_trained", slot, "is 0 everywhere, expected at least one trained position: drop the sample")
    if np.count_nonzero(weights == 1) == arrays.num_trained:
        return  # a mask of 0 and 1, as most are
    counts_as_1 = loss is not None and not isinstance(loss, CrossEntropy)
    negative = weights < 0
    if negative.any():
        text = "and cross-entropy then pushes the token's probability down: is that meant?"
        if counts_as_1:
            text = (
                f"and {_spoken(loss)} counts every non-zero weight as 1, so the sign is lost: turn the advantages round"
            )
        yield Fault("negative_weight", slot, f"holds {_first(weights, negative)}, {text}")
    other = arrays.trained & (weights != 1) & ~negative
    if counts_as_1 and other.any():
        text = f"and {_spoken(loss)} counts every non-zero weight as 1: scale the advantages instead"
        yield Fault("fractional_weight", slot, f"holds {_first(weights, other)}, {text}")


def _advantages(arrays: Arrays) -> Iterator[Fault]:
    advantages = arrays.inputs.get("advantages")
    if advantages is None or len(advantages) != len(arrays.trained):
        return
    outside = (advantages != 0) > arrays.trained  # nonzero and not trained
    if np.count_nonzero(outside):
        text = f"holds {_first(advantages, outside)}, where the weight is 0 and the loss ignores it: is the mask right?"
        yield Fault("advantage_outside_mask", _slot("advantages"), text)


def _targets(arrays: Arrays) -> Iterator[Fault]:
    targets, tokens = arrays.inputs.get("target_tokens"), arrays.tokens
    if targets is None or tokens is None or len(targets) != len(tokens):
        return
    following = np.roll(tokens, -1)
    wrong = following != targets
    wrong[-1] = False  # what follows the last token is not in the input
    if len(arrays.trained) == len(wrong):
        wrong &= arrays.trained
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        text = (
            f"holds {_first(targets, wrong)}, the next input token is {following[index]}: "
            "build the sample with build_sample, or accept other targets with allow='target_not_next'"
        )
        yield Fault("target_not_next", _slot("target_tokens"), text)


def _logprobs(arrays: Arrays, name: str) -> Iterator[Fault]:
    values = arrays.inputs.get(name)
    if values is None or len(values) != len(arrays.trained):
        return
    suspect = (values >= 0) & arrays.trained
    if not np.count_nonzero(suspect):
        return  # as nearly always
    positive = suspect & (values > LOGPROB_LIMIT)
    if positive.any():
        text = f"holds {_first(values, positive)} where it trains, expected at most 0: pass natural logs"
        yield Fault("positive_logprob", _slot(name), text)
    zero = suspect & (values == 0)
    num_zeros = np.count_nonzero(zero)
    if num_zeros:
        text = (
            f"holds {_first(values, zero)}, a probability of exactly 1 at {num_zeros} of {arrays.num_trained} trained "
            f"positions ({num_zeros / arrays.num_trained:.1%}): is it padding? A few very sure tokens round to it: "
            "accept them with allow='zero_logprobs'"
        )
        yield Fault("zero_logprobs", _slot(name), text)


def _limits(arrays: Arrays, vocab_size: int | None, max_length: int | None) -> Iterator[Fault]:
    if max_length is not None and arrays.length + 1 > max_length:
        text = (
            f"and its last target hold {arrays.length + 1} tokens, the limit is {max_length}: "
            "cut with build_sample(max_length=...)"
        )
        yield Fault("too_long", "model_input", text)
    if vocab_size is None or (arrays.sequence is not None and arrays.sequence.max() < vocab_size):
        return
    for slot, ids in (("model_input", arrays.tokens), (_slot("target_tokens"), arrays.inputs.get("target_tokens"))):
        if ids is not None and ids.max() >= vocab_size:
            text = (
                f"holds token id {_first(ids, ids >= vocab_size)}, the vocabulary has {vocab_size} ids: "
                "build the sample with the model's own tokenizer"
            )
            yield Fault("vocabulary", slot, text)


def _slot(name: str) -> str:
    return f"loss_fn_inputs[{name!r}]"


def _spoken(loss: Loss | None) -> str:
    if loss is None:
        return "every loss"
    return f"{type(loss).__name__} ({loss.wire_type.removeprefix('LOSS_TYPE_').lower()})"


def _first(values: AnyArray, found: BoolArray) -> str:
    """Name the first value at fault, its index, and how many more there are."""
    places = np.flatnonzero(found)
    more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
    return f"{values[places[0]]} at index {places[0]}{more}"
