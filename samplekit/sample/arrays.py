"""Any sequence a caller holds -> one exact, read-only, 1-D numpy array, or an error that names the value.

Lists, tuples, ranges, numpy arrays and torch tensors (any object with torch's detach/cpu surface; torch is never
imported) become int64 ids or float32 numbers. Values are never rounded to fit, parsed from text or wrapped.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from samplekit.errors import AlignmentError, SampleError

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float32]
AnyArray: TypeAlias = npt.NDArray[Any]

INT64 = np.dtype(np.int64)
FLOAT32 = np.dtype(np.float32)
_ID_LIMIT = 2**63


def ids_array(values: object, name: str) -> IntArray:
    """Convert to token ids: int64, 1-D, not empty, none negative, read-only and not shared with the caller.

    Args:
        values: a sequence of integers, shape (T,). Bools, floats (even whole ones), text and None are not ids.
        name: what the array is called in errors.

    Raises:
        AlignmentError: the array is empty or not 1-D.
        SampleError: a value is not a token id; the message names its index.
    """
    source = _plain(values, name)
    result = _ids_from_numpy(source, name) if isinstance(source, np.ndarray) else _ids_from_list(source, name)
    lowest = result.min()
    if lowest < 0:
        _refuse_negative(result, source, name)
    return freeze(result)


def floats_array(values: object, name: str, *, missing: float | None = None) -> FloatArray:
    """Convert to float32, 1-D, not empty, every value finite, read-only and not shared with the caller.

    Args:
        values: a sequence of numbers or bools, shape (T,).
        name: what the array is called in errors.
        missing: where given, None counts as NaN and non-finite values pass: the caller decides about them.

    Raises:
        AlignmentError: the array is empty or not 1-D.
        SampleError: a value is no number or not finite; the message names its index.
    """
    source = _plain(values, name)
    if isinstance(source, np.ndarray):
        result = _floats_from_numpy(source, name)
    else:
        result = _floats_from_list(source, name, missing)
    if missing is None:
        refuse_non_finite(result, source, name)
    return freeze(result)


def is_finite(values: FloatArray) -> bool:
    """Tell whether every value is finite; one dot product decides for all but huge numbers."""
    return bool(np.isfinite(values.dot(values))) or bool(np.isfinite(values).all())


def refuse_non_finite(values: FloatArray, source: AnyArray | Sequence[Any], name: str) -> None:
    """Raise SampleError for the first value that is NaN or infinite (also once rounded to float32)."""
    if is_finite(values):
        return
    index = int(np.flatnonzero(~np.isfinite(values))[0])
    raise SampleError(
        f"{name} holds {source[index]!s} at index {index}, expected a finite float32 number: drop the row or repair it"
    )


def freeze(values: Any) -> Any:  # noqa: ANN401 - returns the array it was given, of the same type
    """Make an array read-only and give it back."""
    values.flags.writeable = False
    return values


def _plain(values: object, name: str) -> AnyArray | Sequence[Any]:
    """Reduce what a caller holds to a numpy array or a plain sequence with at least one value."""
    if not isinstance(values, list | tuple | range | np.ndarray):
        values = _from_other(values, name)
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise AlignmentError(f"{name} has shape {values.shape}, expected one dimension: pass one sample at a time")
        if values.dtype == object:
            values = values.tolist()
    sequence: AnyArray | Sequence[Any] = values  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    if len(sequence) == 0:
        raise AlignmentError(f"{name} is empty, expected at least one value")
    return sequence


def _from_other(values: object, name: str) -> AnyArray | Sequence[Any]:
    """Read a tensor, an array of another library or another sequence."""
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        return _from_torch(values, name)
    if isinstance(values, str | bytes | bytearray | memoryview) or not hasattr(values, "__len__"):
        raise SampleError(f"{name} is {_kind(values)}, expected a 1-D sequence of numbers (list, numpy or torch)")
    if hasattr(values, "__array__"):
        return np.asarray(values)
    if isinstance(values, Sequence):
        return list(values)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    raise SampleError(f"{name} is {_kind(values)}, which has no order: pass a list, numpy array or torch tensor")


def _from_torch(tensor: Any, name: str) -> AnyArray:  # noqa: ANN401 - another library's tensor
    try:
        plain = tensor.detach().cpu()
        if "bfloat16" in str(getattr(plain, "dtype", "")):  # numpy has no bfloat16; every one is a float32
            plain = plain.float()
        return np.asarray(plain.numpy() if hasattr(plain, "numpy") else plain)
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise SampleError(
            f"{name} is a tensor that cannot be read ({error}): pass a dense tensor with values"
        ) from error


def _ids_from_numpy(source: AnyArray, name: str) -> IntArray:
    if source.dtype.kind not in "iu":
        _refuse_id(source.tolist(), name, f"numpy {source.dtype} values")
    if source.dtype == np.uint64 and source.max() >= _ID_LIMIT:
        _refuse_id(source.tolist(), name, "numpy uint64 values")
    return np.array(source, dtype=np.int64)


def _ids_from_list(source: Sequence[Any], name: str) -> IntArray:
    try:
        result: IntArray = np.frombuffer(array("q", source), dtype=np.int64)
    except (TypeError, OverflowError, RuntimeError, ValueError):
        _refuse_id(source, name, "values")
        raise  # a value that array cannot read but _refuse_id accepts does not exist; keep the cause if it ever does
    # True counts as 1 for array(): look at the few places where a bool could hide.
    for index in np.flatnonzero(result <= 1):
        if type(source[index]) is bool:
            _refuse_id(source, name, "values")
    return result


def _refuse_id(source: Sequence[Any], name: str, what: str) -> None:
    """Raise for the first value that is no token id."""
    for index, value in enumerate(source):
        _refuse_nested(value, name)
        is_id = hasattr(value, "__index__") and not isinstance(value, bool | np.bool_)
        if not is_id or not -_ID_LIMIT <= int(value) < _ID_LIMIT:
            raise SampleError(
                f"{name} holds {value!r} at index {index}, expected a token id (an int of 0 or more): "
                f"{what} of another kind are never converted to ids"
            )


def _refuse_negative(result: IntArray, source: AnyArray | Sequence[Any], name: str) -> None:
    index = int(np.flatnonzero(result < 0)[0])
    value = int(result[index])
    remedy = "check where the ids come from"
    if value == -100:
        remedy = "keep the true id there and use weights 0 instead of an ignore label"
    elif isinstance(source, np.ndarray) and source.dtype.itemsize < INT64.itemsize:
        remedy = f"the ids wrapped in {source.dtype}, which is too small for them; store ids as int32 or int64"
    raise SampleError(f"{name} holds {value} at index {index}, expected a token id of 0 or more: {remedy}")


def _floats_from_numpy(source: AnyArray, name: str) -> FloatArray:
    dtype = source.dtype
    if dtype.kind not in "fiub" and "float" not in dtype.name:
        raise SampleError(f"{name} holds {dtype} values, expected numbers: convert them to float32 first")
    with np.errstate(over="ignore"):  # a double beyond float32 becomes inf and is refused as such
        return np.array(source, dtype=np.float32)


def _floats_from_list(source: Sequence[Any], name: str, missing: float | None) -> FloatArray:
    try:
        return np.frombuffer(array("f", source), dtype=np.float32)
    except (TypeError, OverflowError, RuntimeError, ValueError):
        if missing is not None and any(value is None for value in source):
            return _floats_from_list([missing if value is None else value for value in source], name, missing)
        for index, value in enumerate(source):
            _refuse_nested(value, name)
            if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
                raise SampleError(f"{name} holds {value!r} at index {index}, expected a finite number") from None
        raise SampleError(f"{name} holds a number too large for float32") from None


def _refuse_nested(value: object, name: str) -> None:
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes):
        raise AlignmentError(f"{name} holds sequences, expected one dimension: pass one sample at a time")


def _kind(values: object) -> str:
    return f"{values!r}" if values is None or isinstance(values, bool | int | float) else f"a {type(values).__name__}"
