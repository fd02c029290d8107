"""A conversation -> one draft a trained reply: which replies train, with which kwargs, from which renders."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from samplekit.chat.accounting import PromptAccount, check_reply, dropped
from samplekit.chat.closings import Closings
from samplekit.chat.cuts import Cutter
from samplekit.chat.kwargs import KwargsPlan
from samplekit.chat.ladder import Fit, fit
from samplekit.chat.messages import Conversation, Message
from samplekit.chat.presence import Presence
from samplekit.chat.refusals import refuse
from samplekit.chat.render import Renderer
from samplekit.chat.shape import TemplateShape
from samplekit.chat.stops import StopSet
from samplekit.chat.thoughts import unclosed_thought
from samplekit.chat.turn import Draft
from samplekit.errors import TemplateError

AfterStop: TypeAlias = Literal["drop", "mask", "train"]
TrainOn: TypeAlias = Literal["all", "last"]


@dataclass(frozen=True)
class Program:
    """A template, ready to plan turns: its renderer, what it wants, its kwargs and its stops."""

    renderer: Renderer
    shape: TemplateShape
    kwargs: KwargsPlan
    stops: StopSet
    closings: Closings
    presence: Presence
    after_stop: AfterStop
    train_tool_calls: bool


@dataclass(frozen=True, slots=True)
class _Cut:
    """A completion at its stop: what trains, all of it where more is kept, the stop's text."""

    trained: str
    whole: str | None
    stop: str | None
    appended: bool = False


def trained_replies(conversation: Conversation, train_on: TrainOn) -> list[int]:
    """Choose the replies that train, by their place in ``conversation.messages``.

    Args:
        conversation: normalised.
        train_on: ``"all"`` replies, or the ``"last"`` message only.

    Raises:
        TemplateError: ``no_final_reply`` or ``nothing_trained``.
    """
    messages = conversation.messages
    if train_on not in ("all", "last"):
        raise refuse("invalid_option", f"train_on is {train_on!r}", hint="pass 'all' or 'last'")
    if train_on == "last" and messages[-1].role != "assistant":
        found = (
            f"train_on='last' needs an assistant message at the end, the last message is a {messages[-1].role} message"
        )
        raise refuse("no_final_reply", found, index=messages[-1].index)
    replies = [index for index, message in enumerate(messages) if message.role == "assistant"]
    if not replies:
        raise refuse("no_final_reply", "the conversation holds no assistant message", hint="add a reply to train on")
    chosen = replies if train_on == "all" else replies[-1:]
    if chosen == [0]:
        raise refuse("empty_prompt", "a reply without anything before it has no prompt", index=messages[0].index)
    trained = [index for index in chosen if index and messages[index].weight > 0]
    if not trained:
        raise refuse("nothing_trained", "every assistant message has weight 0 or train=false")
    return trained


def refuse_hidden(program: Program, conversation: Conversation, count: int) -> None:
    """Refuse short texts among the first messages that stand in a render only by accident.

    Raises:
        TemplateError: as the accounting does, naming the message.
    """
    messages = conversation.messages[:count]
    missing = program.presence.missing(messages, conversation.tools, program.kwargs.default)
    if missing is not None:
        raise dropped(missing, program.renderer.name)


def account_for(program: Program, conversation: Conversation, text: str, count: int) -> None:
    """Check that the first messages and the tools stand in a prompt.

    Raises:
        TemplateError: as `PromptAccount.check`.
    """
    PromptAccount(conversation.messages, program.renderer.name).check(text, count, conversation.tools)
    refuse_hidden(program, conversation, count)


class Planner:
    """Plan the turns of one conversation, each render looking only at what it adds.

    Args:
        program: the template.
        conversation: normalised messages and tools.
        cutter: cuts this conversation's texts.
        clock: the one time it knows.
        info: what every sample of it remembers.
    """

    def __init__(
        self, program: Program, conversation: Conversation, cutter: Cutter, clock: dt.datetime, info: dict[str, Any]
    ) -> None:
        self._program = program
        self._conversation = conversation
        self._cutter = cutter
        self._clock = clock
        self._info = info
        self._account = PromptAccount(conversation.messages, program.renderer.name)

    def draft(self, index: int) -> Draft:
        """Plan the turn of one reply.

        Raises:
            TemplateError: the named reason why the template and this reply do not fit.
        """
        reply = self._conversation.messages[index]
        unclosed = None if reply.cut_short else unclosed_thought(reply.text)
        if unclosed is not None:
            raise refuse(
                "invalid_message",
                f"the reply opens {unclosed} and never closes it",
                index=reply.index,
                hint="close the thinking block, give it as reasoning_content, or set finish_reason='length'",
            )
        default = self._program.kwargs.default
        retries = self._program.kwargs.retries(reasons=bool(reply.reasoning))
        if not retries:
            return self._draft_with(index, default)
        try:
            return self._draft_with(index, default)
        except TemplateError as first:
            for kwargs in retries:
                try:
                    return self._draft_with(index, kwargs)
                except TemplateError:
                    continue
            raise first from None

    def prove(self, index: int) -> None:
        """Check that no short text of the conversation up to a reply was found in a render by accident.

        Raises:
            TemplateError: as the accounting does, naming the message.
        """
        refuse_hidden(self._program, self._conversation, index + 1)

    def _draft_with(self, index: int, kwargs: dict[str, Any]) -> Draft:
        program, conversation = self._program, self._conversation
        reply, name = conversation.messages[index], program.renderer.name
        prompt = self._render(index, kwargs, reply_follows=True, fault=reply.index)
        full = self._render(index + 1, kwargs, reply_follows=False, fault=reply.index)
        last_text = conversation.messages[index - 1].text
        fitted = self._fit(prompt, full, reply, last_text)
        self._account.check(prompt, index, conversation.tools)
        check_reply(reply, fitted.completion, name)
        cut = self._stop(reply, fitted.completion, kwargs)
        without = None
        if reply.calls and not program.train_tool_calls:
            without = self._without_calls(prompt, cut.stop or "", index, kwargs)
        pieces = self._cutter.cut
        return Draft(
            index=reply.index,
            prompt=pieces(prompt),
            trained=pieces(prompt + cut.trained),
            whole=None if cut.whole is None else pieces(prompt + cut.whole),
            completion=cut.trained,
            without_calls=None if without is None else pieces(without),
            grafted=fitted.grafted,
            weight=reply.weight,
            stop=cut.stop,
            info=self._remembered(kwargs, appended=cut.appended),
            fresh=self._cutter.fresh(),
        )

    def _remembered(self, kwargs: dict[str, Any], *, appended: bool) -> dict[str, Any]:
        info = dict(self._info)
        if kwargs:
            info["template_kwargs"] = kwargs
        if appended:
            info["stop_appended"] = True
        return info

    def _stop(self, reply: Message, completion: str, kwargs: dict[str, Any]) -> _Cut:
        """Split a completion at its stop."""
        program = self._program
        if reply.cut_short:
            return _Cut(completion[: program.closings.content_end(reply, completion, kwargs)], None, None)
        found = program.closings.stop_end(reply, completion, kwargs)
        if found is None:
            stop = program.stops.appended
            if stop is None:
                what = "the render ends without a stop, and none is certain enough to append"
                raise refuse("no_stop_token", what, index=reply.index, template=program.renderer.name)
            return _Cut(completion + stop, None, stop, appended=True)
        end, stop = found
        if program.after_stop == "drop" or end == len(completion):
            return _Cut(completion[:end], None, stop)
        if program.after_stop == "train":
            return _Cut(completion, None, stop)
        return _Cut(completion[:end], completion, stop)

    def _without_calls(self, prompt: str, stop: str, index: int, kwargs: dict[str, Any]) -> str:
        """Render the same reply without its tool calls, up to its stop."""
        reply = self._conversation.messages[index]
        if not reply.text and not reply.reasoning:
            return prompt + stop
        bare = replace(reply, calls=(), view={key: value for key, value in reply.view.items() if key != "tool_calls"})
        views = [*self._conversation.views[:index], bare.view]
        full = self._program.renderer.render(
            views, self._conversation.tools, kwargs, reply_follows=False, clock=self._clock, index=reply.index
        )
        fitted = self._fit(prompt, full, bare, self._conversation.messages[index - 1].text)
        return prompt + self._stop(bare, fitted.completion, kwargs).trained

    def _fit(self, prompt: str, full: str, reply: Message, last_text: str) -> Fit:
        switch, name = self._program.kwargs.switch, self._program.renderer.name
        return fit(prompt, full, reply, last_text=last_text, switch=switch, template=name)

    def _render(self, count: int, kwargs: dict[str, Any], *, reply_follows: bool, fault: int) -> str:
        conversation = self._conversation
        return self._program.renderer.render(
            conversation.views[:count],
            conversation.tools,
            kwargs,
            reply_follows=reply_follows,
            clock=self._clock,
            index=fault,
        )
