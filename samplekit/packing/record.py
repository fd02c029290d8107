"""One sequence with all that is known of each of its tokens, unshifted: what is packed and batched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypeVar, cast

import numpy as np

from samplekit.build import build_sample, refuse_labels
from samplekit.errors import AlignmentError, PackingError, SampleError
from samplekit.packing.documents import (
    agreeing_positions,
    lengths_of,
    padding_of_numbers,
    positions_read,
    refuse_unread_starts,
)
from samplekit.packing.numbers_of_tokens import whole_numbers
from samplekit.sample import Sample
from samplekit.sample.arrays import AnyArray, FloatArray, IntArray, floats_array, freeze, ids_array
from samplekit.sample.kinds import is_whole_number

RecordT = TypeVar("RecordT", bound="Record")
_MASKS = ("weights", "mask")
_KEYWORDS = ("advantages", "logprobs", "reference_logprobs")
_OF_ROWS = ("positions", "document_ids")  # what says where a token stands in a row is not the service's


class Origin(NamedTuple):
    """What a sample holds beside arrays; the names are those of `samplekit.build_sample`."""

    routed_experts_key: str | None
    info: Mapping[str, Any]


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
        per_token: more arrays by name, each (W,): whole numbers become int64, others and all logprobs and advantages
            float32. ``positions`` says where a token stands in its document: it starts again at 0 with each. Or
            ``document_ids`` numbers the documents, from 1, and the padding behind them is 0.

    Attributes:
        tokens: int64 (W,), read-only, as are all arrays.
        loss_mask: float32 (W,), or None.
        id: as given.
        padding_length: as given.
        per_token: the other arrays by name.
        origin: what else a sample held that this was made of, which `to_sample` gives back; None where there is none.

    Raises:
        AlignmentError: the arrays disagree about their length, or are empty or not 1-D.
        SampleError: a value is no token id or no finite number, or there is more padding than tokens.
    """

    tokens: IntArray
    loss_mask: FloatArray | None
    id: object
    padding_length: int
    per_token: Mapping[str, AnyArray]
    origin: Origin | None

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
        arrays = {name: _read(values, name) for name, values in per_token.items()}
        for name, values in {"loss_mask": ids if mask is None else mask, **arrays}.items():
            if len(values) != len(ids):
                raise AlignmentError(
                    f"{name} holds {len(values)} values, tokens holds {len(ids)} tokens: give one value for each token"
                )
        padding = _padding(padding_length, len(ids))
        if "document_ids" in arrays:
            padding = padding or padding_of_numbers(arrays["document_ids"])
            arrays["positions"] = agreeing_positions(arrays, len(ids) - padding)
        refuse_unread_starts(arrays, len(ids) - padding)
        _fill(self, tokens=ids, loss_mask=mask, id=id, padding_length=padding, per_token=arrays, origin=None)

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
        origin = Origin(sample.routed_experts_key, dict(sample.info))
        return trusted_record(tokens, sample.loss_mask, arrays, id=id, origin=origin)

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
        if self.origin is not None:
            known |= self.origin._asdict()
        return build_sample(self.tokens[:end], mask, extra=arrays, **known)

    @property
    def document_lengths(self) -> IntArray:
        """Tokens of every document, int64 (S,): one, unless positions start again; padding is not among them."""
        filled = self.length - self.padding_length
        if not filled or "positions" not in self.per_token:
            return np.array([filled], dtype=np.int64)
        return lengths_of(self.per_token["positions"][:filled])

    @property
    def documents(self) -> list[Record]:
        """The documents of the row as records, by their positions; the record itself where it is one."""
        lengths = self.document_lengths
        return [self] if len(lengths) == 1 else split(self, lengths, [self.id] * len(lengths))

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
    origin: Origin | None = None,
) -> Record:
    """Hold arrays that are known to be right and read-only, unchecked."""
    return _fill(
        object.__new__(Record),
        tokens=tokens,
        loss_mask=loss_mask,
        id=id,
        padding_length=padding_length,
        per_token=per_token,
        origin=origin,
    )


def split(
    row: Record, lengths: IntArray, ids: Sequence[object], origins: Sequence[Origin | None] | None = None
) -> list[Record]:
    """Cut a row into its documents, views of it; what says where a token stands in a row is left out."""
    ends = np.cumsum(lengths).tolist()
    arrays = {name: values for name, values in row.per_token.items() if name not in _OF_ROWS}
    return [
        trusted_record(
            row.tokens[start:end],
            None if row.loss_mask is None else row.loss_mask[start:end],
            {name: values[start:end] for name, values in arrays.items()},
            id=id_,
            origin=origin,
        )
        for start, end, id_, origin in zip([0, *ends[:-1]], ends, ids, origins or [None] * len(ids), strict=True)
    ]


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


def _read(values: object, name: str) -> AnyArray:
    if name == "positions":
        return positions_read(values)
    return floats_array(values, name) if name in _KEYWORDS else whole_numbers(values, name)
