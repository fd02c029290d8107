"""Any sequence a caller holds -> one exact, read-only, 1-D numpy array, or an error that names the value.

Lists, tuples, ranges, numpy arrays and torch tensors (any object with torch's detach/cpu surface; torch is never
imported) become int64 ids or float32 numbers. Values are never rounded to whole ids, parsed from text or wrapped.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from samplekit.errors import AlignmentError, SampleError
from samplekit.sample.kinds import describe_kind, is_sequence, shown

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float32]
AnyArray: TypeAlias = npt.NDArray[Any]
Source: TypeAlias = AnyArray | Sequence[Any]
ArrayT = TypeVar("ArrayT", bound=AnyArray)

INT64 = np.dtype(np.int64)
_ID_LIMIT = 2**63
_UNREADABLE = (TypeError, ValueError, OverflowError, RuntimeError, NotImplementedError)
_PLAIN = (int, float, bool)


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
    if result.min() < 0:
        _refuse_negative(result, source, name)
    return freeze(result)


def floats_array(values: object, name: str, *, missing: float | None = None) -> FloatArray:
    """Convert to float32, 1-D, not empty, every value finite, read-only and not shared with the caller.

    Args:
        values: a sequence of numbers or bools, shape (T,).
        name: what the array is called in errors.
        missing: where given, None counts as this and non-finite values pass: the caller decides about them.

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
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.dot(values))) or bool(np.isfinite(values).all())


def refuse_non_finite(values: FloatArray, source: Source, name: str) -> None:
    """Raise SampleError for the first value that is NaN or infinite (also once rounded to float32)."""
    if is_finite(values):
        return
    index = int(np.flatnonzero(~np.isfinite(values))[0])
    found: object = source[index]
    raise SampleError(
        f"{name} holds {found!s} at index {index}, expected a finite float32 number: drop the row or repair it"
    )


def freeze(values: ArrayT) -> ArrayT:
    """Make an array read-only and give it back."""
    values.flags.writeable = False
    return values


def _plain(values: object, name: str) -> Source:
    """Reduce what a caller holds to a numpy array or a plain sequence with at least one value."""
    source = cast("Source", values) if type(values) in (list, tuple, np.ndarray) else _from_other(values, name)
    if isinstance(source, np.ndarray):
        if source.ndim != 1:
            advice = "pass one sample at a time" if source.ndim else "pass one value for every token"
            raise AlignmentError(f"{name} has shape {source.shape}, expected one dimension: {advice}")
        if source.dtype == object:
            source = cast("list[Any]", source.tolist())
    if len(source) == 0:
        raise AlignmentError(f"{name} is empty, expected at least one value: drop the row")
    first: object = source[0]
    if type(first) not in _PLAIN and not isinstance(source, np.ndarray):
        return _unwrapped(source, name)
    return source


def _from_other(values: object, name: str) -> Source:
    """Read a tensor, an array of another library or another sequence."""
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        return _from_torch(values, name)
    if hasattr(values, "__array__"):
        read = np.asarray(values)
        if np.ma.is_masked(values):  # what a masked array hides would come back as numbers
            hidden = cast("AnyArray", np.ma.getmask(cast("Any", values)))
            index = int(np.flatnonzero(hidden)[0])
            raise SampleError(f"{name} holds a masked value at index {index}, expected a number: fill it in")
        return read
    if is_sequence(values):
        return list(values)
    raise SampleError(
        f"{name} is {describe_kind(values)}, expected a 1-D sequence of numbers: "
        "pass a list, a numpy array or a torch tensor"
    )


def _from_torch(tensor: Any, name: str) -> AnyArray:  # noqa: ANN401 - another library's tensor
    try:
        plain = tensor.detach().cpu()
        dtype = str(getattr(plain, "dtype", ""))
        if "bfloat16" in dtype or "float8" in dtype:  # numpy has neither; every such value is a float32
            plain = plain.float()
        return np.asarray(plain.numpy() if hasattr(plain, "numpy") else plain)
    except _UNREADABLE as error:
        raise SampleError(
            f"{name} is a tensor that cannot be read ({error}): pass a dense tensor with values"
        ) from error


def _unwrapped(source: Sequence[Any], name: str) -> Sequence[Any]:
    """Take the numbers out of a list of 0-d arrays or tensors; refuse a list of longer ones."""
    first = source[0]
    _refuse_nested(first, 0, name)
    if isinstance(first, np.generic) or not hasattr(first, "item"):
        return source
    for index, value in enumerate(source):
        _refuse_nested(value, index, name)
    return [value.item() if hasattr(value, "item") else value for value in source]


def _ids_from_numpy(source: AnyArray, name: str) -> IntArray:
    wrapped = source.dtype == np.uint64 and source.max() >= _ID_LIMIT
    if wrapped or source.dtype.kind not in "iu":
        _refuse_id(source.tolist(), name, f"numpy {source.dtype}")
    return np.array(source, dtype=np.int64)


def _ids_from_list(source: Sequence[Any], name: str) -> IntArray:
    try:
        result: IntArray = _signed(source)
    except _UNREADABLE:
        _refuse_id(source, name, "values")
    # array() takes True for 1: look at the few places where something other than an int could hide.
    hiding: list[int] = np.flatnonzero(result <= 1).tolist() if result.min() <= 1 else []
    for index in hiding:
        if not isinstance(source[index], int | np.integer) or isinstance(source[index], bool):
            _refuse_id(source, name, "values")
    return result


def _signed(source: Sequence[Any]) -> IntArray:
    """Read ints as int64; OverflowError beyond it."""
    try:
        unsigned: array[int] = array("Q", source)  # read in a third of the time of "q"
    except OverflowError:  # an id below 0
        return np.frombuffer(array("q", source), dtype=np.int64)
    result: IntArray = np.frombuffer(unsigned, dtype=np.int64)
    if result.min() < 0:
        raise OverflowError("an id is 2**63 or more")
    return result


def _refuse_id(source: Sequence[Any], name: str, what: str) -> NoReturn:
    """Raise for the first value that is no token id."""
    for index, value in enumerate(source):
        _refuse_nested(value, index, name)
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise SampleError(
                f"{name} holds {shown(value)} at index {index}, expected a token id (an int of 0 or more): "
                "convert it where it is made, for values of another kind are never turned into ids"
            )
        if not -_ID_LIMIT <= value < _ID_LIMIT:
            found = shown(int(cast("Any", value)))
            raise SampleError(
                f"{name} holds {found} at index {index}, expected a token id from 0 to 2**63 - 1: "
                "look for a negative id that wrapped in an unsigned dtype"
            )
    raise SampleError(f"{name} holds {what}, expected token ids (ints of 0 or more): pass the ids themselves")


def _refuse_negative(result: IntArray, source: Source, name: str) -> NoReturn:
    index = int(np.flatnonzero(result < 0)[0])
    value = int(result[index])
    remedy = "look for an ignore label, or for ids that wrapped in a small dtype"
    if value == -100:
        remedy = "keep the true id there and use weights 0 instead of an ignore label"
    elif isinstance(source, np.ndarray) and source.dtype.itemsize < INT64.itemsize:
        remedy = f"the ids wrapped in {source.dtype}, which is too small for them; store ids as int32 or int64"
    raise SampleError(f"{name} holds {value} at index {index}, expected a token id of 0 or more: {remedy}")


def _floats_from_numpy(source: AnyArray, name: str) -> FloatArray:
    dtype = source.dtype
    if dtype.kind not in "fiub" and "float" not in dtype.name:
        _refuse_number(source.tolist(), name, f"numpy {dtype}")
    with np.errstate(over="ignore"):  # a double beyond float32 becomes inf and is refused as such
        return np.array(source, dtype=np.float32)


def _floats_from_list(source: Sequence[Any], name: str, missing: float | None) -> FloatArray:
    small = _small_ints(source)
    if small is not None:
        return small
    try:
        return np.frombuffer(array("f", source), dtype=np.float32)
    except _UNREADABLE:
        if missing is not None and any(value is None for value in source):
            return _floats_from_list([missing if value is None else value for value in source], name, missing)
        _refuse_number(source, name, "values")


def _small_ints(source: Sequence[Any]) -> FloatArray | None:
    """Read ints of 0 to 255 and bools, which most masks are, six times as fast; None where there is anything else."""
    try:
        return np.frombuffer(bytes(source), dtype=np.uint8).astype(np.float32)
    except _UNREADABLE:
        return None


def _refuse_number(source: Sequence[Any], name: str, what: str) -> NoReturn:
    """Raise for the first value that is no number."""
    for index, value in enumerate(source):
        _refuse_nested(value, index, name)
        if isinstance(value, str | bytes | complex) or not hasattr(value, "__float__"):
            raise SampleError(
                f"{name} holds {shown(value)} at index {index}, expected a finite number: "
                "convert it where it is made, or drop the row"
            )
        try:
            float(value)
        except _UNREADABLE as error:
            raise SampleError(
                f"{name} holds a number that cannot be read ({error}) at index {index}, "
                "expected a finite float32 number: drop the row or repair it"
            ) from error
    raise SampleError(f"{name} holds {what}, expected finite numbers: convert them to float32 first")


def _refuse_nested(value: object, index: int, name: str) -> None:
    dimensions: int = getattr(value, "ndim", 0)
    if dimensions or is_sequence(value):
        raise AlignmentError(
            f"{name} holds {describe_kind(value)} at index {index}, expected one dimension: pass one sample at a time"
        )
