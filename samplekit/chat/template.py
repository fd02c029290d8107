"""ChatTemplate: conversations in, prompts, turns and samples out."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from samplekit.chat.continuation import continued_text
from samplekit.chat.engine import Engine, Options, SystemSlot
from samplekit.chat.kwargs import Thinking
from samplekit.chat.load import load_tokenizer
from samplekit.chat.observed import append_observed, last_reply, observed_text, refuse_other_reply
from samplekit.chat.plan import AfterStop, TrainOn, account_for
from samplekit.chat.recorded import check_recorded
from samplekit.chat.refusals import refuse
from samplekit.chat.report import TemplateReport, examine
from samplekit.chat.samples import Row, SampleOptions, Truncation, assemble, plan_samples
from samplekit.chat.tokens import known_ids
from samplekit.chat.turn import Turn
from samplekit.sample import Sample
from samplekit.sample.kinds import shown


class ChatTemplate:
    """Turn conversations into exactly what a model is given and exactly what it should produce.

    Every reply is rendered twice, without it and with it; what the second render adds is what trains, and where the
    two do not fit the reason is a TemplateError with a code. Nothing is guessed.

    Args:
        tokenizer: a Hugging Face tokenizer with a chat template, or any object with its surface.
        stop_tokens: ids or texts of tokens that end a reply, besides those found.
        thinking: ``"as_rendered"`` leaves the template's default, True and False set its switch, ``"auto"`` sets the
            switch only for replies that do not fit the default.
        after_stop: what happens to text that the template writes after the stop: ``"drop"`` it, keep it untrained
            (``"mask"``), or ``"train"`` it.
        system_slot: what happens to a system message where the template has no place for it: ``"error"``,
            ``"drop"``, or ``"prepend_user"``.
        sanitize: encode control tokens inside messages as plain text instead of refusing them.
        train_tool_calls: whether tool calls train; the text around them does either way.
        clock: the time that templates print; read once a conversation where None.
        **template_kwargs: what the template itself reads, such as ``enable_thinking=False``.

    Attributes:
        tokenizer: the tokenizer.

    Raises:
        TemplateError: ``no_chat_template``, ``template_raised`` where it does not compile, ``unknown_template_kwarg``,
            ``invalid_option``.
    """

    def __init__(
        self,
        tokenizer: Any,  # noqa: ANN401 - any tokenizer
        *,
        stop_tokens: Sequence[int | str] | None = None,
        thinking: Thinking = "as_rendered",
        after_stop: AfterStop = "drop",
        system_slot: SystemSlot = "error",
        sanitize: bool = False,
        train_tool_calls: bool = True,
        clock: dt.datetime | None = None,
        **template_kwargs: Any,  # noqa: ANN401 - whatever the template reads
    ) -> None:
        options = Options(
            stop_tokens, thinking, after_stop, system_slot, sanitize, train_tool_calls, clock, template_kwargs
        )
        self.engine = Engine(tokenizer, options)

    @classmethod
    def load(cls, name_or_path: str, **options: Any) -> ChatTemplate:  # noqa: ANN401 - the options of the class
        """Load a tokenizer by name or path and make its ChatTemplate.

        Args:
            name_or_path: a Hugging Face name, a folder, or ``"samplekit/tiny"``, which is found without a network.
            **options: of ChatTemplate.

        Raises:
            TemplateError: code ``load_failed`` where nothing is found, and those of ChatTemplate.
        """
        return cls(load_tokenizer(name_or_path), **options)

    def prompt(self, messages: object, tools: object = None, *, continue_final: bool = False) -> list[int]:
        """Give the tokens a model is served before it replies.

        Args:
            messages: the conversation so far.
            tools: JSON schemas, or None.
            continue_final: end inside the last assistant message, for the model to carry on.

        Raises:
            TemplateError: the named reason.
        """
        engine = self.engine
        program, conversation, _ = engine.read(messages, tools)
        clock = engine.clock()

        def render(views: list[dict[str, Any]], *, reply_follows: bool = False) -> str:
            return program.renderer.render(
                views, conversation.tools, program.kwargs.default, reply_follows=reply_follows, clock=clock
            )

        if continue_final:
            text = continued_text(program, conversation, render)
        else:
            text = render(conversation.views, reply_follows=True)
        messages_read = len(conversation.messages) - (1 if continue_final else 0)
        account_for(program, conversation, text, messages_read)
        return list(engine.encoder.text(text).tolist())

    def next_prompt(self, tokens: Sequence[int], messages: object, tools: object = None) -> list[int]:
        """Give the prompt of an episode's next step: it begins with what the last step read and sampled.

        Nothing that was read or sampled is encoded again, so that `build_trajectory_samples` joins both steps. Where
        the template would rewrite earlier messages (drop their reasoning, say), they stay as they were read.

        Args:
            tokens: ids of the last step, prompt and completion, as ``Step.tokens`` gives them.
            messages: the whole conversation: the reply read from that completion, and behind it what the world
                answered, such as a tool's result or the user's next message.
            tools: JSON schemas, or None.

        Returns:
            The tokens, the stop where a limit cut the completion before it, the answers as the template writes them,
            and the header of the next reply.

        Raises:
            TemplateError: ``no_final_reply`` where there is no reply or nothing behind it, ``prefix_mismatch`` where
                the tokens do not say what the reply says, and the named reasons of ``prompt``.
        """
        engine = self.engine
        ids = known_ids(self.tokenizer, tokens)
        program, conversation, _ = engine.read(messages, tools)
        clock, name = engine.clock(), program.renderer.name

        def render(views: list[dict[str, Any]]) -> str:
            return program.renderer.render(
                views, conversation.tools, program.kwargs.default, reply_follows=True, clock=clock
            )

        place = last_reply(conversation, name)
        refuse_other_reply(conversation.messages[place], engine.encoder.decode(ids), name)
        whole = render(conversation.views)
        account_for(program, conversation, whole, len(conversation.messages))
        observed = observed_text(program, conversation, place, render, whole)
        return append_observed(ids, observed, bool(ids) and ids[-1] in self.stop_ids, engine.encoder)

    def turns(
        self,
        messages: object,
        tools: object = None,
        *,
        train_on: TrainOn = "all",
        prompts: Sequence[Sequence[int] | None] | Mapping[int, Sequence[int]] | None = None,
    ) -> list[Turn]:
        """Give one turn for every assistant message that trains, each against the prompt rendered for it.

        Args:
            messages: the conversation.
            tools: JSON schemas, or None.
            train_on: ``"all"`` replies, or the ``"last"`` message.
            prompts: prompt ids recorded when the replies were sampled, one a turn or by message index; a turn whose
                rendered prompt differs is an error.

        Raises:
            TemplateError: the named reason, with its ``message_index``; nothing else.
        """
        drafts = self.engine.drafts(messages, tools, train_on, self.engine.clock())
        turns = self.engine.finish(drafts)
        if prompts is not None:
            check_recorded(turns, prompts, self.engine.encoder.decode)
        return turns

    def samples(
        self,
        messages: object,
        tools: object = None,
        *,
        train_on: TrainOn = "all",
        merge: bool = False,
        max_length: int | None = None,
        truncation: Truncation = "error",
    ) -> list[Sample]:
        """Give one sample for every assistant message that trains.

        Args:
            messages: the conversation.
            tools: JSON schemas, or None.
            train_on: ``"all"`` replies, or the ``"last"`` message.
            merge: join turns into one sample where each is proved to be a prefix of the next turn's prompt.
            max_length: the most tokens of a full sequence.
            truncation: what happens to longer ones: ``"error"``, ``"drop"``, ``"left"`` (the oldest turns go, system
                message and newest turn stay whole), ``"right"``.

        Raises:
            TemplateError: the named reason.
            AlignmentError: a sample is longer than ``max_length`` and may not, or cannot, be cut.
        """
        options = SampleOptions(train_on, merge, max_length, truncation)
        options.check()
        row = Row(messages, tools, self.engine.clock())
        turns = self.engine.finish(plan_samples(self.engine, row, options))
        return assemble(self.engine, row, turns, options).samples

    def report(self) -> TemplateReport:
        """Say what this template does with every kind of conversation, and which settings it needs.

        What fails is reported, never raised; ``print(template.report())`` is the first thing to do with a new model.
        """
        return examine(self.engine, self.settings())

    def encode(self, text: str) -> list[int]:
        """Encode text as it stands: control tokens are recognised, nothing is put in front or behind.

        Raises:
            TemplateError: ``invalid_option`` where it is no text, ``encoding_failed``.
        """
        if not isinstance(text, str):
            raise refuse("invalid_option", f"text is {shown(text)}, expected a text", hint="pass a str")
        return list(self.engine.encoder.text(text).tolist())

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to text, control tokens included.

        Raises:
            TemplateError: ``invalid_option``, naming what is no token of this tokenizer.
        """
        return self.engine.encoder.decode(known_ids(self.tokenizer, ids))

    @property
    def tokenizer(self) -> Any:  # noqa: ANN401 - any tokenizer
        """The tokenizer."""
        return self.engine.tokenizer

    @property
    def stop_ids(self) -> list[int]:
        """The ids that end a reply."""
        return self.engine.stop_ids

    @property
    def stop_strings(self) -> list[str]:
        """The texts that end a reply, longest first."""
        return self.engine.stop_strings

    @property
    def reads_clock(self) -> bool:
        """Whether a template of this tokenizer can print a date."""
        return self.engine.reads_clock

    @property
    def fingerprint(self) -> str:
        """A SHA-256 of the tokenizer and its templates: two that agree give the same tokens."""
        return self.engine.fingerprint

    def settings(self) -> dict[str, Any]:
        """Give what it renders with, as plain values: what a lock file keeps, for serving must match."""
        options = self.engine.options
        return {
            "tokenizer": self.engine.name,
            "template_kwargs": dict(options.template_kwargs),
            "thinking": options.thinking,
            "after_stop": options.after_stop,
            "system_slot": options.system_slot,
            "sanitize": options.sanitize,
            "train_tool_calls": options.train_tool_calls,
            "stop_strings": self.stop_strings,
            "clock": None if options.clock is None else options.clock.isoformat(),
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.engine.tokenizer, self.engine.options)


def _rebuild(tokenizer: Any, options: Options) -> ChatTemplate:  # noqa: ANN401 - any tokenizer
    """Make a ChatTemplate again on the other side of a process boundary: compiled templates do not pickle."""
    fields = {name: getattr(options, name) for name in Options.__dataclass_fields__ if name != "template_kwargs"}
    return ChatTemplate(tokenizer, **fields, **options.template_kwargs)


def build_chat_samples(
    messages: object,
    tokenizer: Any,  # noqa: ANN401 - any tokenizer
    tools: object = None,
    **options: Any,  # noqa: ANN401 - of ChatTemplate and of samples()
) -> list[Sample]:
    """Build the samples of one conversation in one call.

    Args:
        messages: the conversation.
        tokenizer: as for ChatTemplate; make one ChatTemplate to build many.
        tools: JSON schemas, or None.
        **options: of ChatTemplate and of its ``samples``.

    Raises:
        TemplateError: the named reason.
        AlignmentError: a sample is longer than ``max_length``.
    """
    chosen = {name: options.pop(name) for name in SampleOptions.__dataclass_fields__ if name in options}
    return ChatTemplate(tokenizer, **options).samples(messages, tools, **chosen)
