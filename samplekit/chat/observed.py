"""The next prompt of an episode: what was read and sampled, kept token for token, and what the world answered.

Rendering the whole conversation anew would spell the sampled reply as the template and tokenizer would, not as the
policy did; then nothing extends anything, and the steps of an episode share no sample.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from samplekit.chat.accounting import check_reply
from samplekit.chat.encode import Encoder
from samplekit.chat.messages import Conversation, Message
from samplekit.chat.plan import Program
from samplekit.chat.refusals import refuse
from samplekit.chat.render import MessageDict
from samplekit.chat.turn import continue_text
from samplekit.errors import TemplateError
from samplekit.sample.kinds import is_mapping

_MARK = "Nqsentinelq"
RenderNext = Callable[[list[MessageDict]], str]


@dataclass(frozen=True)
class Observed:
    """What a template writes from the stop of the last reply on.

    Attributes:
        stop: the stop's text.
        rest: all that follows it: the observations, and the header of the next reply.
    """

    stop: str
    rest: str


def observed_text(program: Program, conversation: Conversation, place: int, render: RenderNext, whole: str) -> Observed:
    """Find what the template writes behind a reply.

    A sentinel put behind the reply's last part marks the place, so that an equal text elsewhere cannot.

    Args:
        program: the template's.
        conversation: with messages behind the reply.
        place: the reply's place among its messages.
        render: gives the next prompt of a conversation's views.
        whole: the next prompt of this conversation.

    Raises:
        TemplateError: ``content_dropped`` where the end of the reply is not rendered, ``no_stop_token`` where no stop
            stands behind it, ``prefix_mismatch`` where what follows the reply depends on it.
    """
    reply, name = conversation.messages[place], program.renderer.name
    views = [message.view for message in conversation.messages]
    _, found, tail = render([*views[:place], _marked(program, reply), *views[place + 1 :]]).rpartition(_MARK)
    stop = program.stops.first(tail, 0) if found else None
    if stop is None:
        what = "no stop stands behind the last reply" if found else "the end of the last reply is not rendered"
        raise refuse("no_stop_token" if found else "content_dropped", what, index=reply.index, template=name)
    end, text = stop
    if not whole.endswith(tail[end - len(text) :]):
        what = "what the template writes behind the last reply depends on the reply itself"
        raise refuse("prefix_mismatch", what, index=reply.index, template=name)
    return Observed(text, tail[end:])


def last_reply(conversation: Conversation, template: str) -> int:
    """Find the reply that was sampled last: the last assistant message, with messages behind it.

    Raises:
        TemplateError: code ``no_final_reply``.
    """
    places = [place for place, message in enumerate(conversation.messages) if message.role == "assistant"]
    hint = "give the whole conversation: the sampled reply, and behind it what the world answered"
    if not places:
        raise refuse("no_final_reply", "the conversation holds no assistant message", hint=hint, template=template)
    if places[-1] == len(conversation.messages) - 1:
        raise refuse("no_final_reply", "no message follows the last reply", hint=hint, template=template)
    return places[-1]


def refuse_other_reply(reply: Message, said: str, template: str) -> None:
    """Refuse a reply whose text, reasoning or calls are not what the tokens say.

    Raises:
        TemplateError: code ``prefix_mismatch``.
    """
    try:
        check_reply(reply, said, template)
    except TemplateError as error:
        raise refuse(
            "prefix_mismatch",
            "the tokens do not say what this reply says",
            index=reply.index,
            hint="pass the tokens of the step whose completion this message was read from",
            template=template,
        ) from error


def append_observed(tokens: Sequence[int], observed: Observed, ends: bool, encoder: Encoder) -> list[int]:
    """Put what the template writes next behind tokens that stay as they are.

    Args:
        tokens: what was read and sampled.
        observed: what follows the reply's stop.
        ends: whether the tokens end with a stop; where not, as in a reply cut by length, the template's is written.
        encoder: the template's.
    """
    behind = continue_text("", observed.stop + observed.rest, encoder)
    if not ends:
        return [*tokens, *behind.tolist()]
    stop = continue_text("", observed.stop, encoder)
    if np.array_equal(behind[: len(stop)], stop):
        return [*tokens, *behind[len(stop) :].tolist()]
    return [*tokens, *continue_text(observed.stop, observed.rest, encoder).tolist()]  # the two would share a token


def _marked(program: Program, reply: Message) -> MessageDict:
    """Put the sentinel behind the last part of a reply: in its last call, else behind its text."""
    calls: list[Any] = list(reply.view.get("tool_calls") or ())
    if not calls:
        content: Any = reply.view.get("content") or ""
        text = content if isinstance(content, str) else "".join(part["text"] for part in content)
        return {**reply.view, "content": program.shape.content(text + _MARK)}
    call = cast("dict[str, Any]", calls[-1])
    function = cast("dict[str, Any]", call.get("function", call))
    marked = {**function, "arguments": _with_mark(function.get("arguments"))}
    calls[-1] = {**call, "function": marked} if "function" in call else marked
    return {**reply.view, "tool_calls": calls}


def _with_mark(arguments: object) -> object:
    """Give arguments one more value, the last."""
    if is_mapping(arguments):
        return {**arguments, _MARK.lower(): _MARK}
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments)
        except ValueError:
            return arguments + _MARK
        return json.dumps(_with_mark(read)) if is_mapping(read) else arguments + _MARK
    return {_MARK.lower(): _MARK}
