"""The rungs on text: how a prompt and a full render fit together, or the named reason why they do not."""

from __future__ import annotations

from dataclasses import dataclass

from samplekit.chat.cuts import shared_length
from samplekit.chat.messages import Message
from samplekit.chat.refusals import HINTS, refuse
from samplekit.chat.thoughts import closes_at_once, empty_thought_start, ends_in_open_thought
from samplekit.errors import PrefixMismatchError, TemplateError

_CONTEXT = 40


@dataclass(frozen=True, slots=True)
class Fit:
    """A prompt as served and the text of the reply that continues it.

    Attributes:
        prompt: the prompt's text.
        completion: the text that follows it.
        grafted: whether an empty thinking block of the prompt is missing from the full render.
    """

    prompt: str
    completion: str
    grafted: bool


def fit(prompt: str, full: str, reply: Message, *, last_text: str, switch: str | None, template: str) -> Fit:
    """Fit a full render to its prompt.

    Args:
        prompt: render of the messages before the reply, asking for one.
        full: render including the reply.
        reply: the reply.
        last_text: the text of the message before the reply: a difference before its end is a rewritten prompt.
        switch: the template's thinking switch, for the hint.
        template: the template's name.

    Raises:
        TemplateError: ``open_think_without_reasoning``, ``reasoning_dropped_by_template``.
        PrefixMismatchError: ``prefix_mismatch`` or ``prompt_rewritten``.
    """
    if not prompt:
        raise refuse(
            "empty_prompt", "the template renders an empty prompt for this reply", index=reply.index, template=template
        )
    is_open = ends_in_open_thought(prompt)
    if is_open and not reply.reasoning:
        raise refuse(
            "open_think_without_reasoning",
            "the prompt opens a thinking block that this reply, which has no reasoning, would only learn to close",
            index=reply.index,
            hint=f"pass {switch}=False or thinking=False" if switch else None,
            template=template,
        )
    start = empty_thought_start(prompt)
    if full.startswith(prompt):
        if start is not None and reply.reasoning:
            raise refuse(
                "reasoning_dropped_by_template",
                "the prompt closes an empty thinking block, and the reply's reasoning would train as a second one",
                index=reply.index,
                hint="pass thinking='auto' or thinking=True, or remove the reasoning from the reply",
                template=template,
            )
        if is_open and closes_at_once(full[len(prompt) :]):
            raise refuse(
                "open_think_without_reasoning",
                "the prompt opens a thinking block that the template closes at once, ignoring the reply's reasoning",
                index=reply.index,
                hint="give the reasoning as reasoning_content instead of inside the content",
                template=template,
            )
        return Fit(prompt, full[len(prompt) :], grafted=False)
    if start is not None and not reply.reasoning and full.startswith(prompt[:start]):
        return Fit(prompt, full[start:], grafted=True)
    raise _mismatch(prompt, full, reply, last_text=last_text, template=template)


def _mismatch(prompt: str, full: str, reply: Message, *, last_text: str, template: str) -> TemplateError:
    if reply.reasoning and reply.reasoning.strip() not in full:
        return refuse(
            "reasoning_dropped_by_template",
            "the template drops the reply's reasoning",
            index=reply.index,
            template=template,
        )
    place = shared_length(prompt, full)
    end = prompt.rfind(last_text.strip()) + len(last_text.strip())
    code = "prompt_rewritten" if place < end else "prefix_mismatch"
    return mismatch(
        code, "character", place, _around(prompt, place), _around(full, place), index=reply.index, template=template
    )


def mismatch(
    code: str, unit: str, place: int, prompt_context: str, full_context: str, *, index: int, template: str
) -> PrefixMismatchError:
    """Make the error of two renders that differ.

    Args:
        code: ``prefix_mismatch`` or ``prompt_rewritten``.
        unit: what ``place`` counts.
        place: the first difference.
        prompt_context: what stands around it in the prompt.
        full_context: what stands around it in the other render.
        index: the reply's place in the conversation.
        template: the template's name.
    """
    found = (
        f"message {index}: the prompt is not a prefix of the conversation with its reply: {unit} index {place} "
        f"differs, the prompt has {prompt_context!r} and the other {full_context!r}; {HINTS[code]}"
    )
    return PrefixMismatchError(
        found,
        index=place,
        prompt_context=prompt_context,
        full_context=full_context,
        code=code,
        message_index=index,
        hint=HINTS[code],
        template=template,
    )


def _around(text: str, place: int) -> str:
    return text[max(0, place - _CONTEXT) : place + _CONTEXT]
