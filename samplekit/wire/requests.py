"""Request bodies as bytes: compact JSON, no NaN, nothing null.

An operation's body is kept in pieces, so that a large one is never joined in memory. What is measured
and uploaded leaves out the flags ``forward_only`` and ``return_loss_fn_outputs``, as the protocol asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import orjson

from samplekit.errors import AlignmentError, SampleError
from samplekit.sample import ModelInput, Sample, TensorData
from samplekit.sample.arrays import floats_array
from samplekit.sample.kinds import describe_kind, is_mapping, is_number, is_sequence, is_whole_number
from samplekit.wire.names import (
    GRADIENT_DTYPE,
    INLINE_LIMIT_BYTES,
    MAX_BODY_DEPTH,
    PAYLOAD_LIMIT_BYTES,
    STAND_IN_LENGTH,
)
from samplekit.wire.printing import Pieces, PrintedList, print_list, print_samples

if TYPE_CHECKING:
    from samplekit.losses import Loss
    from samplekit.sample.arrays import FloatArray

# What a gradient step reads of a sample; the gradient itself says how each position counts.
CUSTOM_INPUTS = frozenset({"target_tokens", "weights", "mask"})
_LONGEST_PATH = 60  # characters of a place that an error names


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
        SampleError: it holds what JSON or the service cannot say, such as NaN, or nests deeper than 32 lists or
            mappings, as one that holds itself does; the message names the place.
    """
    return orjson.dumps(_sendable(value, "body", MAX_BODY_DEPTH))


def _sendable(value: Any, path: str, levels: int) -> Any:  # noqa: ANN401 - any JSON
    if levels < 0:
        place = path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}..."
        raise SampleError(f"{place} nests deeper than {MAX_BODY_DEPTH} lists or mappings: keep it flatter, or as text")
    if is_mapping(value):
        members = {_text(name, f"a name in {path}"): item for name, item in value.items() if item is not None}
        return {name: _sendable(item, f"{path}.{name}", levels - 1) for name, item in members.items()}
    if isinstance(value, np.ndarray):
        return _sendable(cast("Any", value).tolist(), path, levels)
    if is_sequence(value):
        return [_sendable(item, f"{path}[{index}]", levels - 1) for index, item in enumerate(value)]
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
    printed, heads = print_samples(sent)
    return OperationBody(
        (opening, *printed.pieces, b"]"),
        {name: True for name, wanted in flags.items() if wanted},
        lambda: (opening, *heads, b"]"),
        printed.sizes,
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

    def members(samples: Pieces, gradients: Pieces) -> Pieces:
        return (b'{"gradients":[', *gradients, b'],"samples":[', *samples, b"]")

    (printed, heads), beside = print_samples(sent), _print_gradients(arrays)
    return OperationBody(
        members(printed.pieces, beside.pieces),
        head=lambda: members(heads, _print_gradients(grad[:STAND_IN_LENGTH] for grad in arrays).pieces),
        sample_sizes=tuple(map(sum, zip(printed.sizes, beside.sizes, strict=True))),
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

    def members(inputs: Iterable[ModelInput]) -> Pieces:
        return (b'{"model_inputs":[', *print_list([_input_json(model_input)] for model_input in inputs).pieces, closing)

    return OperationBody(members(prompts), head=lambda: members(prompt.head(STAND_IN_LENGTH) for prompt in prompts))


def small_body(members: Mapping[str, Any]) -> OperationBody:
    """Build a body of a few settings, such as those of optim-step; members that are None are left out."""
    return OperationBody((dumps(members).removesuffix(b"}"),))


def as_sent(sample: Sample, read: frozenset[str]) -> Sample:
    """Keep the inputs that are read; weights and mask go as float32."""
    kept = {name: tensor for name, tensor in sample.loss_fn_inputs.items() if name in read}
    whole = [name for name in ("weights", "mask") if name in kept and kept[name].dtype != "float32"]
    if len(kept) == len(sample.loss_fn_inputs) and not whole:
        return sample
    kept |= {name: TensorData(kept[name].data.astype(np.float32), "float32") for name in whole}
    return Sample(sample.model_input, kept, sample.routed_experts_key)


def _input_json(model_input: ModelInput) -> bytes:
    chunks = [{"encoded_text": {"tokens": chunk.encoded_text.tokens}} for chunk in model_input.chunks]
    return orjson.dumps({"chunks": chunks}, option=orjson.OPT_SERIALIZE_NUMPY)


def _print_gradients(gradients: Iterable[FloatArray]) -> PrintedList:
    shown = ({"data": gradient, "dtype": GRADIENT_DTYPE} for gradient in gradients)
    return print_list([orjson.dumps(gradient, option=orjson.OPT_SERIALIZE_NUMPY)] for gradient in shown)
