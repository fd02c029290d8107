"""What a batch of training arrays is asked to hold, checked before any record is read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from samplekit.batching.labels import ignored_label
from samplekit.packing.pack import read_pad_id
from samplekit.sample.kinds import is_whole_number

PositionMode: TypeAlias = Literal["preserve", "sequence"]


@dataclass(frozen=True)
class TrainingOptions:
    """The options of `SampleBatch.to_training`, by the same names.

    Raises:
        ValueError: two of them contradict each other, or one has a value that is none.
    """

    tokens_field: str = "auto"
    return_labels: bool = False
    ignore_index: int = -100
    dtype: Any = "auto"
    extra_fields: Sequence[str] = ()
    rename_fields: Mapping[str, str] | None = None
    exclude_fields: Sequence[str] = ()
    flatten: bool = False
    return_num_valid_tokens: bool = False
    return_loss_mask: bool = False
    return_cu_seqlens: bool = False
    return_padding_mask: bool = False
    eos_mask_loss: bool = False
    eos_token_id: int | None = None
    position_mode: PositionMode = "preserve"
    mask_boundaries: bool = False
    return_document_ids: bool = False
    return_seq_lens: bool = False
    pad_to_multiple_of: int | None = None
    pad_id: int | None = None

    def __post_init__(self) -> None:
        self._refuse_needless_labels()
        self._refuse_misplaced_extras()
        if self.position_mode not in ("preserve", "sequence"):
            raise ValueError(f"position_mode is {self.position_mode!r}, expected 'preserve' or 'sequence'")
        ignored_label(self.ignore_index)
        if self.pad_id is not None:
            read_pad_id(self.pad_id)
        multiple = self.pad_to_multiple_of
        if multiple is not None and (not is_whole_number(multiple) or multiple < 1):
            raise ValueError(f"pad_to_multiple_of is {multiple!r}, expected a whole number of 1 or more")
        self._check_eos()

    def _refuse_needless_labels(self) -> None:
        for name in ("return_loss_mask", "eos_mask_loss", "return_num_valid_tokens", "mask_boundaries"):
            if getattr(self, name) and not self.return_labels:
                raise ValueError(f"{name} requires return_labels=True: it is about labels")

    def _refuse_misplaced_extras(self) -> None:
        if isinstance(self.extra_fields, str) or isinstance(self.exclude_fields, str):
            raise TypeError(
                "extra_fields and exclude_fields are text, expected a list of names: put brackets around it"
            )
        if self.return_labels and "loss_mask" in self.extra_fields:
            raise ValueError(
                "extra_fields holds 'loss_mask' beside return_labels=True, but extra fields stand at their input token "
                "and the mask at the label: ask for return_loss_mask=True"
            )
        if self.return_cu_seqlens and {"cu_seqlens", "max_seqlen"} & set(self.extra_fields):
            raise ValueError("extra_fields holds 'cu_seqlens' or 'max_seqlen', which return_cu_seqlens=True gives")

    def _check_eos(self) -> None:
        eos = self.eos_token_id
        if eos is not None and (not is_whole_number(eos) or eos < 0):
            raise ValueError(f"eos_token_id is {eos!r}, expected a token id of 0 or more, or None")
        if self.eos_mask_loss and eos is None:
            raise ValueError("eos_mask_loss=True requires eos_token_id: which token ends a document?")
        if eos is not None and not self.eos_mask_loss:
            warnings.warn("eos_token_id is not read unless eos_mask_loss=True", UserWarning, stacklevel=5)

    def named(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Rename keys, then leave out those excluded, which are called by their new names.

        Raises:
            ValueError: two keys would get one name.
        """
        renames = self.rename_fields or {}
        found: dict[str, Any] = {}
        for name, value in arrays.items():
            new = renames.get(name, name)
            if new in found:
                raise ValueError(f"rename_fields gives two fields the name {new!r}: choose another")
            found[new] = value
        return {name: value for name, value in found.items() if name not in self.exclude_fields}
