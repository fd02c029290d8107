"""A Sample or a wire mapping -> the arrays the rules read, with every fault met on the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np

from samplekit.errors import AlignmentError, SampleError
from samplekit.sample import KNOWN_DTYPES, Sample
from samplekit.sample.arrays import AnyArray, IntArray, floats_array, ids_array
from samplekit.sample.digits import shared_buffer

_SAMPLE_KEYS = {"model_input", "loss_fn_inputs", "routed_experts_key", "info"}


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
        shifted: True where the targets are known to be the next tokens, because they share one buffer.
    """

    tokens: IntArray | None
    inputs: dict[str, AnyArray]
    length: int
    names: frozenset[str]
    faults: list[Fault] = field(default_factory=list[Fault])
    shifted: bool = False


def read_sample(sample: Sample) -> Arrays:
    """Give the arrays of a Sample: its constructor has refused what `read_mapping` looks for."""
    inputs = {name: tensor.data for name, tensor in sample.loss_fn_inputs.items()}
    tokens = sample.model_input.tokens
    targets = cast("IntArray | None", inputs.get("target_tokens"))
    shifted = targets is not None and shared_buffer(tokens, targets) is not None
    return Arrays(tokens, inputs, len(tokens), frozenset(inputs), shifted=shifted)


def read_mapping(mapping: Mapping[str, Any]) -> Arrays:
    """Give the arrays of a sample in the service's spelling, and every fault in its fields."""
    faults = [Fault("invalid_field", key, "is unknown, expected only model_input, loss_fn_inputs and routed_experts_key")
              for key in mapping if key not in _SAMPLE_KEYS]  # fmt: skip
    tokens, length = _read_tokens(mapping.get("model_input"), faults)
    given = mapping.get("loss_fn_inputs")
    if not isinstance(given, Mapping):
        faults.append(
            Fault("invalid_field", "loss_fn_inputs", f"is {_short(given)}, expected an object of tensors by name")
        )
        given = {}
    inputs: dict[str, AnyArray] = {}
    for name, tensor in cast("Mapping[str, Any]", given).items():
        values = _read_tensor(name, tensor, faults)
        if values is not None and length and len(values) != length:
            faults.append(Fault("length_mismatch", f"loss_fn_inputs[{name!r}]",
                                f"holds {len(values)} values, model_input holds {length} tokens"))  # fmt: skip
        elif values is not None:
            inputs[name] = values
    if "weights" in given and "mask" in given:
        faults.append(Fault("weights_and_mask", "loss_fn_inputs", "holds both weights and mask: keep one"))
    return Arrays(tokens, inputs, length, frozenset(cast("Mapping[str, Any]", given)), faults)


def _read_tokens(model_input: object, faults: list[Fault]) -> tuple[IntArray | None, int]:
    """Read every chunk; the length is known even where an id is not."""
    chunks = cast("Mapping[str, Any]", model_input).get("chunks") if isinstance(model_input, Mapping) else None
    if not isinstance(chunks, Sequence) or isinstance(chunks, str | bytes):
        faults.append(Fault("invalid_field", "model_input.chunks", f"is {_short(chunks)}, expected a list of chunks"))
        return None, 0
    if not chunks:
        faults.append(Fault("empty", "model_input.chunks", "is empty, expected at least one chunk"))
        return None, 0
    parts: list[IntArray] = []
    length = 0
    for index, chunk in enumerate(cast("Sequence[Any]", chunks)):
        slot = f"model_input.chunks[{index}].encoded_text.tokens"
        text = chunk.get("encoded_text") if isinstance(chunk, Mapping) else None
        ids = text.get("tokens") if isinstance(text, Mapping) else None
        length += len(ids) if hasattr(ids, "__len__") else 0
        parts.extend(_convert(slot, ids, "int64", faults))
    return (np.concatenate(parts) if len(parts) == len(chunks) else None), length


def _read_tensor(name: str, tensor: object, faults: list[Fault]) -> AnyArray | None:
    slot = f"loss_fn_inputs[{name!r}]"
    if not isinstance(tensor, Mapping) or set(tensor) - {"data", "dtype"} or "data" not in tensor:
        faults.append(Fault("invalid_field", slot, f"is {_short(tensor)}, expected an object of data and dtype"))
        return None
    dtype = tensor.get("dtype")
    if dtype not in ("int64", "float32"):
        faults.append(Fault("dtype", slot, f"has dtype {dtype!r}, expected 'int64' or 'float32'"))
        return None
    allowed = KNOWN_DTYPES.get(name, (dtype,))
    if dtype not in allowed:
        faults.append(Fault("dtype", slot, f"has dtype {dtype}, expected {' or '.join(allowed)}"))
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


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
