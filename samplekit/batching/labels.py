"""Labels of one sequence, for models that shift inside."""

from __future__ import annotations

import numpy as np

from samplekit.errors import AlignmentError, SampleError
from samplekit.sample.arrays import IntArray, floats_array, ids_array
from samplekit.sample.kinds import is_whole_number, shown


def labels_from_mask(tokens: object, loss_mask: object, *, ignore_index: int = -100) -> IntArray:
    """Give the labels of a sequence for models that shift inside, as those of transformers do.

    Nothing is shifted here: label i is token i where it trains, so the labels are as long as the tokens. Weights other
    than 0 and 1 are lost, for labels cannot hold them.

        >>> labels_from_mask([10, 11, 12, 13, 14, 15], [0, 0, 0, 1, 1, 1]).tolist()
        [-100, -100, -100, 13, 14, 15]

    Args:
        tokens: token ids, shape (N,).
        loss_mask: how much each token trains, shape (N,): bool, int or float. Where it is not 0 the token trains, but
            token 0 never does, for no position predicts it.
        ignore_index: the label of tokens that do not train.

    Returns:
        int64 labels, shape (N,), not shared with the caller's arrays.

    Raises:
        AlignmentError: the arrays disagree about their length, or are empty or not 1-D.
        SampleError: a value is no token id or no finite number, and the message names the index; or ``ignore_index`` is
            no whole number, or the id of a token that trains.
    """
    ignore_index = ignored_label(ignore_index)
    ids = ids_array(tokens, "tokens")
    mask = floats_array(loss_mask, "loss_mask")
    if len(mask) != len(ids):
        raise AlignmentError(
            f"loss_mask holds {len(mask)} values, tokens holds {len(ids)} tokens: give one value for each token"
        )
    trains = mask != 0
    if (ids[trains] == ignore_index).any():
        raise SampleError(f"ignore_index is {ignore_index}, the id of a token that trains, expected no id: use -100")
    labels = np.where(trains, ids, np.int64(ignore_index))
    labels[0] = ignore_index
    return labels


def ignored_label(value: object) -> int:
    """Read the label of what does not train.

    Raises:
        SampleError: it is no whole number that int64 holds.
    """
    if not is_whole_number(value) or not -(2**63) <= value < 2**63:
        raise SampleError(f"ignore_index is {shown(value)}, expected a whole number of 64 bits: use -100")
    return int(value)
