"""A Sample or a wire mapping -> the arrays the rules read, with every fault met on the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from samplekit.errors import AlignmentError, SampleError
from samplekit.sample import KNOWN_DTYPES, Sample, TensorData
from samplekit.sample.arrays import AnyArray, IntArray, floats_array, ids_array
from samplekit.sample.digits import shared_buffer
from samplekit.sample.kinds import is_mapping, is_sequence, shown
from samplekit.sample.runs import Runs

BoolArray: TypeAlias = npt.NDArray[np.bool_]


class Fault(NamedTuple):
    """A fault before it has a place in a batch: its code, its slot in the sample, and the sentence after the slot."""

    code: str
    slot: str
    text: str


@dataclass
class Arrays:
    """The arrays of one sample as the rules read them.

    Attributes:
        tokens: int64 (T,), or None where they cannot be read.
        inputs: every loss input that could be read and is as long as the tokens.
        length: T, as far as it is known.
        names: every input that is there, readable or not.
        faults: what was wrong on the way.
        info: where the sample came from, as far as it is told.
        runs: what `inputs` holds run by run, of those that a Sample keeps that way.
        has_inputs: False where nothing tells inputs, so that none can be said to be missing.
        sequence: int64 (T + 1,), where the targets are known to be the next tokens because they share this buffer.
    """

    tokens: IntArray | None
    inputs: Mapping[str, AnyArray]
    length: int
    names: frozenset[str]
    faults: list[Fault] = field(default_factory=list[Fault])
    sequence: IntArray | None = None
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    runs: Mapping[str, Runs] = field(default_factory=dict[str, Runs])
    has_inputs: bool = True

    @property
    def weight_runs(self) -> Runs | None:
        """The weights, or the mask, as runs where they are kept that way."""
        return self.runs.get("weights") or self.runs.get("mask")

    @cached_property
    def weights(self) -> AnyArray | None:
        """How each position counts: ``weights``, else ``mask``, else None."""
        weights = self.inputs.get("weights")
        return self.inputs.get("mask") if weights is None else weights

    @cached_property
    def trained(self) -> BoolArray:
        """Which positions train, bool (T,): those whose weight is not 0; all of them where there are no weights."""
        runs = self.weight_runs
        if runs is not None:
            trained: BoolArray = (runs.values != 0).repeat(runs.counts)
            return trained
        weights = self.weights
        return np.ones(self.length, dtype=np.bool_) if weights is None else weights != 0

    @property
    def num_trained(self) -> int:
        """How many positions train."""
        runs = self.weight_runs
        if runs is not None:
            return sum(count for value, count in zip(runs.values.tolist(), runs.counts.tolist(), strict=True) if value)
        return int(np.count_nonzero(self.trained))


def read(sample: object) -> Arrays:
    """Give the arrays of a Sample, of a mapping in the service's spelling, or of a model of its SDK."""
    if isinstance(sample, Sample):
        return _read_sample(sample)
    mapping = _mapping_of(sample)
    if mapping is not None:
        return _read_mapping(mapping)
    fault = Fault(
        "invalid_field", "", f"is {shown(sample)}, expected a Sample or a mapping: build it with build_sample"
    )
    return Arrays(None, {}, 0, frozenset(), [fault], has_inputs=False)


def _read_sample(sample: Sample) -> Arrays:
    """Take the arrays out: the constructor has refused what `_read_mapping` looks for."""
    tensors, tokens = sample.loss_fn_inputs, sample.model_input.tokens
    targets = tensors.get("target_tokens")
    return Arrays(
        tokens,
        _Data(tensors),
        len(tokens),
        frozenset(tensors),
        sequence=None if targets is None else shared_buffer(tokens, targets.data),
        info=sample.info,
        runs={name: runs for name, tensor in tensors.items() if (runs := tensor.runs) is not None},
    )


class _Data(Mapping[str, AnyArray]):
    """The data of tensors by name; what is kept as runs becomes an array only when it is looked at."""

    def __init__(self, tensors: Mapping[str, TensorData]) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> AnyArray:
        return self._tensors[name].data

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _read_mapping(mapping: Mapping[str, Any]) -> Arrays:
    faults = list(_unknown_keys(mapping, "", ("model_input", "loss_fn_inputs", "routed_experts_key", "info")))
    key, info = mapping.get("routed_experts_key"), mapping.get("info")
    if key is not None and not isinstance(key, str):
        faults.append(Fault("invalid_field", "routed_experts_key", f"is {shown(key)}, expected text"))
    if info is not None and not is_mapping(info):
        faults.append(Fault("invalid_field", "info", f"is {shown(info)}, expected an object"))
    tokens, length = _read_tokens(mapping.get("model_input"), faults)
    given = mapping.get("loss_fn_inputs")
    if not is_mapping(given):
        text = f"is {shown(given)}, expected an object of tensors by name"
        faults.append(Fault("invalid_field", "loss_fn_inputs", text))
        return Arrays(tokens, {}, length, frozenset(), faults, has_inputs=False)
    inputs = _read_inputs(given, length, faults)
    told: Mapping[str, Any] = info if is_mapping(info) else {}
    return Arrays(tokens, inputs, length, frozenset(map(str, given)), faults, info=told)


def _read_inputs(given: Mapping[str, Any], length: int, faults: list[Fault]) -> dict[str, AnyArray]:
    """Read every tensor; those of another length than the tokens are left out of what the rules compare."""
    inputs: dict[str, AnyArray] = {}
    for name, tensor in given.items():
        values = _read_tensor(name, tensor, faults)
        if values is not None and length and len(values) != length:
            text = f"holds {len(values)} values, model_input holds {length} tokens: trim every array alike"
            faults.append(Fault("length_mismatch", f"loss_fn_inputs[{name!r}]", text))
        elif values is not None:
            inputs[name] = values
    if "weights" in given and "mask" in given:
        faults.append(Fault("weights_and_mask", "loss_fn_inputs", "holds both 'weights' and 'mask': keep one"))
    return inputs


def _read_tokens(model_input: object, faults: list[Fault]) -> tuple[IntArray | None, int]:
    """Read every chunk; the length is known even where an id is not."""
    outer = _mapping_of(model_input)
    if outer is None:
        text = f"is {shown(model_input)}, expected an object with chunks"
        faults.append(Fault("invalid_field", "model_input", text))
        return None, 0
    faults += _unknown_keys(outer, "model_input", ("chunks",))
    chunks = outer.get("chunks")
    if not is_sequence(chunks):
        faults.append(Fault("invalid_field", "model_input.chunks", f"is {shown(chunks)}, expected a list of chunks"))
        return None, 0
    if not chunks:
        faults.append(Fault("empty", "model_input.chunks", "is empty, expected at least one chunk: drop the sample"))
        return None, 0
    parts: list[IntArray] = []
    length = 0
    for index, chunk in enumerate(chunks):
        ids = _chunk_ids(chunk, f"model_input.chunks[{index}]", faults)
        length += _length(ids)
        parts.extend(_convert(f"model_input.chunks[{index}].encoded_text.tokens", ids, "int64", faults))
    return (np.concatenate(parts) if len(parts) == len(chunks) else None), length


def _length(values: Any) -> int:  # noqa: ANN401 - whatever stands there
    """Count values that may be no ids; 0 where there is nothing to count, as in an array of no dimension."""
    shape = getattr(values, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 0
    return len(values) if is_sequence(values) else 0


def _chunk_ids(chunk: object, slot: str, faults: list[Fault]) -> Any:  # noqa: ANN401 - whatever stands there
    outer = _mapping_of(chunk) or {}
    inner = _mapping_of(outer.get("encoded_text")) or {}
    faults += _unknown_keys(outer, slot, ("encoded_text",))
    faults += _unknown_keys(inner, f"{slot}.encoded_text", ("tokens",))
    return inner.get("tokens")


def _read_tensor(name: object, given: object, faults: list[Fault]) -> AnyArray | None:
    slot = f"loss_fn_inputs[{name!r}]"
    tensor = _mapping_of(given)
    if not isinstance(name, str) or tensor is None or "data" not in tensor:
        faults.append(
            Fault("invalid_field", slot, f"is {shown(given)}, expected a name for an object of data and dtype")
        )
        return None
    faults += _unknown_keys(tensor, slot, ("data", "dtype"))
    dtype = tensor.get("dtype")
    if not isinstance(dtype, str) or dtype not in ("int64", "float32"):
        faults.append(Fault("dtype", slot, f"has dtype {shown(dtype)}, expected 'int64' or 'float32'"))
        return None
    allowed = KNOWN_DTYPES.get(name, (dtype,))
    if dtype not in allowed:
        faults.append(Fault("dtype", slot, f"has dtype {dtype}, expected {' or '.join(allowed)}: convert it"))
    return next(_convert(slot, tensor["data"], dtype, faults), None)


def _convert(slot: str, values: object, dtype: str, faults: list[Fault]) -> Iterator[Any]:
    """Yield the array, or note why there is none."""
    try:
        yield ids_array(values, slot) if dtype == "int64" else floats_array(values, slot)
    except SampleError as error:
        faults.append(Fault(_code_of(error, dtype), slot, error.message.removeprefix(slot).strip()))


def _code_of(error: SampleError, dtype: str) -> str:
    if isinstance(error, AlignmentError):
        return "empty" if " is empty" in error.message else "shape"
    if dtype == "int64":
        return "token_id"
    return "not_finite" if "expected a finite float32" in error.message else "not_a_number"


def _unknown_keys(mapping: Mapping[str, Any], slot: str, known: tuple[str, ...]) -> Iterator[Fault]:
    for key in mapping:
        if key not in known:
            where = f"{slot}.{key}" if slot else f"{key}"
            yield Fault("invalid_field", where, f"is unknown, expected only {' and '.join(known)}: take it out")


def _mapping_of(value: object) -> Mapping[str, Any] | None:
    """Read an object of the wire, also where a pydantic model stands for it."""
    if not is_mapping(value) and not isinstance(value, type) and hasattr(value, "model_dump"):
        dump: Any = value
        value = dump.model_dump(exclude_none=True)
    return value if is_mapping(value) else None
