"""Records in batches, and the training arrays of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

from samplekit.batching.frameworks import framework_arrays
from samplekit.batching.layouts import Layout
from samplekit.batching.options import PositionMode, TrainingOptions
from samplekit.batching.training_arrays import training_arrays
from samplekit.errors import PackingError
from samplekit.packing import Record, read_record
from samplekit.packing.lengths import whole_number

Framework: TypeAlias = Literal["hf", "megatron", "torchtitan"]


class _Flush:
    """Ends the current batch where it stands in a stream of records."""

    __name__ = "FLUSH"

    def __repr__(self) -> str:
        return "FLUSH"

    def __reduce__(self) -> str:
        return "FLUSH"


FLUSH = _Flush()


class SampleBatch:
    """Records that are trained on together.

    Args:
        records: Records, packed rows, Samples, mappings of arrays; or payloads of other kinds, which only `records`
            gives back.
        first: the first record's place in the stream, which names records without an id.

    Attributes:
        records: the objects that were given, untouched.
    """

    def __init__(self, records: Iterable[Any], *, first: int = 0) -> None:
        self.records: list[Any] = list(records)
        self._first = first
        self._layouts: set[Layout] = set()

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return f"SampleBatch({len(self.records)} records)"

    @cached_property
    def rows(self) -> list[Record]:
        """The records read as such, one a row of the arrays.

        Raises:
            TypeError: one holds no tokens. PackingError: one is a list of documents.
        """
        return self.read()

    @property
    def documents(self) -> list[Record]:
        """Every document, row after row: what `unpack` gives values for; a record that is not packed is one."""
        return [document for row in self.rows for document in row.documents]

    @property
    def layouts(self) -> frozenset[Layout]:
        """How values lie in the arrays that the batch has given so far: `unpack` reads values of the same kind."""
        return frozenset(self._layouts)

    @property
    def ids(self) -> list[object]:
        """Every record's id; where it has none, its place in the stream."""
        return [self._first + place if row.id is None else row.id for place, row in enumerate(self.rows)]

    def read(self, tokens_field: str = "auto", extra_fields: Sequence[str] = ()) -> list[Record]:
        """Read the records, whatever they are; Records are as they were."""
        return [
            read_record(record, f"records[{place}]", tokens_field=tokens_field, extra_fields=extra_fields)
            for place, record in enumerate(self.records)
        ]

    def to_training(
        self,
        *,
        tokens_field: str = "auto",
        return_labels: bool = False,
        ignore_index: int = -100,
        dtype: Any = "auto",  # noqa: ANN401 - a dtype of numpy or torch
        extra_fields: Sequence[str] = (),
        rename_fields: Mapping[str, str] | None = None,
        exclude_fields: Sequence[str] = (),
        flatten: bool = False,
        return_num_valid_tokens: bool = False,
        return_loss_mask: bool = False,
        return_cu_seqlens: bool = False,
        return_padding_mask: bool = False,
        eos_mask_loss: bool = False,
        eos_token_id: int | None = None,
        position_mode: PositionMode = "preserve",
        mask_boundaries: bool = False,
        return_document_ids: bool = False,
        return_seq_lens: bool = False,
        pad_to_multiple_of: int | None = None,
        pad_id: int | None = None,
    ) -> dict[str, Any]:
        """Give the batch as arrays; W is the width of its rows, S is W - 1 with labels and W without.

            >>> rows = SampleBatch([Record([1, 11, 12, 2, 1, 21, 22, 2], positions=[0, 1, 2, 3, 0, 1, 2, 3])])
            >>> arrays = rows.to_training(return_labels=True, return_cu_seqlens=True, mask_boundaries=True)
            >>> arrays["labels"].tolist(), arrays["cu_seqlens"].tolist()
            ([[11, 12, 2, -100, 21, 22, 2]], [[0, 4, 7]])

        Args:
            tokens_field: of records that are mappings, the key of the tokens; ``"auto"`` for the first of input_ids,
                tokens, token_ids and ids.
            return_labels: whether ``labels`` (B, S) are given, the next tokens; ``input_ids`` then lose their last.
            ignore_index: the label of what does not train; no token of the batch.
            dtype: of whole numbers: ``"auto"`` is numpy's int64, a torch dtype gives tensors, None gives lists. Other
                arrays are float32 and bool.
            extra_fields: arrays of the records to give as well, sliced as input_ids are.
            rename_fields: new names of keys.
            exclude_fields: keys to leave out, by their new names.
            flatten: whether rows are laid end to end in one vector; they may then differ in width.
            return_num_valid_tokens: whether the count of labels that train is given, an int.
            return_loss_mask: whether ``loss_mask`` (B, S) is given, the weight of every label, 0.0 where it is ignored:
                with return_labels only. Without labels the records' own loss mask is always given, unshifted, where
                they have one.
            return_cu_seqlens: whether ``cu_seqlens`` (int32: (B, K), filled up with S; or one vector with flatten) and
                ``max_seqlen`` (int32 (B,); an int with flatten) are given. Padding is one segment and counts.
            return_padding_mask: whether ``padding_mask`` (B, S) is given, true at padding.
            eos_mask_loss: whether labels are ignored where the input is eos_token_id. That also hits an end token
                inside a chat: mask_boundaries does not.
            eos_token_id: that id.
            position_mode: ``"preserve"`` gives the records' own positions, ``"sequence"`` counts each row from 0.
            mask_boundaries: whether the label that would predict the first token of the next document is ignored.
            return_document_ids: whether ``document_ids`` (B, S) are given: 1 for a row's first one, 0 for padding.
            return_seq_lens: whether ``seq_lens`` are given, the documents' lengths without padding: int32 (B, K),
                filled up with 0; or one vector with flatten.
            pad_to_multiple_of: makes S (the whole vector's length, with flatten) a multiple of it.
            pad_id: what that adds; by default what packed rows are filled up with, else 0.

        Returns:
            Arrays by name, with ``ids`` (each record's id) and ``texts`` (empty) before them.

        Raises:
            ValueError: options contradict each other or the records; a record lacks a field.
            TypeError: a record holds no tokens.
        """
        given = {name: value for name, value in locals().items() if name != "self"}
        options = TrainingOptions(**given)
        rows = self.read(tokens_field, extra_fields)
        arrays = training_arrays(rows, self.ids if tokens_field == "auto" else self._ids(rows), options)
        self._layouts.add(Layout(return_labels, flatten, pad_to_multiple_of or 1))
        return arrays

    def to_framework(
        self,
        framework: Framework,
        *,
        mask_boundaries: bool = True,
        pad_to_multiple_of: int | None = None,
        dtype: Any = "torch",  # noqa: ANN401 - a dtype of numpy or torch
    ) -> dict[str, Any]:
        """Give the batch as a framework takes it; see docs/batching.md for each one's keys.

        Args:
            framework: ``"hf"``: what a transformers model is called with, rows end to end, labels not shifted, and no
                attention_mask, for a 2-D one would let documents see each other. ``"megatron"``: rows end to end,
                labels shifted. ``"torchtitan"``: rows, labels shifted.
            mask_boundaries: whether no position is trained to predict the first token of the next document.
            pad_to_multiple_of: makes the length a multiple of it.
            dtype: of ids; ``"torch"`` is torch.int64, others as in `to_training`.

        Raises:
            ValueError: the framework is not known.
            MissingExtraError: torch is not installed.
        """
        arrays = framework_arrays(self.rows, self.ids, framework, mask_boundaries, pad_to_multiple_of, dtype)
        self._layouts.add(Layout(framework != "hf", framework != "torchtitan", pad_to_multiple_of or 1))
        return arrays

    def _ids(self, rows: list[Record]) -> list[object]:
        return [self._first + place if row.id is None else row.id for place, row in enumerate(rows)]


def batch(
    records: Iterable[Any],
    microbatch_size: int | None,
    *,
    drop_last: bool = True,
    max_tokens: int | None = None,
) -> Iterator[SampleBatch]:
    """Group records into batches, in the order given.

        >>> [len(found) for found in batch([[1], [2], FLUSH, [3]], 2, drop_last=False)]
        [2, 1]

    Args:
        records: of any kind; `FLUSH` among them ends the current batch.
        microbatch_size: records of a batch; None where only max_tokens limits it.
        drop_last: whether a batch that is short of records at a flush or at the end is left out.
        max_tokens: most tokens of a batch, padding of rows included; a batch that the next record would take beyond it
            is whole.

    Yields:
        Batches; none is empty.

    Raises:
        PackingError: neither limit is given, or one record alone is beyond max_tokens.
    """
    size = None if microbatch_size is None else whole_number(microbatch_size, "microbatch_size")
    limit = None if max_tokens is None else whole_number(max_tokens, "max_tokens")
    if size is None and limit is None:
        raise PackingError("microbatch_size and max_tokens are both None, expected at least one: what ends a batch?")
    return _batches(records, size, limit, drop_last=drop_last)


def _batches(records: Iterable[Any], size: int | None, limit: int | None, *, drop_last: bool) -> Iterator[SampleBatch]:
    held: list[Any] = []
    tokens = place = 0
    for record in records:
        if record is FLUSH:
            if held and not drop_last:
                yield SampleBatch(held, first=place - len(held))
            held, tokens = [], 0
            continue
        length = 0 if limit is None else _length(record, place, limit)
        if held and limit is not None and tokens + length > limit:
            yield SampleBatch(held, first=place - len(held))
            held, tokens = [], 0
        held.append(record)
        tokens += length
        place += 1
        if len(held) == size:
            yield SampleBatch(held, first=place - len(held))
            held, tokens = [], 0
    if held and not drop_last:
        yield SampleBatch(held, first=place - len(held))


def _length(record: object, place: int, limit: int) -> int:
    length = read_record(record, f"records[{place}]").length
    if length > limit:
        raise PackingError(
            f"records[{place}] holds {length} tokens, max_tokens={limit}: raise max_tokens, or cut or drop the record"
        )
    return length
