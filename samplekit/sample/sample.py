"""What crosses the wire: the tokens a model reads and, for every position, what it should predict and how it counts.

Position i reads token i and predicts token i + 1, so a sequence of six tokens has five positions (T = 5). Samples are
made by `samplekit.build_sample`; these classes hold, compare, print and (de)serialise them. All are frozen and closed,
their arrays read-only.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import orjson
from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)  # fmt: skip

from samplekit.errors import AlignmentError, LossInputError, SampleError
from samplekit.sample.arrays import INT64, AnyArray, FloatArray, IntArray, freeze
from samplekit.sample.digits import Printed, print_tokens, shared_buffer
from samplekit.sample.parts import Chunk, EncodedText, Frozen, ModelInput, hold
from samplekit.sample.reference import reference_array
from samplekit.sample.tensor import Dtype, TensorData

KNOWN_DTYPES: Mapping[str, tuple[Dtype, ...]] = MappingProxyType({
    "target_tokens": ("int64",),
    "weights": ("int64", "float32"),
    "mask": ("int64", "float32"),
    "advantages": ("float32",),
    "logprobs": ("float32",),
    "reference_logprobs": ("float32",),
})  # fmt: skip
"""The inputs the service knows by name, with the dtypes it takes them in."""

_SPANS = frozenset({"weights", "mask", "advantages"})  # what is the same over spans of tokens, more often than not


class Sample(Frozen):
    """A training sample: what the model reads and, for every position, what it should predict and how it counts.

    Make one with `samplekit.build_sample`, which shifts and trims every array together.

    Attributes:
        model_input: the tokens read, T of them.
        loss_fn_inputs: arrays of T values by name; ``target_tokens[i]`` is the token that position i predicts.
        routed_experts_key: the service's key of the experts a rollout was routed through, if any.
        info: where the sample came from (source, rung, reward ...): kept in files, never sent, not part of equality.
    """

    model_input: ModelInput
    loss_fn_inputs: Mapping[str, TensorData]
    routed_experts_key: str | None = None
    info: dict[str, Any] = Field(default_factory=dict)

    if TYPE_CHECKING:

        def __init__(
            self,
            model_input: ModelInput | Mapping[str, Any],
            loss_fn_inputs: Mapping[str, Any],
            routed_experts_key: str | None = None,
            info: Mapping[str, Any] | None = None,
        ) -> None: ...

    @field_validator("info", mode="before")
    @classmethod
    def _fill_info(cls, info: Any) -> Any:  # noqa: ANN401 - pydantic hands in anything
        return {} if info is None else info

    @model_validator(mode="after")
    def _align(self) -> Self:
        inputs = dict(self.loss_fn_inputs)
        _refuse_misfits(self.model_input.length, inputs)
        model_input, inputs = _share_tokens(self.model_input, inputs)
        inputs.update({name: inputs[name].compact() for name in _SPANS & inputs.keys()})
        object.__setattr__(self, "model_input", model_input)
        object.__setattr__(self, "loss_fn_inputs", MappingProxyType(inputs))
        return self

    @field_serializer("loss_fn_inputs", mode="wrap")
    def _as_dict(self, inputs: Mapping[str, TensorData], handler: SerializerFunctionWrapHandler) -> Any:  # noqa: ANN401
        return handler(dict(inputs))

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        shown: dict[str, Any] = handler(self)
        absent = {"routed_experts_key": self.routed_experts_key is None, "info": not self.info}
        return {name: value for name, value in shown.items() if not absent.get(name, False)}

    @property
    def tokens(self) -> IntArray:
        """The full, unshifted sequence, int64 (T + 1,): what was read, then the last target.

        Raises:
            LossInputError: there are no target_tokens, so the last token is unknown.
        """
        if "target_tokens" not in self.loss_fn_inputs:
            raise LossInputError("loss_fn_inputs holds no 'target_tokens', so the sequence's last token is unknown")
        return freeze(np.append(self.model_input.tokens, self.loss_fn_inputs["target_tokens"].data[-1]))

    @property
    def loss_mask(self) -> FloatArray:
        """The full, unshifted loss mask, float32 (T + 1,); token 0 is 0.0, for no position predicts it."""
        return freeze(np.concatenate([[np.float32(0)], self.weights]))

    @property
    def weights(self) -> FloatArray:
        """How much each position counts, float32 (T,): ``weights``, else ``mask``, else 1 everywhere."""
        given = self.loss_fn_inputs.get("weights") or self.loss_fn_inputs.get("mask")
        if given is None:
            return freeze(np.ones(self.length, dtype=np.float32))
        return given.data if given.dtype == "float32" else freeze(given.data.astype(np.float32))

    @property
    def length(self) -> int:
        """How many positions there are (T): one fewer than the full sequence has tokens."""
        return self.model_input.length

    @property
    def num_trained(self) -> int:
        """How many positions train: those whose weight is not 0."""
        return int(np.count_nonzero(self.weights))

    def with_reference_logprobs(self, values: object) -> Sample:
        """Give the same sample with the frozen policy's logprobs, for DPO and GRPO's penalty.

        Args:
            values: nats, shape (T,), value i for target i, as `target_logprobs` and `TrainResult.logprobs` give them.
                Where the sample does not train, 0.0 is written.

        Raises:
            AlignmentError: not one value a position.
            SampleError: one that trains is no finite number, or above 0.001; the message names its index.
        """
        tensor = TensorData(reference_array(values, self.weights), "float32")
        inputs = {**self.loss_fn_inputs, "reference_logprobs": tensor}
        return self.model_copy(update={"loss_fn_inputs": inputs, "info": dict(self.info)})

    def to_wire(self) -> dict[str, Any]:
        """Give the sample as the service spells it: plain dicts, lists and numbers; no info."""
        return self.model_dump(mode="json", exclude={"info"})

    def to_json(self) -> bytes:
        """Give `to_wire` as compact JSON; every float32 is printed in its shortest digits and reads back exactly."""
        return b"".join(self.json_parts())

    def json_parts(self) -> list[Printed]:
        """Give `to_json` in parts, of which every second one is the numbers of a list and nothing else."""
        targets = self.loss_fn_inputs.get("target_tokens")
        chunks, target_numbers = print_tokens(
            [chunk.encoded_text.tokens for chunk in self.model_input.chunks], None if targets is None else targets.data
        )
        parts: list[Printed] = []
        opening = b'{"model_input":{"chunks":[{"encoded_text":{"tokens":['
        for numbers in chunks:
            parts += (opening, numbers)
            opening = b']}},{"encoded_text":{"tokens":['
        opening = b']}}]},"loss_fn_inputs":{'
        for name, tensor in self.loss_fn_inputs.items():
            numbers = target_numbers if tensor is targets else tensor.print_numbers()
            parts += (opening + orjson.dumps(name) + b':{"data":[', numbers)
            opening = b'],"dtype":"int64"},' if tensor.dtype == "int64" else b'],"dtype":"float32"},'
        key = self.routed_experts_key
        closing = b"}}" if key is None else b'},"routed_experts_key":%s}' % orjson.dumps(key)
        parts.append(opening.removesuffix(b",") + closing)
        return parts

    @classmethod
    def from_wire(cls, mapping: Mapping[str, Any]) -> Sample:
        """Read what `to_wire` gives (and, from files, ``info`` beside it).

        Raises:
            SampleError: the mapping is no sample; the message names the field at fault. AlignmentError where arrays
                disagree about their length, LossInputError where a known input has another dtype.
        """
        try:
            return cls.model_validate(mapping)
        except ValidationError as error:
            raise _kind_of(error)(describe(error)) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sample) and (
            self.model_input == other.model_input
            and dict(self.loss_fn_inputs) == dict(other.loss_fn_inputs)
            and self.routed_experts_key == other.routed_experts_key
        )

    def __hash__(self) -> int:
        return hash((self.model_input, *sorted(self.loss_fn_inputs)))

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self.model_copy(update={"info": copy.deepcopy(self.info, memo)})

    def __copy__(self) -> Self:
        return self.model_copy(update={"info": dict(self.info)})

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy with some fields replaced and everything checked again; arrays are shared, for none can change."""
        kept: dict[str, Any] = {
            "model_input": self.model_input,
            "loss_fn_inputs": self.loss_fn_inputs,
            "routed_experts_key": self.routed_experts_key,
            "info": copy.deepcopy(self.info) if deep else self.info,
        }
        return type(self)(**{**kept, **(update or {})})

    def __reduce__(self) -> tuple[Any, ...]:
        return Sample, (self.model_input, dict(self.loss_fn_inputs), self.routed_experts_key, self.info)

    def __repr__(self) -> str:
        names = ", ".join(self.loss_fn_inputs)
        return f"Sample({self.length} positions, {self.num_trained} trained: {names})"


def trusted_sample(
    tokens: IntArray, inputs: Mapping[str, AnyArray], routed_experts_key: str | None, info: dict[str, Any]
) -> Sample:
    """Hold arrays that are known to be right, unchecked.

    Args:
        tokens: what is read, int64 (T,), read-only.
        inputs: every other array, int64 or float32 (T,), read-only; where ``target_tokens`` and tokens are views of one
            buffer, they stay so.
        routed_experts_key: as in Sample.
        info: as in Sample.
    """
    chunk = hold(Chunk, encoded_text=hold(EncodedText, tokens=tokens))
    tensors: dict[str, TensorData] = {}
    for name, values in inputs.items():
        dtype: Dtype = "int64" if values.dtype == INT64 else "float32"
        tensor = hold(TensorData, data=values, dtype=dtype)
        tensors[name] = tensor.compact() if name in _SPANS else tensor
    return hold(
        Sample,
        model_input=hold(ModelInput, chunks=(chunk,)),
        loss_fn_inputs=MappingProxyType(tensors),
        routed_experts_key=routed_experts_key,
        info=info,
    )


def describe(error: ValidationError) -> str:
    """Say in one sentence what pydantic found first, and where."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ""
    for part in first["loc"]:
        where += f"[{part!r}]" if isinstance(part, int) or where == "loss_fn_inputs" else f"{'.' * bool(where)}{part}"
    what = str(first["msg"]).removeprefix("Value error, ")
    joint = " " if what.startswith(("data ", "tokens ")) else ": " if where else ""
    more = error.error_count() - 1
    return f"{where}{joint}{what}" + (f" (and {more} more fault{'s' * (more > 1)})" if more else "")


def _kind_of(error: ValidationError) -> type[SampleError]:
    """Tell which of our errors pydantic wrapped first, if any."""
    cause = error.errors(include_url=False, include_input=False)[0].get("ctx", {}).get("error")
    return type(cause) if isinstance(cause, SampleError) else SampleError


def _refuse_misfits(length: int, inputs: Mapping[str, TensorData]) -> None:
    """Refuse inputs that cannot describe `length` positions together."""
    if "weights" in inputs and "mask" in inputs:
        raise SampleError("loss_fn_inputs holds both 'weights' and 'mask', which exclude each other: keep one")
    for name, tensor in inputs.items():
        if tensor.length != length:
            raise AlignmentError(
                f"loss_fn_inputs[{name!r}] holds {tensor.length} values, model_input holds {length} tokens: "
                "build samples with build_sample, which trims every array together"
            )
        allowed = KNOWN_DTYPES.get(name, (tensor.dtype,))
        if tensor.dtype not in allowed:
            raise LossInputError(
                f"loss_fn_inputs[{name!r}] has dtype {tensor.dtype}, expected {' or '.join(allowed)}: "
                "make it with build_sample, which sets it"
            )


def _share_tokens(model_input: ModelInput, inputs: dict[str, TensorData]) -> tuple[ModelInput, dict[str, TensorData]]:
    """Keep tokens and targets once where the targets are the next tokens, as they should be."""
    targets = inputs.get("target_tokens")
    if targets is None or len(model_input.chunks) != 1:
        return model_input, inputs
    tokens = model_input.tokens
    sequence = freeze(np.append(tokens, targets.data[-1]))
    if shared_buffer(tokens, targets.data) is not None or not np.array_equal(sequence[1:], targets.data):
        return model_input, inputs
    shared = trusted_sample(sequence[:-1], {"target_tokens": sequence[1:]}, None, {})
    return shared.model_input, {**inputs, "target_tokens": shared.loss_fn_inputs["target_tokens"]}
