"""Questions to a template, each one render of sentinels: is this text there afterwards?"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, Literal

from samplekit.chat.plan import Program
from samplekit.chat.report.facts import Answer, Bos, Reasoning, Stops
from samplekit.chat.report.trials import TOOLS
from samplekit.chat.shape import CALL, REPLY, SYSTEM, USER, VALUE
from samplekit.chat.thoughts import empty_thought_start, ends_in_open_thought
from samplekit.errors import TemplateError

_RESULT, _THOUGHT, _EARLIER = "Xqsentinel says so", "Tqsentinel thinks so", "Eqsentinel thought so"
_A_YEAR = dt.timedelta(days=400, hours=5, minutes=7, seconds=11)


@dataclass(frozen=True, slots=True)
class Prober:
    """Ask one template.

    Attributes:
        program: the template with its settings.
        clock: the one time of the report.
    """

    program: Program
    clock: dt.datetime

    def render(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None, *, reply_follows: bool = False
    ) -> str:
        """Render sentinels.

        Raises:
            TemplateError: code ``template_raised``.
        """
        program = self.program
        return program.renderer.render(
            messages, tools, program.kwargs.default, reply_follows=reply_follows, clock=self.clock
        )

    def ask(
        self,
        wanted: str,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        *,
        reply_follows: bool = False,
    ) -> Answer:
        """Tell whether a text stands in the render of a conversation."""
        try:
            text = self.render(messages, tools, reply_follows=reply_follows)
        except TemplateError as error:
            return Answer("raises", words_of(error))
        return Answer("kept" if wanted in text else "dropped")

    def message(self, role: str, text: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a message
        """Spell a message as this template reads it."""
        return {"role": role, "content": self.program.shape.content(text), **fields}

    def calling(self, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a message
        """Spell a reply with one call."""
        shape = self.program.shape
        return {**shape.calling('{"k": "' + VALUE + '"}' if shape.arguments_as_text else {"k": VALUE}), **fields}

    def result(self) -> dict[str, Any]:
        """Spell the result of that call."""
        return self.message("tool", _RESULT, name=CALL, tool_call_id="call00000")


def words_of(error: TemplateError) -> str:
    """Give a template's own words on one line, without what this package puts around them."""
    said = str(error).removesuffix(f"; {error.hint}").partition(" raised ")[2] or str(error)
    line = " ".join(said.split())
    return line if len(line) <= 120 else line[:117] + "..."


def ask_roles(prober: Prober, with_tools: Prober) -> dict[str, Answer]:
    """Ask what happens to a message of each role where it usually stands."""
    user, reply = prober.message("user", USER), prober.message("assistant", REPLY)
    return {
        "system": prober.ask(SYSTEM, [prober.message("system", SYSTEM), user], reply_follows=True),
        "user": prober.ask(USER, [user], reply_follows=True),
        "assistant": prober.ask(REPLY, [user, reply, prober.message("user", "Go on.")], reply_follows=True),
        "tool": ask_results(with_tools),
        "developer": prober.ask(SYSTEM, [prober.message("developer", SYSTEM), user], reply_follows=True),
    }


def ask_tools(prober: Prober) -> Answer:
    """Ask whether the list of tools is rendered."""
    return prober.ask("get_weather", [prober.message("user", USER)], TOOLS, reply_follows=True)


def ask_calls(prober: Prober) -> Answer:
    """Ask whether calls are rendered, with their arguments."""
    answer = prober.ask(CALL, [prober.message("user", USER), prober.calling()], TOOLS)
    if answer.found != "kept":
        return answer
    return prober.ask(VALUE, [prober.message("user", USER), prober.calling()], TOOLS)


def ask_results(prober: Prober) -> Answer:
    """Ask whether a tool's result is rendered."""
    return prober.ask(_RESULT, [prober.message("user", USER), prober.calling(), prober.result()], TOOLS)


def ask_reasoning(prober: Prober, with_tools: Prober) -> Reasoning:
    """Ask in which places reasoning is rendered."""
    key = prober.program.shape.reasoning_key
    if key is None:
        unread = Answer("not tried", "the template reads no field of reasoning")
        return Reasoning(None, unread, unread, unread)
    user, reply = prober.message("user", USER), prober.message("assistant", REPLY, **{key: _THOUGHT})
    earlier = prober.message("assistant", REPLY, **{key: _EARLIER})
    looped = [with_tools.message("user", USER), with_tools.calling(**{key: _EARLIER}), with_tools.result()]
    return Reasoning(
        key,
        reply=prober.ask(_THOUGHT, [user, reply]),
        earlier=prober.ask(_EARLIER, [user, earlier, user, reply]),
        tool_loop=with_tools.ask(_EARLIER, looped, TOOLS, reply_follows=True),
    )


def ask_prompt_end(prober: Prober) -> Literal["open block", "empty block", "no block"]:
    """Look at what a prompt leaves a model with."""
    text = _or_none(prober, [prober.message("user", USER)], reply_follows=True) or ""
    if ends_in_open_thought(text):
        return "open block"
    return "no block" if empty_thought_start(text) is None else "empty block"


def prints_date(prober: Prober) -> bool:
    """Tell whether the text depends on the clock, with tools or without."""
    later = Prober(prober.program, prober.clock + _A_YEAR)
    messages = [prober.message("user", USER)]
    return prober.program.renderer.reads_clock and any(
        _or_none(prober, messages, tools, reply_follows=True) != _or_none(later, messages, tools, reply_follows=True)
        for tools in (None, TOOLS)
    )


def ask_stops(prober: Prober, with_tools: Prober, ids: list[int], strings: list[str]) -> Stops:
    """Look at what closes a reply, and what follows."""
    text = _or_none(prober, [prober.message("user", USER), prober.message("assistant", REPLY)])
    closing, after = _split(prober.program, text, REPLY)
    calls = _or_none(with_tools, [with_tools.message("user", USER), with_tools.calling()], TOOLS)
    after_call, _ = _split(with_tools.program, calls, VALUE)
    return Stops(tuple(ids), tuple(strings), closing, after, after_call, prober.program.stops.appended)


def _split(program: Program, text: str | None, last: str) -> tuple[str | None, str]:
    """Split what follows a reply behind its first stop."""
    if text is None or last not in text:
        return None, ""
    closing = text.rpartition(last)[2]
    found = program.stops.first(closing, 0)
    return (closing[: found[0]], closing[found[0] :]) if found else (None, closing)


def ask_bos(prober: Prober, tokenizer: Any, bos: str | None) -> Bos:  # noqa: ANN401 - any tokenizer
    """Look at who writes the first token; a tokenizer that cannot tell adds none."""
    text = _or_none(prober, [prober.message("user", USER)], reply_follows=True) or ""
    added = _added(tokenizer)
    starts = bool(bos) and text.startswith(str(bos))
    doubled = bool(added) and text.startswith(added)
    return Bos(starts or doubled, doubled, added)


def _added(tokenizer: Any) -> str:  # noqa: ANN401 - any tokenizer
    """Give the text of the special tokens that encoding puts before a text."""
    try:
        plain, full = (list(tokenizer.encode("a", add_special_tokens=special)) for special in (False, True))
        for start in range(1, len(full) + 1):
            if full[start : start + len(plain)] == plain:
                return str(tokenizer.decode(full[:start], skip_special_tokens=False))
    except Exception:  # noqa: BLE001 - a tokenizer of any make: what cannot be asked is not there
        return ""
    return ""


def _or_none(
    prober: Prober,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None = None,
    *,
    reply_follows: bool = False,
) -> str | None:
    try:
        return prober.render(messages, tools, reply_follows=reply_follows)
    except TemplateError:
        return None
