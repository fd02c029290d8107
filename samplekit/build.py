"""The one shift: full, unshifted arrays in, a sample whose arrays agree out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, cast

import numpy as np

from samplekit.errors import AlignmentError, SampleError
from samplekit.sample import KNOWN_DTYPES, Sample, TensorData, trusted_sample
from samplekit.sample.arrays import (
    AnyArray,
    ArrayT,
    FloatArray,
    IntArray,
    floats_array,
    freeze,
    ids_array,
    is_finite,
    refuse_non_finite,
)
from samplekit.sample.kinds import LOGPROB_LIMIT, describe_kind, is_mapping, is_sequence, shown

_IGNORE_LABEL = -100
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_KEYWORDS = ("advantages", "logprobs", "reference_logprobs")


def build_sample(
    tokens: object,
    loss_mask: object,
    *,
    advantages: object = None,
    logprobs: object = None,
    reference_logprobs: object = None,
    extra: Mapping[str, object] | None = None,
    routed_experts_key: str | None = None,
    max_length: int | None = None,
    truncation: Literal["right", "left"] = "right",
    info: Mapping[str, Any] | None = None,
) -> Sample:
    """Build a sample from full, unshifted arrays: value i of every array describes token i.

    The only code that shifts: the last token is not read, and the first value of every other array is dropped, for no
    position predicts token 0. Six tokens give five positions:

        >>> sample = build_sample([10, 11, 12, 13, 14, 15], [0, 0, 0, 1, 1, 1])
        >>> sample.model_input.tokens.tolist()
        [10, 11, 12, 13, 14]
        >>> sample.loss_fn_inputs["target_tokens"].data.tolist()
        [11, 12, 13, 14, 15]
        >>> sample.loss_fn_inputs["weights"].data.tolist()
        [0.0, 0.0, 1.0, 1.0, 1.0]

    Args:
        tokens: token ids, shape (N,), N of 2 or more.
        loss_mask: how much each token trains, shape (N,): bool, int or float. Token 0 never trains.
        advantages: shape (N,), or one number, which is put where loss_mask is not 0.
        logprobs: the sampler's log probability of each token in nats, shape (N,). Where loss_mask is 0, None, NaN and
            infinities are written as 0.0.
        reference_logprobs: the frozen policy's, as logprobs.
        extra: more arrays by name, each of shape (N,): integers of 0 or more become int64, other numbers float32.
        routed_experts_key: the service's key of the experts a rollout was routed through.
        max_length: the most tokens of the full sequence to keep (N, not the N - 1 positions).
        truncation: where a longer sequence is cut, in every array alike: ``"right"`` keeps its start, ``"left"`` its
            end.
        info: where the sample came from; kept in files, never sent.

    Returns:
        A sample of N - 1 positions with ``target_tokens`` and ``weights``, and the other arrays that were given.

    Raises:
        AlignmentError: arrays disagree about their length, or are empty or not 1-D.
        SampleError: a value cannot be used, or nothing would train; the message names the field and the index.
    """
    ids = ids_array(tokens, "tokens")
    if len(ids) < 2:
        raise AlignmentError("tokens holds 1 token, expected at least 2: a sample needs one to read and one to predict")
    mask = _aligned(floats_array(loss_mask, "loss_mask"), len(ids), "loss_mask")
    refuse_labels(mask)
    arrays: dict[str, AnyArray] = {"weights": mask}
    if advantages is not None:
        arrays["advantages"] = _aligned(_advantages(advantages, mask), len(ids), "advantages")
    for name, values in (("logprobs", logprobs), ("reference_logprobs", reference_logprobs)):
        if values is not None:
            arrays[name] = _logprobs(values, mask, name)
    for name, values in (extra or {}).items():
        arrays[name] = _aligned(_extra(name, values), len(ids), f"extra[{name!r}]")
    kept = _kept(len(ids), max_length, truncation)
    sequence = _cut(ids, kept)
    shifted = {"target_tokens": sequence[1:], **{name: _cut(values, kept)[1:] for name, values in arrays.items()}}
    _refuse_untrained(cast("FloatArray", shifted["weights"]), mask, max_length)
    return trusted_sample(sequence[:-1], shifted, _key(routed_experts_key), _info(info))


def shift_rows(values: ArrayT, widths: IntArray, *, targets: bool) -> ArrayT:
    """Shift rows that lie end to end: what their positions read, or what they are to predict.

    A row of W values has W - 1 positions. Position i reads value i, so inputs lose each row's last value; it predicts
    value i + 1, so targets lose each row's first.

    Args:
        values: rows end to end, shape (N,).
        widths: how many values each row has, int64 (B,), 1 or more, N in all.
        targets: which of the two to give.

    Returns:
        Rows end to end, shape (N - B,), a copy.
    """
    kept = slice(1, None) if targets else slice(0, -1)
    if len(widths) and widths.min() == widths.max():
        return cast("ArrayT", values.reshape(len(widths), -1)[:, kept].reshape(-1))
    ends = np.cumsum(widths)
    return cast("ArrayT", np.delete(values, ends - widths if targets else ends - 1))


def _kept(length: int, max_length: int | None, truncation: str) -> slice:
    """Say which tokens stay: the one slice that every array is cut by."""
    if truncation not in ("right", "left"):
        raise SampleError(f"truncation is {shown(truncation)}, expected 'right' or 'left': say which end is cut")
    if max_length is None:
        return slice(0, length)
    if isinstance(max_length, bool) or not isinstance(max_length, int | np.integer) or max_length < 2:
        raise SampleError(
            f"max_length is {shown(max_length)}, expected a whole number of 2 or more: count full sequences"
        )
    return slice(0, int(max_length)) if truncation == "right" else slice(max(0, length - int(max_length)), length)


def _cut(values: ArrayT, kept: slice) -> ArrayT:
    """Keep what stays, and let go of the rest: a view would hold the whole array in memory."""
    part = cast("ArrayT", values[kept])
    return values if len(part) == len(values) else freeze(part.copy())


def _aligned(values: ArrayT, length: int, name: str) -> ArrayT:
    if len(values) == length:
        return values
    hint = "pass one value for every token"
    if len(values) == length - 1:
        hint = "it looks already shifted; pass the full-length array (value i describes token i), it is shifted here"
    raise AlignmentError(
        f"{name} has length {len(values)}, tokens has length {length}, expected the same length: {hint}"
    )


def refuse_labels(mask: FloatArray) -> None:
    """Refuse labels where a mask is expected: their -100, not being 0, would train.

    Raises:
        SampleError: it holds -100; the message names the index.
    """
    if mask.min() < 0 and (mask == _IGNORE_LABEL).any():
        index = int(np.flatnonzero(mask == _IGNORE_LABEL)[0])
        raise SampleError(
            f"loss_mask holds -100 at index {index}, which marks what labels ignore, expected a mask: "
            "pass labels != -100 as the mask"
        )


def _advantages(advantages: object, mask: FloatArray) -> FloatArray:
    """Read full-length advantages, or spread one number over what trains."""
    if getattr(advantages, "shape", None) == () and hasattr(advantages, "item"):
        advantages = cast("Any", advantages).item()  # a numpy scalar, or a reward that is still a 0-d tensor
    if not isinstance(advantages, int | float) or isinstance(advantages, bool):
        return floats_array(advantages, "advantages")
    if not abs(advantages) <= _FLOAT32_MAX:
        raise SampleError(
            f"advantages is {shown(advantages)}, expected a finite float32 number: check the group's rewards"
        )
    return freeze(np.where(mask != 0, np.float32(advantages), np.float32(0)))


def _logprobs(values: object, mask: FloatArray, name: str) -> FloatArray:
    """Repair what is missing where nothing trains; refuse it, and probabilities above 1, where something does."""
    given = _aligned(floats_array(values, name, missing=math.nan), len(mask), name)
    if given.max() <= LOGPROB_LIMIT and is_finite(given):  # NaN compares false: nothing to repair or refuse
        return given
    trained = mask != 0
    trained[0] = False  # no position predicts token 0
    repaired = given
    if not is_finite(given):
        repaired = freeze(np.where(trained | np.isfinite(given), given, np.float32(0)))
        refuse_non_finite(repaired, values if is_sequence(values) else repaired, name)
    positive = trained & (repaired > LOGPROB_LIMIT)
    if positive.any():
        index = int(np.flatnonzero(positive)[0])
        raise SampleError(
            f"{name} holds {given[index]} at index {index}, expected at most 0 at a trained position: "
            "pass natural-log probabilities, not probabilities or negated ones"
        )
    return repaired


def _extra(name: object, values: object) -> AnyArray:
    """Read one more array, in the dtype that holds it exactly."""
    if not isinstance(name, str) or not name:
        raise SampleError(f"extra holds an array called {shown(name)}, expected a name: use a str")
    if name in KNOWN_DTYPES:
        how = f"{name}=" if name in _KEYWORDS else "loss_mask" if name in ("weights", "mask") else "tokens"
        raise SampleError(f"extra[{name!r}] is an input that build_sample makes itself: pass it through {how}")
    if isinstance(values, TensorData):
        return values.data
    try:
        return ids_array(values, f"extra[{name!r}]")
    except SampleError:
        return floats_array(values, f"extra[{name!r}]")


def _key(routed_experts_key: object) -> str | None:
    if routed_experts_key is None or isinstance(routed_experts_key, str):
        return routed_experts_key
    raise SampleError(
        f"routed_experts_key is {describe_kind(routed_experts_key)}, expected text: pass the service's key"
    )


def _info(info: object) -> dict[str, Any]:
    if info is None or is_mapping(info):
        return dict(info or {})
    raise SampleError(f"info is {describe_kind(info)}, expected a mapping of names to values: pass a dict")


def _refuse_untrained(weights: FloatArray, mask: FloatArray, max_length: int | None) -> None:
    if weights.any():
        return
    found = "is 0 everywhere"
    if mask[1:].any():
        found = f"trains no token that is predicted once max_length={max_length} cut the sequence"
    elif mask.any():
        found = "trains token 0 only, which no position predicts"
    raise SampleError(f"loss_mask {found}, expected at least one trained token: drop the row or change the mask")
