"""What a template may be told: its own kwargs, and which of them switches thinking."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from samplekit.chat.refusals import refuse

Thinking: TypeAlias = Literal["as_rendered", "auto"] | bool

# Boolean switches seen in published templates, the most common first. Those that only concern earlier turns
# (preserve_thinking, clear_thinking, ...) are kwargs like any other.
SWITCHES = ("enable_thinking", "thinking", "enable_reasoning", "reasoning", "think")


@dataclass(frozen=True, slots=True)
class KwargsPlan:
    """The kwargs to render with.

    Attributes:
        default: used for every prompt and first for every reply.
        switch: the template's thinking switch, or None.
        automatic: whether a reply that does not fit is tried again with the switch.
    """

    default: dict[str, Any]
    switch: str | None
    automatic: bool

    def retries(self, *, reasons: bool) -> list[dict[str, Any]]:
        """List what to try for a reply that does not fit with the default: the switch as the reply needs it."""
        if not self.automatic or self.switch is None or self.switch in self.default:
            return []
        return [{**self.default, self.switch: reasons}]


def plan_kwargs(
    variables: frozenset[str], given: Mapping[str, Any], thinking: Thinking, constants: Mapping[str, Any], name: str
) -> KwargsPlan:
    """Check kwargs against the names a template reads and set its thinking switch.

    Args:
        variables: names the template reads.
        given: the caller's kwargs.
        thinking: ``"as_rendered"``, ``"auto"``, True or False.
        constants: special tokens, which a caller may override.
        name: the template's name.

    Raises:
        TemplateError: ``unknown_template_kwarg``, or ``invalid_option`` for a thinking value that cannot be set.
    """
    for key in given:
        if key not in variables and key not in constants and key != "documents":
            near = difflib.get_close_matches(key, variables, 1) or sorted(variables - set(constants))[:8]
            hint = f"it reads {', '.join(near)}" if near else "it reads no kwargs"
            raise refuse("unknown_template_kwarg", f"{name} does not read {key!r}", hint=hint, template=name)
    switch = next((key for key in SWITCHES if key in variables), None)
    if thinking in ("as_rendered", "auto"):
        return KwargsPlan(dict(given), switch, automatic=thinking == "auto")
    if not isinstance(thinking, bool):
        raise refuse(
            "invalid_option",
            f"thinking is {thinking!r}",
            hint="pass 'as_rendered', 'auto', True or False",
            template=name,
        )
    if switch is None:
        raise refuse(
            "invalid_option",
            f"{name} declares no thinking switch, so thinking={thinking} cannot be set",
            hint="leave thinking='as_rendered'",
            template=name,
        )
    if given.get(switch, thinking) != thinking:
        raise refuse(
            "invalid_option",
            f"thinking={thinking} and {switch}={given[switch]!r} disagree",
            hint="pass one",
            template=name,
        )
    return KwargsPlan({**given, switch: thinking}, switch, automatic=False)
