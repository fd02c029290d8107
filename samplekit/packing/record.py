"""One sequence with all that is known of each of its tokens, unshifted: what is packed and batched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self, TypeVar, cast

import numpy as np

from samplekit.build import build_sample, refuse_labels
from samplekit.errors import AlignmentError, PackingError, SampleError
from samplekit.sample import Sample
from samplekit.sample.arrays import AnyArray, FloatArray, IntArray, floats_array, freeze, ids_array
from samplekit.sample.kinds import is_whole_number

RecordT = TypeVar("RecordT", bound="Record")
_MASKS = ("weights", "mask")
_KEYWORDS = ("advantages", "logprobs", "reference_logprobs")
_OF_ROWS = ("positions", "document_ids")  # what says where a token stands in a row is not the service's


@dataclass(frozen=True, eq=False, repr=False)
class Record:
    """A sequence and its arrays, none of them shifted: value i describes token i.

        >>> record = Record([10, 11, 12], [0, 1, 1], logprobs=[0.0, -0.5, -0.25])
        >>> record.per_token["logprobs"].tolist()
        [0.0, -0.5, -0.25]

    Args:
        tokens: token ids, (W,); padding, if any, stands at the end.
        loss_mask: how much each token trains, (W,): bool, int or float; None where all of them do.
        id: the record's name; None where its place in the batch names it.
        padding_length: how many of the last tokens are padding.
        per_token: more arrays by name, each (W,): whole numbers of 0 or more become int64, other numbers float32.
            ``positions`` says where a token stands in its document: it starts again at 0 with each.

    Attributes:
        tokens: int64 (W,), read-only, as are all arrays.
        loss_mask: float32 (W,), or None.
        id: as given.
        padding_length: as given.
        per_token: the other arrays by name.

    Raises:
        AlignmentError: the arrays disagree about their length, or are empty or not 1-D.
        SampleError: a value is no token id or no finite number, or there is more padding than tokens.
    """

    tokens: IntArray
    loss_mask: FloatArray | None
    id: object
    padding_length: int
    per_token: Mapping[str, AnyArray]

    def __init__(
        self,
        tokens: object,
        loss_mask: object = None,
        *,
        id: object = None,  # noqa: A002 - the name users know
        padding_length: int = 0,
        **per_token: object,
    ) -> None:
        ids = ids_array(tokens, "tokens")
        mask = None if loss_mask is None else floats_array(loss_mask, "loss_mask")
        if mask is not None:
            refuse_labels(mask)
        arrays = {name: _numbers(values, name) for name, values in per_token.items()}
        for name, values in {"loss_mask": ids if mask is None else mask, **arrays}.items():
            if len(values) != len(ids):
                raise AlignmentError(
                    f"{name} holds {len(values)} values, tokens holds {len(ids)} tokens: give one value for each token"
                )
        _fill(
            self, tokens=ids, loss_mask=mask, id=id, padding_length=_padding(padding_length, len(ids)), per_token=arrays
        )

    @classmethod
    def from_sample(cls, sample: Sample, *, id: object = None) -> Record:  # noqa: A002 - as in __init__
        """Join a sample's inputs and last target to one sequence again; its other arrays get a leading 0.

        Args:
            sample: with ``target_tokens``.
            id: the record's name.

        Raises:
            LossInputError: the sample has no target_tokens.
            SampleError: at a position that trains, the target is not the next input token, so there is no one sequence.
        """
        tokens = sample.tokens
        targets = sample.loss_fn_inputs["target_tokens"].data
        strayed = np.flatnonzero((targets != tokens[-len(targets) :]) & (sample.weights != 0))
        if len(strayed):
            place = int(strayed[0])
            raise SampleError(
                f"loss_fn_inputs['target_tokens'] holds {targets[place]} at index {place}, where the next input token "
                f"is {tokens[place + 1]}: only samples that predict their own next tokens are sequences"
            )
        arrays = {
            name: freeze(np.concatenate([np.zeros(1, tensor.data.dtype), tensor.data]))
            for name, tensor in sample.loss_fn_inputs.items()
            if name != "target_tokens" and name not in _MASKS
        }
        return trusted_record(tokens, sample.loss_mask, arrays, id=id)

    def to_sample(self) -> Sample:
        """Build the sample of this sequence, padding left out: what `samplekit.build_sample` makes of its arrays.

        Raises:
            PackingError: there are several documents in it, which the service cannot tell apart: unpack them first.
            SampleError: nothing trains.
        """
        end = len(self.tokens) - self.padding_length
        if not follows_on(self, end):
            raise PackingError(
                "this record holds several documents, and a service takes one a sample: use .documents of the packed "
                "record and build each"
            )
        mask = np.ones(end, np.float32) if self.loss_mask is None else self.loss_mask[:end]
        arrays = {name: values[:end] for name, values in self.per_token.items() if name not in _OF_ROWS}
        known: dict[str, Any] = {name: arrays.pop(name) for name in _KEYWORDS if name in arrays}
        return build_sample(self.tokens[:end], mask, extra=arrays, **known)

    @property
    def length(self) -> int:
        """How many tokens there are, padding included (W)."""
        return len(self.tokens)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), {**self.__dict__, "per_token": dict(self.per_token)})

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        del memo
        return self  # nothing in it can change

    def __repr__(self) -> str:
        names = ", ".join(["tokens", *(["loss_mask"] if self.loss_mask is not None else []), *self.per_token])
        return f"{type(self).__name__}({self.length} tokens, {self.padding_length} of them padding: {names})"


def trusted_record(
    tokens: IntArray,
    loss_mask: FloatArray | None,
    per_token: Mapping[str, AnyArray],
    *,
    id: object = None,  # noqa: A002 - as in Record
    padding_length: int = 0,
) -> Record:
    """Hold arrays that are known to be right and read-only, unchecked."""
    record = object.__new__(Record)
    return _fill(record, tokens=tokens, loss_mask=loss_mask, id=id, padding_length=padding_length, per_token=per_token)


def follows_on(record: Record, end: int) -> bool:
    """Tell whether the first `end` tokens are one document: their positions, if any, never start again."""
    positions = record.per_token.get("positions")
    return positions is None or bool((np.diff(positions[:end]) > 0).all())


def _fill(record: RecordT, **fields: object) -> RecordT:
    for name, value in fields.items():
        object.__setattr__(record, name, MappingProxyType(dict(value)) if name == "per_token" else value)  # type: ignore[call-overload]
    return record


def _rebuild(kind: type[Record], fields: dict[str, Any]) -> Record:
    """Recreate a record from its fields, as pickle asks: numpy's own copies of its arrays could be written to."""
    arrays = cast("list[object]", [*fields.values(), *fields["per_token"].values()])
    for value in arrays:
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return _fill(object.__new__(kind), **fields)


def _padding(padding_length: object, length: int) -> int:
    if not is_whole_number(padding_length) or not 0 <= padding_length <= length:
        raise SampleError(
            f"padding_length is {padding_length!r}, expected a whole number from 0 to {length}: count the last tokens "
            "that are padding"
        )
    return int(padding_length)


def _numbers(values: object, name: str) -> AnyArray:
    """Read one more array, in the dtype that holds it exactly."""
    try:
        return ids_array(values, name)
    except AlignmentError:
        raise
    except SampleError:
        return floats_array(values, name)
