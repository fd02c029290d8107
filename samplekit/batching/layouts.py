"""How the values of a batch may lie: of tokens or of positions, in rows or end to end, padded further or not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from samplekit.errors import AlignmentError
from samplekit.sample.arrays import IntArray


class Layout(NamedTuple):
    """One way to lay values out.

    Attributes:
        shifted: whether they are of positions, one fewer a row than tokens.
        flatten: whether rows lie end to end, so that only the last one is padded.
        multiple: of which the length of a row, or of them all, is made a multiple.
    """

    shifted: bool
    flatten: bool
    multiple: int = 1

    def sizes(self, widths: IntArray) -> IntArray:
        """Count the values of every row, its added padding among them, int64 (B,)."""
        sizes = widths - self.shifted
        if not self.flatten:
            return sizes + -sizes % self.multiple
        behind = np.zeros_like(sizes)
        behind[-1:] = -int(sizes.sum()) % self.multiple
        return sizes + behind


def plain_layouts(shifted: bool | None, multiple: int | None) -> list[Layout]:
    """List the layouts that a caller's word leaves open; None says nothing."""
    kinds = (False, True) if shifted is None else (bool(shifted),)
    return [Layout(kind, flatten, multiple or 1) for kind in kinds for flatten in (False, True)]


def layout_of(
    shape: tuple[Any, ...], widths: IntArray, possible: Iterable[Layout], given: Iterable[Layout] = ()
) -> Layout:
    """Find the layout that values have, by their shape.

    Args:
        shape: of the values.
        widths: tokens of the rows, int64 (B,).
        possible: layouts they may have.
        given: those in which the batch has been given, which go before.

    Raises:
        AlignmentError: no layout has this shape, or several have, which cut it differently.
    """
    for layouts in (given, possible):
        fitting = _unlike([layout for layout in layouts if _fits(shape, layout, widths)], widths)
        if len(fitting) > 1:
            raise AlignmentError(
                f"per_token has shape {shape}, which values of tokens and values of positions may both have in this "
                "batch, or its rows and one vector: say shifted=True for values of positions, as shifted labels are, "
                "or False, and pass rows as (B, W), one vector as (1, N)"
            )
        if fitting:
            return fitting[0]
    raise AlignmentError(
        f"per_token has shape {shape}, the batch's rows are {widths.tolist()} tokens wide, expected one value for each "
        "token, or for each but the last of a row: pass what the model gave for this batch, and pad_to_multiple_of as "
        "the batch or the collator was padded"
    )


def _unlike(layouts: list[Layout], widths: IntArray) -> list[Layout]:
    """Leave out layouts that cut values as an earlier one does."""
    found = {(layout.shifted, tuple(layout.sizes(widths)[: len(widths) - 1].tolist())): layout for layout in layouts}
    return list(found.values()) if len(widths) else layouts[:1]


def _fits(shape: tuple[Any, ...], layout: Layout, widths: IntArray) -> bool:
    sizes = layout.sizes(widths)
    if len(shape) == 2 and shape[0] == len(sizes) and (sizes == np.array(shape[1])).all():
        return True
    end_to_end = len(shape) == 1 or (len(shape) == 2 and shape[0] == 1 and layout.flatten)
    return end_to_end and isinstance(shape[-1], int) and shape[-1] == int(sizes.sum())
