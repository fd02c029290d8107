"""Frozen records that hold arrays, and stay read-only however they are copied."""

from __future__ import annotations

from typing import Any

import numpy as np

from samplekit.sample.arrays import freeze


def rebuild(kind: type[Any], fields: dict[str, Any]) -> Any:  # noqa: ANN401 - any of the records here
    """Recreate one from its fields, as pickle and copy ask: numpy's own copies of its arrays could be written to."""
    made = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, freeze(value) if isinstance(value, np.ndarray) else value)  # pyright: ignore[reportUnknownArgumentType]
    return made
