"""Request bodies as bytes: compact JSON, no NaN, nothing null.

An operation's body is kept in pieces (one a sample), so that a large one is never joined in memory. What is measured
and uploaded leaves out the flags ``forward_only`` and ``return_loss_fn_outputs``, as the protocol asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import orjson

from samplekit.errors import AlignmentError, SampleError
from samplekit.sample import ModelInput, Sample, TensorData
from samplekit.sample.arrays import floats_array
from samplekit.sample.kinds import describe_kind, is_mapping, is_number, is_sequence, is_whole_number
from samplekit.wire.names import GRADIENT_DTYPE, INLINE_LIMIT_BYTES, PAYLOAD_LIMIT_BYTES, STAND_IN_LENGTH

if TYPE_CHECKING:
    from samplekit.losses import Loss
    from samplekit.sample.arrays import FloatArray

# What a gradient step reads of a sample; the gradient itself says how each position counts.
CUSTOM_INPUTS = frozenset({"target_tokens", "weights", "mask"})
Pieces = tuple[bytes, ...]


@dataclass(frozen=True)
class OperationBody:
    """The body of an operation, ready to be sent inline or uploaded.

    Attributes:
        members: the JSON object without its closing brace and without flags, in pieces.
        flags: members that never go into an upload.
        head: gives the members of the stand-in that accompanies an upload; None where they are the same.
        sample_sizes: bytes of every sample, of a body that holds samples, with what goes beside it.
    """

    members: Pieces
    flags: Mapping[str, bool] = field(default_factory=dict[str, bool])
    head: Callable[[], Pieces] | None = None
    sample_sizes: tuple[int, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Size of what would be uploaded, bytes of JSON."""
        return sum(map(len, self.members)) + 1

    @property
    def needs_upload(self) -> bool:
        """Whether the body is too large to be sent inline."""
        return self.num_bytes > INLINE_LIMIT_BYTES

    def inline(self) -> Pieces:
        """Give the whole request body in pieces."""
        return (*self.members, self._closing(self.flags))

    def payload(self) -> Pieces:
        """Give what is uploaded, in pieces.

        Raises:
            SampleError: it is over the service's limit of 4.995 GiB.
        """
        if self.num_bytes > PAYLOAD_LIMIT_BYTES:
            raise SampleError(
                f"the batch takes {self.num_bytes:,} bytes as JSON, expected at most {PAYLOAD_LIMIT_BYTES:,}: "
                "send fewer or shorter samples at a time"
            )
        return (*self.members, b"}")

    def stand_in(self, payload_id: str) -> Pieces:
        """Give the request body that stands in for an uploaded one: every number list cut short."""
        return (*(self.head() if self.head else self.members), self._closing({**self.flags, "payload_id": payload_id}))

    def _closing(self, extra: Mapping[str, Any]) -> bytes:
        if not extra:
            return b"}"
        opened = dumps(extra).removeprefix(b"{")
        return opened if self.members == (b"{",) else b"," + opened


def dumps(value: Any) -> bytes:  # noqa: ANN401 - any JSON
    """Give compact JSON of small values, members that are None left out.

    Args:
        value: mappings, lists, text, bools, and numbers of Python or numpy.

    Raises:
        SampleError: it holds what JSON or the service cannot say, such as NaN; the message names the place.
    """
    return orjson.dumps(_sendable(value, "body"))


def _sendable(value: Any, path: str) -> Any:  # noqa: ANN401 - any JSON
    if is_mapping(value):
        members = {_text(name, f"a name in {path}"): item for name, item in value.items() if item is not None}
        return {name: _sendable(item, f"{path}.{name}") for name, item in members.items()}
    if isinstance(value, np.ndarray):
        return _sendable(cast("Any", value).tolist(), path)
    if is_sequence(value):
        return [_sendable(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, bool | np.bool_):
        return bool(cast("Any", value))
    if is_whole_number(value) and -(2**63) <= value < 2**63:
        return int(value)
    if is_number(value) and not is_whole_number(value):
        return float(value)
    raise SampleError(f"{path} is {describe_kind(value)}, expected text, a bool or a finite number (whole ones int64)")


def _text(value: object, path: str) -> str:
    """Give text that UTF-8 can say.

    Raises:
        SampleError: it is no text, or holds half of a surrogate pair.
    """
    try:
        str(value).encode()
    except UnicodeEncodeError as error:
        raise SampleError(f"{path} holds half of a surrogate pair, expected text that UTF-8 can say") from error
    if not isinstance(value, str):
        raise SampleError(f"{path} is {describe_kind(value)}, expected text")
    return str(value)


def forward_backward_body(
    samples: Sequence[Sample], loss: Loss, *, forward_only: bool = False, return_outputs: bool = False
) -> OperationBody:
    """Build the body of forward-backward; inputs that the loss does not read are left out."""
    read = loss.required_inputs() | loss.optional_inputs()
    sent = [as_sent(sample, read) for sample in samples]
    flags = {"forward_only": forward_only, "return_loss_fn_outputs": return_outputs}
    opening = b'{"loss":%s,"samples":[' % dumps(loss.to_wire())
    parts = _samples_json(sent)
    return OperationBody(
        (opening, *parts, b"]"),
        {name: True for name, wanted in flags.items() if wanted},
        lambda: (opening, _heads_json(sent), b"]"),
        tuple(map(len, parts)),
    )


def custom_body(samples: Sequence[Sample], gradients: Sequence[object]) -> OperationBody:
    """Build the body of custom-forward-backward.

    Args:
        samples: the batch; only ``target_tokens`` and ``weights`` or ``mask`` are sent.
        gradients: for every sample d loss / d logprob, float32 (T_i,).

    Raises:
        AlignmentError: the gradients do not match the samples.
        SampleError: a gradient is not finite.
    """
    arrays = gradient_arrays(samples, gradients)
    sent = [as_sent(sample, CUSTOM_INPUTS) for sample in samples]

    def members(parts: Iterable[bytes], grads: Iterable[bytes]) -> Pieces:
        return (b'{"gradients":[', *grads, b'],"samples":[', *parts, b"]")

    parts, shown = _samples_json(sent), _joined(map(_gradient_json, arrays))
    return OperationBody(
        members(parts, shown),
        head=lambda: members([_heads_json(sent)], _joined(_gradient_json(grad[:STAND_IN_LENGTH]) for grad in arrays)),
        sample_sizes=tuple(len(sample) + len(grad) for sample, grad in zip(parts, shown, strict=True)),
    )


def gradient_arrays(samples: Sequence[Sample], gradients: Sequence[object]) -> list[FloatArray]:
    """Check gradients against their samples and give them as float32 (T_i,)."""
    if len(samples) != len(gradients):
        raise AlignmentError(
            f"gradients holds {len(gradients)} arrays, expected one for each of {len(samples)} samples"
        )
    arrays: list[FloatArray] = []
    for index, (sample, gradient) in enumerate(zip(samples, gradients, strict=True)):
        array = floats_array(gradient, f"gradients[{index}]")
        if len(array) != sample.length:
            raise AlignmentError(
                f"gradients[{index}] holds {len(array)} values, samples[{index}] has {sample.length} positions: "
                "give d loss / d logprob for every position, 0 where nothing trains"
            )
        arrays.append(array)
    return arrays


def sample_body(
    prompts: Sequence[ModelInput],
    *,
    num_samples: int,
    sampling_params: Mapping[str, Any],
    extras: Mapping[str, Any] | None = None,
) -> OperationBody:
    """Build the body of the service's ``sample`` operation, which draws completions; extras are further members."""
    rest = {"num_samples": num_samples, "sampling_params": sampling_params, **(extras or {})}
    closing = b"]," + dumps(rest).removeprefix(b"{").removesuffix(b"}")

    def members(inputs: Iterable[list[dict[str, Any]]]) -> Pieces:
        return (b'{"model_inputs":[', *_joined(map(_chunks_json, inputs)), closing)

    return OperationBody(members(map(_chunks, prompts)), head=lambda: members(map(_head_chunks, prompts)))


def small_body(members: Mapping[str, Any]) -> OperationBody:
    """Build a body of a few settings, such as those of optim-step; members that are None are left out."""
    return OperationBody((dumps(members).removesuffix(b"}"),))


def as_sent(sample: Sample, read: frozenset[str]) -> Sample:
    """Keep the inputs that are read; weights and mask go as float32."""
    kept = {name: _as_float(name, tensor) for name, tensor in sample.loss_fn_inputs.items() if name in read}
    unchanged = len(kept) == len(sample.loss_fn_inputs) and all(
        tensor is sample.loss_fn_inputs[name] for name, tensor in kept.items()
    )
    return sample if unchanged else Sample(sample.model_input, kept, sample.routed_experts_key)


def _as_float(name: str, tensor: TensorData) -> TensorData:
    if name in {"weights", "mask"} and tensor.dtype != "float32":
        return TensorData(tensor.data.astype(np.float32), "float32")
    return tensor


def _samples_json(samples: Sequence[Sample]) -> Pieces:
    """Print samples, one to a piece, with the commas between them."""
    commas = chain([b""], repeat(b","))
    return tuple(b"".join([comma, *sample.json_parts()]) for comma, sample in zip(commas, samples, strict=False))


def _heads_json(samples: Sequence[Sample]) -> bytes:
    """Give samples cut to the length of a stand-in, without the brackets around them."""
    heads: list[dict[str, Any]] = []
    for sample in samples:
        inputs = {
            name: {"data": tensor.head(STAND_IN_LENGTH), "dtype": tensor.dtype}
            for name, tensor in sample.loss_fn_inputs.items()
        }
        head: dict[str, Any] = {"model_input": {"chunks": _head_chunks(sample.model_input)}, "loss_fn_inputs": inputs}
        if sample.routed_experts_key is not None:
            head["routed_experts_key"] = sample.routed_experts_key
        heads.append(head)
    return orjson.dumps(heads, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]


def _head_chunks(model_input: ModelInput) -> list[dict[str, Any]]:
    """Cut a model input to a stand-in's budget of tokens, which its chunks share; later chunks are dropped."""
    budget, chunks = STAND_IN_LENGTH, list[dict[str, Any]]()
    for chunk in model_input.chunks:
        if budget <= 0:
            break
        tokens = chunk.encoded_text.tokens[:budget]
        chunks.append({"encoded_text": {"tokens": tokens}})
        budget -= len(tokens)
    return chunks


def _chunks(model_input: ModelInput) -> list[dict[str, Any]]:
    return [{"encoded_text": {"tokens": chunk.encoded_text.tokens}} for chunk in model_input.chunks]


def _chunks_json(chunks: list[dict[str, Any]]) -> bytes:
    return orjson.dumps({"chunks": chunks}, option=orjson.OPT_SERIALIZE_NUMPY)


def _gradient_json(gradient: FloatArray) -> bytes:
    return orjson.dumps({"data": gradient, "dtype": GRADIENT_DTYPE}, option=orjson.OPT_SERIALIZE_NUMPY)


def _joined(parts: Iterable[bytes]) -> Pieces:
    """Put a comma before every part but the first."""
    return tuple(part if index == 0 else b"," + part for index, part in enumerate(parts))
