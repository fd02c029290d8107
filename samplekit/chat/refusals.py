"""Every named outcome of a chat template, with the first thing to try."""

from __future__ import annotations

import numpy as np

from samplekit.errors import TemplateError
from samplekit.sample.kinds import shown

HINTS = {
    "prefix_mismatch": "try thinking='auto' or another template kwarg, or mend the template: a reply may only add text",
    "open_think_without_reasoning": "switch thinking off with the template's kwarg, or give the reply its reasoning",
    "reasoning_dropped_by_template": "switch thinking on, or remove the reasoning from the message",
    "prompt_rewritten": "the template rewrites earlier messages once a reply follows: train with another template",
    "content_dropped": "mend the template or the message: what is not rendered cannot train or be read",
    "tool_calls_dropped": "use a template that renders tool calls, or write the call into the content",
    "tool_result_dropped": "use a template that renders tool results",
    "tools_ignored": "use a template that renders tools, or leave the tools out",
    "system_message_dropped": "pass system_slot='prepend_user' or system_slot='drop'",
    "no_stop_token": "pass stop_tokens= with the token that ends a reply",
    "no_final_reply": "end the conversation with an assistant message, or pass train_on='all'",
    "nothing_trained": "give at least one assistant message a weight above 0",
    "template_raised": "read the template's own words: it refuses this order or kind of message",
    "unknown_template_kwarg": "check the spelling: the template does not read this name",
    "invalid_format": "convert it to messages, or leave the row out",
    "invalid_message": "mend the message",
    "control_token_in_content": "remove it, or pass sanitize=True to encode it as plain text",
    "empty_prompt": "put a user message before it",
    "no_chat_template": "set tokenizer.chat_template to the model's template",
    "encoding_failed": "mend the text",
    "invalid_option": "correct the option",
    "load_failed": "check the name or the path",
}


def refuse(
    code: str, found: str, *, index: int | None = None, hint: str | None = None, template: str = ""
) -> TemplateError:
    """Make the error of one named outcome.

    Args:
        code: a key of HINTS.
        found: where and what, without the remedy.
        index: the message at fault, put in front of the text.
        hint: what to do; the code's own where None.
        template: the template's name or hash.
    """
    advice = HINTS[code] if hint is None else hint
    where = "" if index is None else f"message {index}: "
    return TemplateError(f"{where}{found}; {advice}", code=code, message_index=index, hint=advice, template=template)


def check_flags(options: object, *names: str) -> None:
    """Refuse options that are neither True nor False: a text such as ``"no"`` would count as True.

    Raises:
        TemplateError: code ``invalid_option``.
    """
    for name in names:
        value: object = getattr(options, name)
        if not isinstance(value, bool | np.bool_):
            raise refuse("invalid_option", f"{name} is {shown(value)}", hint="pass True or False")
