"""What callers hand in as one row a sample, read or refused by name; needs numpy only."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from samplekit.errors import AlignmentError, LossInputError, SampleError
from samplekit.sample import Sample
from samplekit.sample.kinds import describe_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

FloatsArray: TypeAlias = npt.NDArray[np.floating[Any]]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
LogprobRows: TypeAlias = "Sequence[torch.Tensor | FloatsArray]"
"""One (T_i,) tensor or array of floats a sample, in nats."""

_REMEDY = {
    "weights": "build it with samplekit.build_sample",
    "logprobs": "pass the sampler's logprobs= to build_sample",
    "advantages": "pass advantages= to build_sample",
    "reference_logprobs": "pass reference_logprobs= to build_sample, or add them with Sample.with_reference_logprobs",
}


def as_rows(
    policy_logprobs: Sequence[Any], samples: Sequence[Sample], what: str = "policy_logprobs"
) -> list[FloatsArray]:
    """Give one float array (T_i,) a sample.

    Raises:
        AlignmentError: not one row a sample, or not one value a position; the message names the sample.
        SampleError: there is no sample, something else than one, or a row that holds no floats.
    """
    rows = entries_of(policy_logprobs, what)
    refuse_others(samples)
    if not len(samples):
        raise SampleError("samples is empty, expected at least one: skip the step")
    if len(rows) != len(samples):
        raise AlignmentError(
            f"{what} holds {len(rows)} rows, samples holds {len(samples)}: pass one row for each sample"
        )
    return [_row(row, sample, index, what) for index, (row, sample) in enumerate(zip(rows, samples, strict=True))]


def entries_of(values: object, name: str) -> Sequence[Any]:
    """Give the entries of a list, a tuple or an array.

    Raises:
        SampleError: the values have no order or no length, or are one entry.
    """
    found: Any = values
    ordered = hasattr(values, "__len__") and hasattr(values, "__getitem__") and getattr(found, "ndim", 1) != 0
    if not ordered or isinstance(found, Sample | Mapping | AbstractSet | str | bytes):
        raise SampleError(f"{name} is {describe_kind(values)}, expected a list: pass one entry for each sample")
    try:
        return list(found)
    except (RuntimeError, TypeError, ValueError) as error:
        raise SampleError(
            f"{name} is {describe_kind(values)} that cannot be listed ({error!s:.80}): pass a list"
        ) from error


def refuse_others(samples: Sequence[Sample]) -> None:
    """Refuse what is no list of Samples.

    Raises:
        SampleError: it names what was found; a mapping of the service becomes a Sample by ``Sample.from_wire``.
    """
    for index, sample in enumerate(entries_of(samples, "samples")):
        if not isinstance(sample, Sample):
            raise SampleError(
                f"samples[{index}] is {describe_kind(sample)}, expected a Sample: use Sample.from_wire for a mapping"
            )


def refuse_missing(sample: Sample, index: int, wanted: frozenset[str], reader: str, otherwise: str = "") -> None:
    """Refuse a sample that lacks an input.

    Args:
        sample: which sample.
        index: its place, for the error.
        wanted: the inputs that it must hold.
        reader: who reads them, for the error.
        otherwise: what else would do where reference_logprobs are missing, such as ``", or set beta=0"``.

    Raises:
        LossInputError: it names the sample, the first input that is missing, and who reads it.
    """
    missing = wanted - sample.loss_fn_inputs.keys()
    if missing:
        name = min(missing)
        remedy = _REMEDY.get(name, _REMEDY["weights"]) + (otherwise if name == "reference_logprobs" else "")
        raise LossInputError(
            f"samples[{index}].loss_fn_inputs holds no {name!r}, which {reader} reads, found "
            f"{sorted(sample.loss_fn_inputs)}: {remedy}"
        )


def refuse_not_finite(row: FloatsArray, trained: BoolArray, label: str) -> None:
    """Refuse a log-probability that is NaN or infinite where its sample trains.

    Raises:
        SampleError: it names the row, by ``label``, and the position.
    """
    bad = ~np.isfinite(row) & trained
    if bad.any():
        place = int(bad.argmax())
        raise SampleError(
            f"{label} is {row[place]} at position {place}, which trains, expected a finite log-probability in nats: "
            "look for broken weights of the model or a token that it masks, or give the position weight 0"
        )


def _row(values: Any, sample: Sample, index: int, what: str) -> FloatsArray:  # noqa: ANN401 - a tensor or an array
    if isinstance(values, np.ma.MaskedArray):  # what it hides would come back as numbers
        raise SampleError(f"{what}[{index}] is a masked array, expected plain numbers: fill it in")
    try:
        row = _read(values)
    except (RuntimeError, TypeError, ValueError) as error:
        raise SampleError(
            f"{what}[{index}] is {describe_kind(values)} that cannot be read ({error!s:.80}), expected floats: pass "
            "a dense tensor or array"
        ) from error
    if row.shape != (sample.length,):
        raise AlignmentError(
            f"{what}[{index}] has shape {row.shape}, samples[{index}] has {sample.length} positions, expected shape "
            f"({sample.length},): pass one value for every target token, without padding"
        )
    if row.dtype.kind != "f":
        wanted = "d loss / d logprob" if what == "gradients" else "log-probabilities in nats"
        raise SampleError(f"{what}[{index}] holds {row.dtype}, expected floats: pass {wanted}")
    return row.astype(np.float64) if row.dtype.itemsize > 8 else row  # torch knows no longdouble


def _read(values: Any) -> npt.NDArray[Any]:  # noqa: ANN401 - a tensor or an array
    if hasattr(values, "detach"):
        narrow = values.dtype.is_floating_point and values.dtype.itemsize < 4  # numpy knows no bfloat16
        values = (values.float() if narrow else values).numpy(force=True)
    return np.asarray(values)
