"""Turns -> samples: one a turn, or merged where that is proved, never longer than asked."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from samplekit.build import build_sample
from samplekit.chat.engine import Engine
from samplekit.chat.formats import to_messages
from samplekit.chat.merge import merge_turns
from samplekit.chat.plan import TrainOn
from samplekit.chat.refusals import check_flags, refuse
from samplekit.chat.truncate import shorten
from samplekit.chat.turn import Draft, Turn
from samplekit.errors import AlignmentError, SampleError
from samplekit.sample import Sample
from samplekit.sample.kinds import is_whole_number

Truncation: TypeAlias = Literal["error", "drop", "left", "right"]


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """How samples are made of turns."""

    train_on: TrainOn = "all"
    merge: bool = False
    max_length: int | None = None
    truncation: Truncation = "error"

    def check(self) -> None:
        """Refuse values that mean nothing.

        Raises:
            TemplateError: code ``invalid_option``.
        """
        if self.train_on not in ("all", "last"):
            raise refuse("invalid_option", f"train_on is {self.train_on!r}", hint="pass 'all' or 'last'")
        if self.truncation not in ("error", "drop", "left", "right"):
            raise refuse("invalid_option", f"truncation is {self.truncation!r}", hint="pass error, drop, left or right")
        check_flags(self, "merge")
        limit = self.max_length
        if limit is not None and (not is_whole_number(limit) or limit < 2):
            raise refuse("invalid_option", f"max_length is {limit!r}", hint="pass a whole number of 2 or more")


@dataclass(frozen=True, slots=True)
class Row:
    """One conversation as a caller has it, and the one time it knows."""

    messages: object
    tools: object
    clock: dt.datetime
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Built:
    """The samples of one conversation.

    Attributes:
        samples: in the order of the conversation.
        dropped: message indices of turns left out for their length.
        num_cut: turns that lost earlier messages or their end.
        num_context_replies: replies that are context only, since nothing stands before them.
    """

    samples: list[Sample] = field(default_factory=list[Sample])
    dropped: list[int] = field(default_factory=list[int])
    num_cut: int = 0
    num_context_replies: int = 0


def plan_samples(engine: Engine, row: Row, options: SampleOptions) -> list[Draft]:
    """Plan the turns of one conversation: the first phase, text only.

    Raises:
        TemplateError: the named reason.
    """
    return engine.drafts(row.messages, row.tools, options.train_on, row.clock)


def assemble(engine: Engine, row: Row, turns: Sequence[Turn], options: SampleOptions) -> Built:
    """Make samples of a conversation's turns: the second phase.

    Raises:
        TemplateError: the named reason.
        AlignmentError: a sample is longer than ``max_length`` and may not, or cannot, be cut.
    """
    kept: list[Turn] = []
    dropped: list[int] = []
    num_cut = 0
    for turn in turns:
        if options.max_length is None or len(turn.ids) <= options.max_length:
            kept.append(turn)
        elif options.truncation == "drop":
            dropped.append(turn.message_index)
        else:
            kept.append(_cut(engine, row, turn, options))
            num_cut += 1
    if options.merge:
        kept = merge_turns(kept, options.max_length)
    context = len(turns[0].info.get("context_only", ())) if turns else 0
    return Built([_sample(turn, row.source, options.max_length) for turn in kept], dropped, num_cut, context)


def _cut(engine: Engine, row: Row, turn: Turn, options: SampleOptions) -> Turn:
    limit = options.max_length or 0
    where = f"message {turn.message_index}: the sequence holds {len(turn.ids)} tokens"
    if options.truncation == "error":
        raise AlignmentError(
            f"{where}, max_length allows {limit}; raise max_length or pass truncation='drop', 'left' or 'right'"
        )
    if options.truncation == "left":
        return shorten(engine, row.messages, row.tools, turn, limit, row.clock)
    if not turn.weights[:limit].any():
        raise AlignmentError(
            f"{where} and its reply starts at token {turn.prompt_length}, beyond max_length {limit}; "
            "pass truncation='left' or drop the row"
        )
    return turn


def _sample(turn: Turn, source: str | None, max_length: int | None) -> Sample:
    info: dict[str, Any] = {"source": source} if source is not None else {}
    info |= {"message_index": turn.message_index, "mode": turn.mode, **turn.info}
    try:
        return build_sample(turn.ids, turn.weights, max_length=max_length, info=info)
    except AlignmentError:
        raise
    except SampleError as error:
        raise refuse("nothing_trained", str(error), index=turn.message_index, hint="drop the row") from error


def row_of(mapping: Mapping[str, Any], source: str, clock: dt.datetime) -> Row:
    """Read a row of a dataset, in any known format.

    Raises:
        TemplateError: code ``invalid_format`` where it is no conversation.
    """
    row = to_messages(mapping)
    return Row(row["messages"], row.get("tools"), clock, source)


def source_of(mapping: object, default: str) -> str:
    """Say where a row came from: its own ``source``, or the default."""
    own = cast("Mapping[str, Any]", mapping).get("source") if isinstance(mapping, Mapping) else None
    return default if own is None else str(own)
