"""TemplateReport: what was found, as plain values, as lines and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

Found: TypeAlias = Literal["kept", "dropped", "raises", "not tried"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a template does with one thing.

    Attributes:
        found: ``kept``, ``dropped`` or ``raises``; ``not tried`` where it cannot be asked.
        words: the template's own words where it raises, the reason where it was not tried.
    """

    found: Found
    words: str = ""

    def __str__(self) -> str:
        return f"{self.found} ({self.words})" if self.words else self.found


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Where a template renders reasoning.

    Attributes:
        key: the message field it reads, or None where it reads none.
        reply: reasoning of the last reply.
        earlier: reasoning of replies before the last user message.
        tool_loop: reasoning of a call whose results follow, without a user message between.
    """

    key: str | None
    reply: Answer
    earlier: Answer
    tool_loop: Answer

    def __str__(self) -> str:
        parts = [f"last reply {self.reply}", f"earlier turns {self.earlier}", f"tool loops {self.tool_loop}"]
        return f"field {self.key or 'none'}; " + ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Thinking:
    """How a template's thinking is switched.

    Attributes:
        switch: the kwarg that ``thinking=`` sets, or None.
        others: further kwargs about thinking, set by name.
        prompt: what a prompt ends in: ``open block``, ``empty block`` or ``no block``.
        advice: which setting to use.
    """

    switch: str | None
    others: tuple[str, ...]
    prompt: Literal["open block", "empty block", "no block"]
    advice: str

    def __str__(self) -> str:
        others = f", also reads {', '.join(self.others)}" if self.others else ""
        return f"switch {self.switch or 'none'}{others}; the prompt ends in {_ENDS[self.prompt]}; {self.advice}"


_ENDS = {
    "open block": "an open thinking block",
    "empty block": "an empty thinking block",
    "no block": "no thinking block",
}


@dataclass(frozen=True, slots=True)
class Stops:
    """What ends a reply.

    Attributes:
        ids: the id that ends each stop.
        strings: the text of each stop, longest first.
        closing: what the template writes from the reply's end through the stop; None where it writes no stop.
        after: what it writes behind the stop, which a model never produces.
        after_call: the same as ``closing`` for a reply that calls a tool.
        appended: the stop that is added where a render ends without one; None where that would be a guess.
    """

    ids: tuple[int, ...]
    strings: tuple[str, ...]
    closing: str | None
    after: str
    after_call: str | None
    appended: str | None


@dataclass(frozen=True, slots=True)
class Bos:
    """Who writes the token that starts a sequence.

    Attributes:
        template: whether the template's text starts with it.
        doubled: whether encoding that text with special tokens adds a second one.
        added: what encoding with special tokens puts around a text.
    """

    template: bool
    doubled: bool
    added: str

    def __str__(self) -> str:
        if self.doubled:
            return (
                f"DOUBLED ({self.added!r} is in the text): encode it with add_special_tokens=False, as samplekit does"
            )
        if self.template:
            return "written by the template, once"
        return f"the tokenizer adds {self.added!r}, chat prompts go without" if self.added else "none"


@dataclass(frozen=True, slots=True)
class MarkDifference:
    """Where ``{% generation %}`` marks train something else than samplekit.

    Attributes:
        rule: its name, a key of ``marks.RULES``.
        kinds: the conversations it was seen in.
        example: the text, or the error code, it was first seen with.
    """

    rule: str
    kinds: tuple[str, ...]
    example: str
    why: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.why}: {self.example!r} ({', '.join(self.kinds)})"


@dataclass(frozen=True, slots=True)
class Marks:
    """The template's own idea of what trains, held against samplekit's.

    Attributes:
        present: whether the template has ``{% generation %}`` blocks.
        compared: the conversations compared.
        differences: one a rule; refusals (``no_sample``) one a code.
    """

    present: bool
    compared: tuple[str, ...] = ()
    differences: tuple[MarkDifference, ...] = ()

    @property
    def agree(self) -> bool:
        """Whether marks train what samplekit trains, wherever it trains something."""
        return bool(self.compared) and all(difference.rule == "no_sample" for difference in self.differences)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one kind of conversation.

    Attributes:
        kind: the conversation.
        outcome: its rungs (``strict``, ``split``, ``graft``), or the code of its error.
        builds: whether samples were built.
        merged: whether its turns join into one sample; None for a single turn.
        message: the error's text.
        hint: the first thing to try.
        remedy: a setting that was tried and builds it, such as ``thinking=False``.
    """

    kind: str
    outcome: str
    builds: bool
    merged: bool | None = None
    message: str = ""
    hint: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class TemplateReport:
    """What a chat template does, asked of the template itself; ``str()`` is the report as text.

    Attributes:
        name: what the tokenizer is called.
        fingerprint: of tokenizer and templates.
        templates: the names of its templates.
        settings: the options it was examined with.
        renders: whether it renders a plain question.
        roles: role -> what happens to such a message.
        system_slot: what happens to a leading system message.
        tools: the list of tools.
        tool_calls: calls in a reply.
        tool_results: messages of role ``tool``.
        arguments: how calls must spell their arguments, ``object`` or ``text``.
        content: how messages must spell their content, ``text`` or ``parts``.
        reasoning: where reasoning is rendered.
        thinking: how thinking is switched.
        kwargs: every other name the template reads.
        stops: what ends a reply.
        bos: who writes the first token.
        prints_date: whether the text depends on the clock.
        marks: its ``{% generation %}`` blocks against what trains here.
        verdicts: one a kind of conversation.
        advice: what to do first, in order.
    """

    name: str
    fingerprint: str
    templates: tuple[str, ...]
    settings: Mapping[str, Any]
    renders: Answer
    roles: Mapping[str, Answer]
    system_slot: Answer
    tools: Answer
    tool_calls: Answer
    tool_results: Answer
    arguments: Literal["object", "text"]
    content: Literal["text", "parts"]
    reasoning: Reasoning
    thinking: Thinking
    kwargs: tuple[str, ...]
    stops: Stops
    bos: Bos
    prints_date: bool
    marks: Marks
    verdicts: tuple[Verdict, ...]
    advice: tuple[str, ...]

    @property
    def builds(self) -> bool:
        """Whether the plain chat becomes a sample with these settings."""
        return self.verdicts[0].builds

    def to_dict(self) -> dict[str, Any]:
        """Give everything as plain values that JSON can hold."""
        fields = asdict(self)
        fields["marks"]["agree"] = self.marks.agree
        return {**fields, "builds": self.builds}

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield what was found as pairs of a label and a text, without the verdicts."""
        yield "template", f"{', '.join(self.templates)}, fingerprint {self.fingerprint[:12]}"
        yield "renders", "yes" if self.renders.found == "kept" else f"no: {self.renders}"
        yield "roles", ", ".join(f"{role} {answer}" for role, answer in self.roles.items())
        yield "system slot", str(self.system_slot)
        yield "tools", f"list {self.tools}, calls {self.tool_calls}, results {self.tool_results}"
        yield "spelling", f"content as {self.content}, call arguments as {self.arguments}"
        yield "reasoning", str(self.reasoning)
        yield "thinking", str(self.thinking)
        yield "other kwargs", ", ".join(self.kwargs) or "none"
        yield from self._stop_lines()
        yield "turns merge", self._merging()
        yield "BOS", str(self.bos)
        yield "dates", "prints the date: serve on the same day, or pass clock=" if self.prints_date else "none"
        yield "generation marks", self._mark_summary()

    def _stop_lines(self) -> Iterator[tuple[str, str]]:
        stops = self.stops
        pairs = [repr(text) for text in stops.strings]
        yield "stops", f"{', '.join(pairs) or 'none'}; ids {', '.join(map(str, stops.ids)) or 'none'}"
        missing = "nothing; " + (f"{stops.appended!r} is appended" if stops.appended else "no stop is certain")
        yield "closes a reply", repr(stops.closing) if stops.closing is not None else missing
        yield "after the stop", f"{stops.after!r}, dropped: no model produces it" if stops.after else "nothing"

    def _merging(self) -> str:
        known = [f"{item.kind} {'yes' if item.merged else 'no'}" for item in self.verdicts if item.merged is not None]
        return ", ".join(known) or "not known: no conversation of several turns builds"

    def _mark_summary(self) -> str:
        if not self.marks.present:
            return "none"
        if not self.marks.compared:
            return "there, but no conversation that renders holds any"
        if self.marks.agree:
            return "train what samplekit trains, in every conversation that builds"
        return "differ:\n" + "\n".join(f"- {difference}" for difference in self.marks.differences)

    def __str__(self) -> str:
        width = 18
        rows = [f"{label:<{width}}{text}".replace("\n", f"\n{'':<{width}}") for label, text in self.lines()]
        kinds = [f"  {item.kind:<26}{item.outcome}{_advice(item)}" for item in self.verdicts]
        todo = [f"  - {line}" for line in self.advice] or ["  nothing: the defaults fit"]
        return "\n".join([self.name, *rows, "verdicts", *kinds, "what to do", *todo])


def _advice(item: Verdict) -> str:
    return "" if item.builds else f": {item.remedy} builds it" if item.remedy else f": {item.hint}"
