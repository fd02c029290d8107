"""One loss input of a sample: a value for every position, with its dtype."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import SerializationInfo, model_serializer, model_validator

from samplekit.sample.arrays import AnyArray, floats_array, ids_array
from samplekit.sample.digits import Printed, print_numbers, shortest_floats
from samplekit.sample.kinds import is_mapping
from samplekit.sample.parts import Frozen, array_field, hold
from samplekit.sample.runs import Runs

Dtype: TypeAlias = Literal["int64", "float32"]
_CONVERTERS: Mapping[str, Callable[[object, str], AnyArray]] = {"int64": ids_array, "float32": floats_array}


class TensorData(Frozen):
    """One value for every position, with its dtype.

    Inside a Sample, data of few runs (most weights, masks and advantages) are kept as runs; ``data`` is made of them
    anew each time it is read.

    Attributes:
        data: int64 or float32 (T,), read-only.
        dtype: ``"int64"`` or ``"float32"``.
    """

    data: Annotated[AnyArray, *array_field({"type": "number"})]
    dtype: Dtype

    if TYPE_CHECKING:

        def __init__(self, data: object, dtype: Dtype) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _convert(cls, data: object) -> object:
        if not is_mapping(data) or "data" not in data or not isinstance(data.get("dtype"), str):
            return data
        convert = _CONVERTERS.get(data["dtype"])
        return data if convert is None else {**data, "data": convert(data["data"], "data")}

    def compact(self) -> TensorData:
        """Give the same tensor, kept as its runs where they are few."""
        runs = Runs.of(self.data) if self.runs is None else None
        return self if runs is None else hold(TensorData, runs=runs, dtype=self.dtype)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name == "data" and "runs" in self.__dict__:
                return self.__dict__["runs"].expand()
            return super().__getattr__(name)

    @property
    def length(self) -> int:
        """How many values there are (T)."""
        runs = self.runs
        return len(self.data) if runs is None else runs.length

    def print_numbers(self) -> Printed:
        """Print the values as a JSON list without its brackets, in as few bytes as read back bit for bit."""
        runs = self.runs
        return print_numbers(self.data) if runs is None else runs.print_numbers()

    @property
    def runs(self) -> Runs | None:
        """The runs that the values are kept as, or None where they are kept one by one."""
        return self.__dict__.get("runs")

    def __iter__(self) -> Generator[tuple[str, Any], None, None]:  # noqa: PYI058 - as BaseModel declares it
        yield from {"data": self.data, "dtype": self.dtype}.items()

    @model_serializer(mode="plain")
    def _dump(self, info: SerializationInfo) -> dict[str, Any]:
        data: Any = self.data
        if info.mode_is_json():
            data = data.tolist() if self.dtype == "int64" else shortest_floats(data)
        return {"data": data, "dtype": self.dtype}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorData) and self.dtype == other.dtype and np.array_equal(self.data, other.data)

    def __hash__(self) -> int:
        return hash((self.dtype, self.length))

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorData, (self.data, self.dtype)

    def __repr__(self) -> str:
        return f"TensorData({self.dtype}[{self.length}])"
