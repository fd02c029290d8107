"""Prompts recorded at sampling time, held against those the template renders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from samplekit.chat.ladder import mismatch
from samplekit.chat.refusals import refuse
from samplekit.chat.turn import Turn

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
        TemplateError: code ``invalid_option`` where the number of prompts is not that of the turns.
    """
    if isinstance(prompts, Mapping):
        recorded = [prompts.get(turn.message_index) for turn in turns]
    elif len(prompts) == len(turns):
        recorded = list(prompts)
    else:
        found = f"prompts holds {len(prompts)} prompts for {len(turns)} turns"
        raise refuse("invalid_option", found, hint="pass one a turn, or a mapping by message index")
    for turn, ids in zip(turns, recorded, strict=True):
        if ids is not None:
            _check(turn, ids, decode)


def _check(turn: Turn, ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> None:
    rendered = turn.ids[: turn.prompt_length]
    given = np.asarray(ids)
    shared = min(len(rendered), len(given))
    differs = np.flatnonzero(rendered[:shared] != given[:shared])
    if len(differs) == 0 and len(rendered) == len(given):
        return
    place = int(differs[0]) if len(differs) else shared
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
