"""Everything a template and a tokenizer do together, behind ChatTemplate and SampleBuilder.

Two phases, so that a batch can be encoded in one call: conversations become drafts (text), drafts become turns
(tokens).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

from samplekit.chat.closings import Closings
from samplekit.chat.control import ControlGuard, control_tokens
from samplekit.chat.encode import Encoder
from samplekit.chat.kwargs import Thinking, plan_kwargs
from samplekit.chat.load import configured_stop_ids
from samplekit.chat.messages import Conversation, Message, read_conversation
from samplekit.chat.plan import AfterStop, Planner, Program, TrainOn, trained_replies
from samplekit.chat.presence import Presence
from samplekit.chat.refusals import check_flags, refuse
from samplekit.chat.render import Renderer, ToolDict, bind
from samplekit.chat.shape import TemplateShape
from samplekit.chat.stops import StopSet, infer_stops
from samplekit.chat.tokens import added_tokens, backend_of, chat_templates, special_strings, token_id, token_text
from samplekit.chat.turn import Draft, Turn, finish

SystemSlot: TypeAlias = Literal["error", "drop", "prepend_user"]
_CHOICES = {"after_stop": ("drop", "mask", "train"), "system_slot": ("error", "drop", "prepend_user")}


@dataclass(frozen=True)
class Options:
    """How a ChatTemplate was asked to behave."""

    stop_tokens: Sequence[int | str] | None = None
    thinking: Thinking = "as_rendered"
    after_stop: AfterStop = "drop"
    system_slot: SystemSlot = "error"
    sanitize: bool = False
    train_tool_calls: bool = True
    clock: dt.datetime | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def check(self) -> None:
        """Refuse values that mean nothing.

        Raises:
            TemplateError: code ``invalid_option``.
        """
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise refuse("invalid_option", f"{name} is {getattr(self, name)!r}", hint=f"pass one of {allowed}")
        check_flags(self, "sanitize", "train_tool_calls")
        stops: object = self.stop_tokens
        if stops is not None and (isinstance(stops, str | bytes) or not isinstance(stops, Sequence | AbstractSet)):
            raise refuse("invalid_option", f"stop_tokens is {stops!r}", hint="pass a list of ids or texts")
        if self.clock is not None and not isinstance(self.clock, dt.datetime):
            raise refuse("invalid_option", f"clock is {self.clock!r}", hint="pass a datetime")


class Engine:
    """Plan and encode for one tokenizer, its templates and one set of options.

    Args:
        tokenizer: any object with the surface of a Hugging Face tokenizer.
        options: how to behave.
    """

    def __init__(self, tokenizer: Any, options: Options) -> None:  # noqa: ANN401 - any tokenizer
        options.check()
        self.tokenizer = tokenizer
        self.options = options
        self.name = str(getattr(tokenizer, "name_or_path", "") or "")
        constants = special_strings(tokenizer)
        self._renderers = {key: Renderer(text, constants, self.name) for key, text in chat_templates(tokenizer).items()}
        written = "\0".join([
            *(renderer.literals for renderer in self._renderers.values()),
            *(value for value in constants.values() if isinstance(value, str)),
        ])  # fmt: skip
        added = added_tokens(tokenizer)
        controls = control_tokens(added, written)
        self._controls = controls
        self._constants = constants
        self.guard = ControlGuard(controls, sanitize=options.sanitize)
        self.encoder = Encoder(tokenizer, added, written, self.guard)
        self.certain_stops = self._certain_stops()
        self._programs: dict[str, Program] = {}
        for key in self._renderers:
            self.program(key)

    def read(self, messages: object, tools: object) -> tuple[Program, Conversation, dict[str, Any]]:
        """Normalise a conversation for its template, and say what was chosen for it.

        Raises:
            TemplateError: ``invalid_message``, ``control_token_in_content``, ``system_message_dropped``.
        """
        program = self.program_for(has_tools=tools is not None and tools not in ("", []))
        conversation = read_conversation(messages, tools, program.shape, self.guard)
        conversation, choice = self._with_system(conversation, program)
        return program, conversation, choice

    def clock(self) -> dt.datetime:
        """Read the one time a conversation or batch knows."""
        return self.options.clock or dt.datetime.now()  # noqa: DTZ005 - templates print local dates, as transformers does

    def drafts(self, messages: object, tools: object, train_on: TrainOn, clock: dt.datetime) -> list[Draft]:
        """Plan the turns of a conversation.

        Args:
            messages: as the caller has them.
            tools: as the caller has them.
            train_on: ``"all"`` or ``"last"``.
            clock: the one time it knows.

        Raises:
            TemplateError: the named reason.
        """
        program, conversation, choice = self.read(messages, tools)
        chosen = trained_replies(conversation, train_on)
        first = conversation.messages[0]
        if train_on == "all" and first.role == "assistant" and first.weight > 0:
            choice = {**choice, "context_only": [first.index]}
        planner = self.planner(program, conversation, clock, choice)
        drafts = [planner.draft(place) for place in chosen]
        planner.prove(chosen[-1])
        return drafts

    @property
    def reads_clock(self) -> bool:
        """Whether a template can print a date."""
        return any(renderer.reads_clock for renderer in self._renderers.values())

    def planner(
        self, program: Program, conversation: Conversation, clock: dt.datetime, choice: Mapping[str, Any]
    ) -> Planner:
        """Give the planner of one conversation."""
        info = dict(choice)
        if self.options.after_stop != "drop":
            info["after_stop"] = self.options.after_stop
        if program.renderer.reads_clock:
            info["clock"] = clock.isoformat()
        return Planner(program, conversation, self.encoder.cutter(), clock, info)

    def prepare(self, drafts: Iterable[Draft]) -> None:
        """Encode the pieces of many drafts in one call, each distinct piece once."""
        self.encoder.prepare(piece for draft in drafts for piece in draft.fresh)

    def finish(self, drafts: Iterable[Draft]) -> list[Turn]:
        """Encode drafts and give their turns in order."""
        ready = list(drafts)
        self.prepare(ready)
        return [finish(draft, self.encoder) for draft in ready]

    @cached_property
    def stop_strings(self) -> list[str]:
        """The text of every stop, of all templates."""
        return list(dict.fromkeys(text for program in self._programs.values() for text in program.stops.strings))

    @cached_property
    def stop_ids(self) -> list[int]:
        """The id that ends each stop."""
        ends = (self.encoder.text(text).tolist() for text in self.stop_strings)
        return sorted({ids[-1] for ids in ends if ids})

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 of the tokenizer and its templates: two that agree give the same tokens."""
        backend = backend_of(self.tokenizer)
        if backend is not None:
            state: dict[str, Any] = json.loads(backend.to_str())
            state["truncation"] = state["padding"] = None
        else:
            state = {"class": type(self.tokenizer).__name__}
            if hasattr(self.tokenizer, "get_vocab"):
                state["vocabulary"] = self.tokenizer.get_vocab()
        templates = {key: renderer.text for key, renderer in self._renderers.items()}
        parts = json.dumps([state, templates, special_strings(self.tokenizer)], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def template_names(self) -> list[str]:
        """The names of the tokenizer's templates; one that has no name is ``default``."""
        return list(self._renderers)

    def program_for(self, *, has_tools: bool) -> Program:
        """Give the program of the template that conversations with, or without, tools use."""
        if has_tools and "tool_use" in self._renderers:
            return self.program("tool_use")
        return self.program("default" if "default" in self._renderers else None)

    def program(self, key: str | None) -> Program:
        """Give the program of a named template, made once; None names the first."""
        key = key or next(iter(self._renderers))
        if key not in self._programs:
            self._programs[key] = self._make_program(self._renderers[key])
        return self._programs[key]

    def _make_program(self, renderer: Renderer) -> Program:
        options = self.options
        kwargs = plan_kwargs(
            renderer.variables, options.template_kwargs, options.thinking, self._constants, renderer.name
        )
        shape = TemplateShape(renderer.text, bind(renderer, kwargs.default, self.clock()))
        inferred = infer_stops(shape, self._controls, self.certain_stops)
        stops = StopSet.of(self.certain_stops, inferred)
        closings = Closings(shape, stops)
        presence = Presence(shape)
        return Program(renderer, shape, kwargs, stops, closings, presence, options.after_stop, options.train_tool_calls)

    def _certain_stops(self) -> list[str]:
        """List the stops that need no inference: the caller's, the tokenizer's eos, generation_config's."""
        texts = [self._stop_text(stop) for stop in self.options.stop_tokens or ()]
        eos = getattr(self.tokenizer, "eos_token", None)
        texts += [str(eos)] if eos else []
        texts += [text for number in configured_stop_ids(self.name) if (text := token_text(self.tokenizer, number))]
        return list(dict.fromkeys(texts))

    def _stop_text(self, stop: int | str) -> str:
        if isinstance(stop, str) and token_id(self.tokenizer, stop) is not None:
            return stop
        if isinstance(stop, int) and not isinstance(stop, bool):
            text = token_text(self.tokenizer, stop)
            if text is not None:
                return text
        raise refuse("invalid_option", f"stop_tokens holds {stop!r}, which is no token of this tokenizer")

    def _with_system(self, conversation: Conversation, program: Program) -> tuple[Conversation, dict[str, Any]]:
        """Apply ``system_slot`` where the template has none."""
        system = conversation.messages[0]
        if system.role != "system" or not system.text.strip() or program.shape.has_system_slot:
            return conversation, {}
        slot = self.options.system_slot
        rest = [message for message in conversation.messages if message is not system]
        if slot == "error":
            self._check_renders(rest, conversation.tools, program)
            found = f"{program.renderer.name} has no place for a system message"
            raise refuse("system_message_dropped", found, index=0, template=program.renderer.name)
        user = next((place for place, message in enumerate(rest) if message.role == "user"), None)
        if slot == "prepend_user":
            if user is None:
                raise refuse("system_message_dropped", "there is no user message to prepend it to", index=0)
            text = f"{system.text}\n\n{rest[user].text}"
            view = {**rest[user].view, "content": program.shape.content(text)}
            rest[user] = replace(rest[user], text=text, view=view)
        return Conversation.of(rest, conversation.tools), {"system_slot": slot}

    def _check_renders(self, messages: list[Message], tools: list[ToolDict] | None, program: Program) -> None:
        """Let a template that raises without the system message too speak for itself."""
        if messages:
            views = [message.view for message in messages]
            follows = messages[-1].role != "assistant"
            program.renderer.render(views, tools, program.kwargs.default, reply_follows=follows, clock=self.clock())
