"""Prompts recorded at sampling time, held against those the template renders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from samplekit.chat.ladder import mismatch
from samplekit.chat.refusals import refuse
from samplekit.chat.tokens import ID_LIMIT
from samplekit.chat.turn import Turn
from samplekit.sample.kinds import shown
from samplekit.sample.shared_start import shared_start

_AROUND = 8


def check_recorded(
    turns: Sequence[Turn],
    prompts: Sequence[Sequence[int] | None] | Mapping[int, Sequence[int]],
    decode: Callable[[Sequence[int]], str],
) -> None:
    """Check that every turn's prompt is the one recorded for it.

    Args:
        turns: rendered turns.
        prompts: recorded ids, one a turn (None where there are none) or by message index.
        decode: ids to text, for the error.

    Raises:
        PrefixMismatchError: a prompt differs; ``index`` is the first token that does.
        TemplateError: code ``invalid_option`` where the prompts are none, or not those of the trained turns.
    """
    if isinstance(prompts, Mapping):
        _check_keys(turns, prompts)
        recorded = [prompts.get(turn.message_index) for turn in turns]
    elif not _is_sized(prompts):
        hint = "pass one a turn, or a mapping by message index"
        raise refuse("invalid_option", f"prompts is {shown(prompts)}, expected lists of ids", hint=hint)
    elif len(prompts) == len(turns):
        recorded = list(prompts)
    else:
        found = f"prompts holds {len(prompts)} prompts for {len(turns)} turns"
        raise refuse("invalid_option", found, hint="pass one a turn, or a mapping by message index")
    for turn, ids in zip(turns, recorded, strict=True):
        if ids is not None:
            _check(turn, ids, decode)


def _is_sized(prompts: object) -> bool:
    return hasattr(prompts, "__len__") and hasattr(prompts, "__iter__") and not isinstance(prompts, str | bytes)


def _check_keys(turns: Sequence[Turn], prompts: Mapping[int, Sequence[int]]) -> None:
    trained = [turn.message_index for turn in turns]
    unknown = [key for key in prompts if key not in trained]
    if unknown:
        found = f"prompts names message {shown(unknown[0])}, which is no trained turn"
        raise refuse("invalid_option", found, hint=f"the trained turns are messages {', '.join(map(str, trained))}")


def _read(ids: object, index: int) -> npt.NDArray[np.int64]:
    """Read recorded ids, shape (N,)."""
    try:
        given: npt.NDArray[Any] = np.asarray(ids)
    except (ValueError, TypeError, OverflowError):
        given = np.empty((0, 0))
    whole = given.ndim == 1 and (given.size == 0 or given.dtype.kind in "iu")
    if not whole or (given.size and not 0 <= int(given.min()) <= int(given.max()) < ID_LIMIT):
        raise refuse("invalid_option", f"prompts holds {shown(ids)}, expected token ids", index=index, hint="pass ids")
    return given.astype(np.int64)


def _check(turn: Turn, ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> None:
    rendered = turn.ids[: turn.prompt_length]
    given = _read(ids, turn.message_index)
    place = shared_start(rendered, given)
    if place == len(rendered) == len(given):
        return
    near = slice(max(0, place - _AROUND), place + _AROUND)
    raise mismatch(
        "prefix_mismatch",
        "token",
        place,
        decode(given[near].tolist()),
        decode(rendered[near].tolist()),
        index=turn.message_index,
        template="",
    )
