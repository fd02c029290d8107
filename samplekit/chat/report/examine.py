"""Ask everything, and put the answers together."""

from __future__ import annotations

import re
from typing import Any

from samplekit.chat.engine import Engine
from samplekit.chat.report.facts import Answer, Bos, Marks, Stops, TemplateReport, Thinking, Verdict
from samplekit.chat.report.marks import compare_marks
from samplekit.chat.report.probes import (
    Prober,
    ask_bos,
    ask_calls,
    ask_prompt_end,
    ask_reasoning,
    ask_results,
    ask_roles,
    ask_stops,
    ask_tools,
    prints_date,
)
from samplekit.chat.report.trials import CUT, KINDS, PLAIN, REASONING, Trials
from samplekit.chat.tokens import special_strings
from samplekit.errors import TemplateError

_ABOUT_THINKING = re.compile(r"think|thought|reason", re.IGNORECASE)


def examine(engine: Engine, settings: dict[str, Any]) -> TemplateReport:
    """Examine a template with its settings; what fails is an answer, never an exception.

    Args:
        engine: the template, the tokenizer and the settings.
        settings: the settings as plain values.
    """
    clock = engine.clock()
    prober = Prober(engine.program_for(has_tools=False), clock)
    with_tools = Prober(engine.program_for(has_tools=True), clock)
    trials = Trials(engine, clock)
    verdicts = tuple(map(trials.verdict, KINDS))
    roles = ask_roles(prober, with_tools)
    bos, stops = _bos(engine, prober), _stops(engine, prober, with_tools)
    dated = prints_date(prober) or prints_date(with_tools)
    tools, calls, results = ask_tools(with_tools), ask_calls(with_tools), ask_results(with_tools)
    thinking = _thinking(prober, {verdict.kind: verdict for verdict in verdicts})
    variables = prober.program.renderer.settings | with_tools.program.renderer.settings
    return TemplateReport(
        name=prober.program.renderer.name,
        fingerprint=engine.fingerprint,
        templates=tuple(engine.template_names),
        settings=settings,
        renders=roles["user"],
        roles=roles,
        system_slot=roles["system"],
        tools=tools,
        tool_calls=calls,
        tool_results=results,
        arguments="text" if with_tools.program.shape.arguments_as_text else "object",
        content="parts" if prober.program.shape.wants_parts else "text",
        reasoning=ask_reasoning(prober, with_tools),
        thinking=thinking,
        kwargs=tuple(sorted(variables - {thinking.switch, *thinking.others} - set(special_strings(engine.tokenizer)))),
        stops=stops,
        bos=bos,
        prints_date=dated,
        marks=_marks(engine, prober),
        verdicts=verdicts,
        advice=(
            *_settings(verdicts),
            *_automatic(trials, verdicts, thinking.switch),
            *_shortcomings(verdicts, stops, (tools, calls, results)),
        ),
    )


def _marks(engine: Engine, prober: Prober) -> Marks:
    try:
        return compare_marks(engine, [kind for kind in KINDS if kind is not CUT], prober.clock)
    except TemplateError:
        return Marks(present=True)


def _stops(engine: Engine, prober: Prober, with_tools: Prober) -> Stops:
    try:
        ids = engine.stop_ids
    except TemplateError:  # a stop that the tokenizer cannot encode
        ids = []
    return ask_stops(prober, with_tools, ids, engine.stop_strings)


def _bos(engine: Engine, prober: Prober) -> Bos:
    token = special_strings(engine.tokenizer).get("bos_token")
    return ask_bos(prober, engine.tokenizer, token if isinstance(token, str) else None)


def _thinking(prober: Prober, verdicts: dict[str, Verdict]) -> Thinking:
    switch = prober.program.kwargs.switch
    variables = prober.program.renderer.settings - {switch}
    others = tuple(sorted(name for name in variables if _ABOUT_THINKING.search(name)))
    advice = _which_setting(switch, verdicts[PLAIN.name], verdicts[REASONING.name])
    if switch in prober.program.kwargs.default:
        advice = f"{switch}={prober.program.kwargs.default[switch]} is set; {advice}"
    return Thinking(switch, others, ask_prompt_end(prober), advice)


def _which_setting(switch: str | None, plain: Verdict, reasoned: Verdict) -> str:
    """Say which setting replies without and with reasoning need."""
    parts: list[str] = []
    for verdict, what in ((plain, "without"), (reasoned, "with")):
        if verdict.builds:
            parts.append(f"replies {what} reasoning need no setting")
        elif verdict.remedy.startswith("thinking="):
            value = verdict.remedy.partition("=")[2]
            parts.append(f"set {switch}={value} ({verdict.remedy}) for replies {what} reasoning")
        else:
            parts.append(f"no setting builds replies {what} reasoning ({verdict.outcome})")
    return ", ".join(parts)


def _settings(verdicts: tuple[Verdict, ...]) -> list[str]:
    """List the settings that were tried and build something."""
    found: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.remedy:
            found.setdefault(verdict.remedy, []).append(verdict.kind)
    return [f"pass {remedy} for: {', '.join(kinds)}" for remedy, kinds in found.items()]


def _automatic(trials: Trials, verdicts: tuple[Verdict, ...], switch: str | None) -> list[str]:
    """Say whether ``thinking="auto"`` saves a user the choice."""
    mended = [kind for kind, verdict in zip(KINDS, verdicts, strict=True) if verdict.remedy.startswith("thinking=")]
    failing = [kind.name for kind in mended if not trials.builds_automatically(kind)]
    if len(failing) == len(mended):
        return []
    but = f", except for: {', '.join(failing)}" if failing else ""
    return [f"or pass thinking='auto', which sets {switch} for each reply that needs it{but}"]


def _shortcomings(verdicts: tuple[Verdict, ...], stops: Stops, tools: tuple[Answer, ...]) -> list[str]:
    """List what no setting that was tried mends."""
    lines: list[str] = []
    if not stops.strings:
        lines.append("pass stop_tokens= with the token that ends a reply: none is known")
    lost = [what for what, answer in zip(("tools", "calls", "results"), tools, strict=True) if answer.found != "kept"]
    if lost:
        lines.append(f"train conversations with tools on another template: this one does not render {', '.join(lost)}")
    if not verdicts[0].builds and not verdicts[0].remedy:
        lines.append(f"mend the plain chat first: {verdicts[0].message}")
    return lines
