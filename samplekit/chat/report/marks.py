"""``{% generation %}`` marks against what trains here: every character that differs is given to a named rule.

Marks cover one render of the whole conversation; here every reply trains behind the prompt that serving sends for it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from samplekit.chat.engine import Engine
from samplekit.chat.environment import MARK_END, MARK_START
from samplekit.chat.messages import Conversation
from samplekit.chat.plan import Planner, Program
from samplekit.chat.render import Renderer
from samplekit.chat.report.facts import MarkDifference, Marks
from samplekit.chat.report.trials import Kind
from samplekit.chat.turn import Draft
from samplekit.errors import TemplateError

RULES = {
    "trains_after_stop": "marks also train what the template writes after the stop, which a model never produces",
    "trains_the_prompt": "marks also train what serving supplies: the end of the generation prompt",
    "trains_context": "marks train text for which no prompt exists, such as a reply that opens the conversation",
    "other_prompt": "marks train behind a prompt that serving never sends; it sends",
    "other_reply": "marks train an earlier reply in a form that the model never emits; it emits",
    "no_sample": "marks train a reply that has no right sample with these settings",
    "trains_cut_stop": "marks train a stop behind a reply that was cut by length, where the model gave none",
    "leaves_out_stop": "marks do not train the stop",
    "leaves_out_reply": "marks do not train all of the reply",
    "writes_no_stop": "the template writes no stop, so that marks cannot train it; it is appended here",
    "merged_token": "a token of the whole render reaches over the end of the prompt, and marks train all of it",
    "unreadable": "the template changes what its marks surround, so that their places cannot be told",
}
_EXAMPLE = 60


class Marked(NamedTuple):
    """A render and, for each of its characters, whether a mark covers it."""

    text: str
    covered: bytearray


class Difference(NamedTuple):
    """One difference in one conversation: its rule and the text it was seen in."""

    rule: str
    example: str


@dataclass(frozen=True, slots=True)
class Served:
    """A reply as samplekit sees it.

    Attributes:
        prompt: what serving sends for it; empty where it cannot be rendered.
        header: the end of the prompt that asks for a reply.
        draft: its plan, or None.
        code: why there is no plan.
        is_split: whether its first token would merge with the prompt's last one.
    """

    prompt: str
    header: str
    draft: Draft | None
    code: str
    is_split: bool


def read_marks(text: str) -> Marked:
    r"""Take the marks out of a render and tell which characters they covered.

    >>> read_marks("a" + MARK_START + "bc" + MARK_END + "d")
    Marked(text='abcd', covered=bytearray(b'\x00\x01\x01\x00'))
    """
    plain: list[str] = []
    covered, depth = bytearray(), 0
    for character in text:
        if character in (MARK_START, MARK_END):
            depth += 1 if character == MARK_START else -1
        else:
            plain.append(character)
            covered.append(depth > 0)
    return Marked("".join(plain), covered)


def compare_marks(engine: Engine, kinds: Sequence[Kind], clock: dt.datetime) -> Marks:
    """Compare a template's marks with what trains here, in many kinds of conversation.

    Args:
        engine: the template and its settings.
        kinds: conversations; those that the template does not render are left out.
        clock: the one time of the report.
    """
    if not any(_has_marks(engine.program(name)) for name in engine.template_names):
        return Marks(present=False)
    found: dict[Difference, list[str]] = {}
    compared: list[str] = []
    for kind in kinds:
        differences = compare_kind(engine, kind, clock)
        if differences is None:
            continue
        compared.append(kind.name)
        for difference in differences:
            first = next((known for known in found if _alike(known, difference)), difference)
            names = found.setdefault(first, [])
            if kind.name not in names:
                names.append(kind.name)
    entries = (MarkDifference(rule, tuple(names), example, RULES[rule]) for (rule, example), names in found.items())
    return Marks(True, tuple(compared), tuple(entries))


def compare_kind(engine: Engine, kind: Kind, clock: dt.datetime) -> list[Difference] | None:
    """Compare in one conversation; None where it cannot be rendered or its template has no marks."""
    try:
        program, conversation, _ = engine.read(kind.messages, kind.tools)
        renderer = program.renderer.with_marks()
        whole = _render(renderer, program, conversation, len(conversation.views), clock)
        plain = _render(program.renderer, program, conversation, len(conversation.views), clock)
    except TemplateError:
        return None
    if MARK_START not in whole:
        return None
    marked = read_marks(whole)
    if marked.text != plain:
        return [Difference("unreadable", "")]
    planner = engine.planner(program, conversation, clock, {})
    replies = [place for place, message in enumerate(conversation.messages) if message.role == "assistant" and place]
    served = [_serve(engine, program, conversation, planner, place, clock) for place in replies]
    return list(dict.fromkeys(_Walk(marked).differences(served)))


def _alike(one: Difference, other: Difference) -> bool:
    """Tell whether two differences are one to a reader: refusals differ by their code, others by their rule."""
    return one.rule == other.rule and (one.rule != "no_sample" or one.example == other.example)


def _has_marks(program: Program) -> bool:
    return MARK_START in program.renderer.with_marks().literals


def _serve(
    engine: Engine, program: Program, conversation: Conversation, planner: Planner, place: int, clock: dt.datetime
) -> Served:
    try:
        draft, code = planner.draft(place), ""
        is_split = engine.finish([draft])[0].mode == "split"
    except TemplateError as error:
        draft, code, is_split = None, error.code, False
    try:
        before = _render(program.renderer, program, conversation, place, clock)
        asked = _render(program.renderer, program, conversation, place, clock, reply_follows=True)
    except TemplateError:
        before = asked = ""
    prompt = asked if draft is None else "".join(draft.prompt)
    header = prompt[len(before) :] if prompt.startswith(before) else ""
    return Served(prompt, header, draft, code, is_split)


def _render(
    renderer: Renderer,
    program: Program,
    conversation: Conversation,
    count: int,
    clock: dt.datetime,
    *,
    reply_follows: bool = False,
) -> str:
    return renderer.render(
        conversation.views[:count],
        conversation.tools,
        program.kwargs.default,
        reply_follows=reply_follows,
        clock=clock,
    )


class _Walk:
    """Go through a marked render, reply by reply; every covered character before the cursor has been accounted for."""

    def __init__(self, marked: Marked) -> None:
        self._text, self._covered = marked
        self._cursor = 0
        self._lost = False  # since the cursor stands a reply whose place is not known
        self._behind = "trains_context"  # the rule for what marks cover from the cursor on

    def differences(self, replies: list[Served]) -> Iterator[Difference]:
        """Yield every difference."""
        for reply in replies:
            yield from self._reply(reply)
        if not self._lost:
            yield from self._gap(len(self._text))

    def _reply(self, reply: Served) -> Iterator[Difference]:
        if reply.draft is None:
            yield from self._refused(reply)
            return
        completion, stop = reply.draft.completion, reply.draft.stop or ""
        in_context = self._text.startswith(reply.prompt)
        if reply.draft.info.get("stop_appended"):
            yield Difference("writes_no_stop", stop)
            completion, stop = completion.removesuffix(stop), ""
        if not in_context:
            yield Difference("other_prompt", _tail(reply.prompt))
        start = len(reply.prompt) if in_context else self._text.find(completion, self._cursor)
        if start < 0 or not self._text.startswith(completion, start):
            yield Difference("other_reply", _tail(completion))
            self._lost = True
            return
        yield from self._before(start, start - len(reply.header) if in_context else self._run_end(start))
        yield from self._inside(start, completion, stop)
        if reply.is_split:
            yield Difference("merged_token", completion[:_EXAMPLE])
        self._cursor, self._lost = start + len(completion), False
        self._behind = "trains_after_stop" if reply.draft.stop else "trains_cut_stop"

    def _refused(self, reply: Served) -> Iterator[Difference]:
        yield Difference("no_sample", reply.code)
        if reply.prompt and not self._text.startswith(reply.prompt):
            yield Difference("other_prompt", _tail(reply.prompt))
        else:
            yield from self._between(len(reply.prompt) - len(reply.header), len(reply.prompt), "trains_the_prompt")
        self._lost = True

    def _before(self, start: int, asked: int) -> Iterator[Difference]:
        """Account for what lies between the reply before and this one, which is asked for from ``asked`` on."""
        asked = max(self._cursor, asked)
        if not self._lost:
            yield from self._gap(asked)
        yield from self._between(asked, start, "trains_the_prompt")

    def _gap(self, end: int) -> Iterator[Difference]:
        """Account for what follows a reply, up to where the next one is asked for."""
        behind = self._run_end(end)
        yield from self._between(self._cursor, behind, self._behind)
        yield from self._between(behind, end, "trains_context")

    def _run_end(self, limit: int) -> int:
        """Find where the covered run that starts at the cursor ends."""
        return next((place for place in range(self._cursor, limit) if not self._covered[place]), limit)

    def _inside(self, start: int, completion: str, stop: str) -> Iterator[Difference]:
        end = start + len(completion)
        yield from self._between(start, end - len(stop), "leaves_out_reply", covered=False)
        yield from self._between(end - len(stop), end, "leaves_out_stop", covered=False)

    def _between(self, start: int, end: int, rule: str, *, covered: bool = True) -> Iterator[Difference]:
        """Yield the runs of covered, or of uncovered, characters in a stretch."""
        wrong = [place for place in range(start, end) if bool(self._covered[place]) is covered]
        if wrong:
            first = wrong[0]
            length = next((step for step, (a, b) in enumerate(pairwise(wrong), 1) if b != a + 1), len(wrong))
            yield Difference(rule, self._text[first : first + min(length, _EXAMPLE)])


def _tail(text: str) -> str:
    return text[-_EXAMPLE:]
