"""One conversation of every kind, built with a template's settings; where that fails, settings that would do."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from samplekit.chat.engine import Engine, Options
from samplekit.chat.merge import merge_turns
from samplekit.chat.report.facts import Verdict
from samplekit.chat.turn import Turn
from samplekit.errors import TemplateError

_BY_THINKING = frozenset({
    "open_think_without_reasoning", "reasoning_dropped_by_template", "prefix_mismatch", "prompt_rewritten",
    "content_dropped",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kind:
    """A conversation to try.

    Attributes:
        name: what the report calls it.
        messages: the conversation.
        tools: its tools, or None.
    """

    name: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None


def _user(content: str = "How much is two plus two?") -> dict[str, Any]:
    return {"role": "user", "content": content}


def _said(content: str = "The answer is four.", **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a message
    return {"role": "assistant", "content": content, **fields}


def _calling(*names: str, content: str = "") -> dict[str, Any]:
    calls = [
        {"id": f"call0000{place}", "type": "function", "function": {"name": name, "arguments": {"city": "Oslo"}}}
        for place, name in enumerate(names)
    ]
    return _said(content, tool_calls=calls)


def _result(content: str, name: str, number: int = 0) -> dict[str, Any]:
    return {"role": "tool", "name": name, "tool_call_id": f"call0000{number}", "content": content}


def _tool(name: str) -> dict[str, Any]:
    properties = {"city": {"type": "string", "description": "Name of the city."}}
    parameters = {"type": "object", "properties": properties, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "description": f"Calls {name}.", "parameters": parameters}}


TOOLS = [_tool("get_weather"), _tool("get_time")]
_WEATHER = [_user("What is the weather in Oslo?"), _calling("get_weather"), _result("It rains hard.", "get_weather")]
_SECOND = _user("And how much is three plus three?")
_THOUGHT = {"reasoning_content": "Adding two and two."}

PLAIN = Kind("plain chat", [_user(), _said()])
REASONING = Kind("reasoning", [_user(), _said(**_THOUGHT)])
CUT = Kind("cut by length", [_user(), _said("The answer is", finish_reason="length")])
KINDS = (
    PLAIN,
    Kind("system message", [{"role": "system", "content": "Be kind and brief."}, _user(), _said()]),
    Kind(
        "three turns", [_user(), _said(), _SECOND, _said("It is six."), _user("Thanks a lot!"), _said("My pleasure.")]
    ),
    REASONING,
    Kind(
        "reasoning in two turns",
        [_user(), _said(**_THOUGHT), _SECOND, _said("It is six.", reasoning_content="Adding threes.")],
    ),
    Kind("inline reasoning", [_user(), _said("<think>\nAdding two and two.\n</think>\n\nThe answer is four.")]),
    Kind("tool flow", [*_WEATHER, _said("Take an umbrella.")], TOOLS),
    Kind("call with prose", [_WEATHER[0], _calling("get_weather", content="Let me look that up.")], TOOLS),
    Kind(
        "parallel calls",
        [
            _user("Weather and time in Oslo?"),
            _calling("get_weather", "get_time"),
            _result("It rains hard.", "get_weather"),
            _result("Half past noon.", "get_time", 1),
            _said("Take an umbrella to lunch."),
        ],
        TOOLS,
    ),
    Kind("tools unused", [_user(), _said()], TOOLS),
    Kind("trailing user", [_user(), _said(), _user("Thanks a lot!")]),
    Kind("consecutive replies", [_user(), _said("The first part."), _said("The second part.")]),
    Kind("white space around", [_user(), _said("\n\n  The answer is four. \n\n")]),
    Kind("empty reply", [_user(), _said("")]),
    CUT,
)


class Trials:
    """Build conversations with an engine, and look for settings that build what fails.

    Args:
        engine: the template and its settings.
        clock: the one time of the report.
    """

    def __init__(self, engine: Engine, clock: dt.datetime) -> None:
        self._engine = engine
        self._clock = clock
        self._others: dict[str, Engine | None] = {}

    def verdict(self, kind: Kind) -> Verdict:
        """Build one conversation, and say what became of it."""
        try:
            turns = self._turns(self._engine, kind)
        except TemplateError as error:
            remedy = self._remedy(kind, error.code)
            return Verdict(kind.name, error.code, False, None, str(error), error.hint or "", remedy)
        modes = list(dict.fromkeys(turn.mode for turn in turns))
        merged = len(merge_turns(turns, None)) == 1 if len(turns) > 1 else None
        return Verdict(kind.name, ", ".join(modes), True, merged)

    def builds_automatically(self, kind: Kind) -> bool:
        """Tell whether ``thinking="auto"`` builds a conversation."""
        other = self._other("thinking='auto'", replace(self._engine.options, thinking="auto"))
        try:
            return other is not None and bool(self._turns(other, kind))
        except TemplateError:
            return False

    def _turns(self, engine: Engine, kind: Kind) -> list[Turn]:
        return engine.finish(engine.drafts(kind.messages, kind.tools, "all", self._clock))

    def _remedy(self, kind: Kind, code: str) -> str:
        """Give a setting that builds a conversation, or an empty text."""
        for label, options in self._candidates(code):
            other = self._other(label, options)
            try:
                if other is not None and self._turns(other, kind):
                    return label
            except TemplateError:
                continue
        return ""

    def _candidates(self, code: str) -> Iterator[tuple[str, Options]]:
        options = self._engine.options
        switch = self._engine.program_for(has_tools=False).kwargs.switch
        open_switch = switch is not None and switch not in options.template_kwargs
        if code in _BY_THINKING and open_switch:
            for setting in (False, True):
                if options.thinking is not setting:
                    yield f"thinking={setting}", replace(options, thinking=setting)
        if code == "system_message_dropped" and options.system_slot == "error":
            yield "system_slot='prepend_user'", replace(options, system_slot="prepend_user")

    def _other(self, label: str, options: Options) -> Engine | None:
        if label not in self._others:
            try:
                self._others[label] = Engine(self._engine.tokenizer, options)
            except TemplateError:
                self._others[label] = None
        return self._others[label]
