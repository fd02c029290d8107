"""The form in which arrays leave: lists, numpy or torch, as rows or as one vector."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import numpy as np

from samplekit.batching.options import TrainingOptions
from samplekit.errors import AlignmentError, MissingExtraError
from samplekit.sample.arrays import AnyArray, IntArray


@dataclass(frozen=True)
class Output:
    """Shapes arrays and gives them their kind and dtype.

    Attributes:
        whole_dtype: numpy's dtype of ids and other whole numbers.
        kind: ``"list"``, ``"numpy"`` or ``"torch"``.
        widths: of the rows, int64 (B,).
        flatten: whether rows are laid end to end.
    """

    whole_dtype: np.dtype[Any]
    kind: str
    widths: IntArray
    flatten: bool

    def whole(self, values: AnyArray, name: str) -> Any:  # noqa: ANN401 - a list, an array or a tensor
        """Give whole numbers in the dtype that was asked for.

        Raises:
            ValueError: the dtype cannot hold one of them.
        """
        if self.whole_dtype != values.dtype and len(values):
            limits = np.iinfo(self.whole_dtype)
            low, high = int(values.min()), int(values.max())
            if low < limits.min or high > limits.max:
                worst = low if low < limits.min else high
                raise ValueError(
                    f"{name} holds {worst}, which {self.whole_dtype} cannot hold: choose a wider dtype"
                    + (", or another ignore_index" if name == "labels" else "")
                )
        return self.shaped(values.astype(self.whole_dtype, copy=False))

    def number(self, values: AnyArray, name: str) -> Any:  # noqa: ANN401 - as in whole
        """Give whole numbers as `whole` does, and fractions as float32."""
        return self.whole(values, name) if values.dtype.kind == "i" else self.shaped(values)

    def shaped(self, values: AnyArray) -> Any:  # noqa: ANN401 - as in whole
        """Lay values out in rows, or leave them end to end."""
        if self.flatten:
            return self.as_given(values)
        if len(self.widths) and self.widths.min() == self.widths.max():
            return self.as_given(values.reshape(len(self.widths), -1))
        if not len(self.widths):
            return self.as_given(values.reshape(0, 0))
        ends = np.cumsum(self.widths)
        return [values[start:end].tolist() for start, end in zip(ends - self.widths, ends, strict=True)]

    def as_given(self, values: AnyArray) -> Any:  # noqa: ANN401 - as in whole
        """Give an array as it is, in the kind that was asked for."""
        if self.kind == "list":
            return values.tolist()
        own = values if values.flags.writeable else values.copy()
        return torch_module().from_numpy(np.ascontiguousarray(own)) if self.kind == "torch" else own


def output_for(options: TrainingOptions, widths: IntArray) -> Output:
    """Read the dtype that was asked for.

    Raises:
        ValueError: it is no dtype of whole numbers, or rows of different widths are asked for as one array.
    """
    kind, dtype = _kind_of(options.dtype)
    if kind != "list" and not options.flatten and len(set(widths.tolist())) > 1:
        raise AlignmentError(
            f"the rows of the batch are {widths.tolist()} wide, expected one width: pack records into rows, or ask for "
            "flatten=True or dtype=None"
        )
    return Output(dtype, kind, widths, options.flatten)


def _kind_of(dtype: Any) -> tuple[str, np.dtype[Any]]:  # noqa: ANN401 - a dtype of numpy or torch
    if dtype is None:
        return "list", np.dtype(np.int64)
    if isinstance(dtype, str) and dtype == "auto":
        return "numpy", np.dtype(np.int64)
    torch = sys.modules.get("torch")  # whoever passes one of its dtypes has loaded it
    kind = "torch" if torch is not None and isinstance(dtype, torch.dtype) else "numpy"
    name: Any = str(dtype).removeprefix("torch.") if kind == "torch" else dtype
    try:
        found = np.dtype(name)
    except TypeError:
        found = np.dtype(np.float64)
    if found.kind not in "iu":
        raise ValueError(
            f"dtype is {dtype!r}, expected one of whole numbers (of numpy or torch), None for lists or 'auto': "
            "fractions are float32 whatever it is"
        )
    return kind, found


def torch_module() -> Any:  # noqa: ANN401 - the module
    """Load torch.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return cast("Any", import_module("torch"))
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            'arrays for a framework are torch tensors, and torch is not installed: pip install "samplekit[local]", or '
            "use to_training, which gives numpy",
            extra="local",
        ) from error
