"""Prompts that end inside the last reply, for the model to carry on."""

from __future__ import annotations

from samplekit.chat.messages import Conversation
from samplekit.chat.plan import Program
from samplekit.chat.refusals import refuse
from samplekit.chat.render import Render

_CUT_HERE = "Cqsentinelq"


def continued_text(program: Program, conversation: Conversation, render: Render) -> str:
    """Render a conversation up to the end of its last reply's content.

    A sentinel put behind the content marks the place, so an equal text earlier cannot.

    Raises:
        TemplateError: ``no_final_reply`` where the last message is no plain reply, ``content_dropped`` where the
            template changes the end of its content.
    """
    reply = conversation.messages[-1]
    name = program.renderer.name
    if reply.role != "assistant" or reply.calls:
        found = f"continue_final needs an assistant message without tool calls, found a {reply.role} message"
        raise refuse("no_final_reply", found, index=reply.index, hint="end with the text to continue", template=name)
    content = reply.view["content"]
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    marked = {**reply.view, "content": program.shape.content(text + _CUT_HERE)}
    views = conversation.views[: len(conversation.views) - 1]
    before, found, _ = render([*views, marked]).rpartition(_CUT_HERE)
    if not found or not render([*views, reply.view]).startswith(before):
        trimmed = found and text != text.rstrip()
        raise refuse(
            "content_dropped",
            "the template strips the white space at the end of the last message"
            if trimmed
            else "the last message is not rendered as it is",
            index=reply.index,
            hint="strip it before continuing" if trimmed else None,
            template=name,
        )
    return before
