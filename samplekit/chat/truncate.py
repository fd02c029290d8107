"""Shorter conversations: whole turns leave from the start, the system message and the newest turn stay."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from samplekit.chat.engine import Engine
from samplekit.chat.messages import Conversation
from samplekit.chat.turn import Turn
from samplekit.errors import AlignmentError


def shorten(engine: Engine, messages: object, tools: object, turn: Turn, max_length: int, clock: dt.datetime) -> Turn:
    """Plan a turn again without the oldest messages, as few as possible, so that it fits.

    Args:
        engine: the template and tokenizer.
        messages: the conversation as the caller has it.
        tools: its tools.
        turn: the turn that is too long.
        max_length: the most tokens of the full sequence.
        clock: the one time the conversation knows.

    Returns:
        The turn, with ``info["dropped_messages"]``.

    Raises:
        AlignmentError: the newest user message and its reply do not fit alone.
        TemplateError: the template refuses the shorter conversation.
    """
    program, conversation, choice = engine.read(messages, tools)
    everything = conversation.messages
    end = next(place for place, message in enumerate(everything) if message.index == turn.message_index)
    first = 1 if everything[0].role == "system" else 0
    starts = [place for place in range(first + 1, end) if everything[place].role == "user"]
    length = len(turn.ids)
    for start in starts:
        kept = Conversation.of([*everything[:first], *everything[start : end + 1]], conversation.tools)
        planner = engine.planner(program, kept, clock, choice)
        (shorter,) = engine.finish([planner.draft(len(kept.messages) - 1)])
        length = len(shorter.ids)
        if length <= max_length:
            return replace(shorter, info={**shorter.info, "dropped_messages": start - first})
    raise AlignmentError(
        f"message {turn.message_index}: the newest turn alone holds {length} tokens, max_length allows {max_length}; "
        "raise max_length or drop the row"
    )
