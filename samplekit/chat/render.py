"""One chat template, compiled: messages in, text out, and every failure a TemplateError."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import jinja2
from jinja2 import meta, nodes

from samplekit.chat.environment import chat_environment
from samplekit.chat.refusals import refuse

MessageDict: TypeAlias = dict[str, Any]
ToolDict: TypeAlias = dict[str, Any]
Render: TypeAlias = Callable[[list[MessageDict]], str]

_ENVIRONMENT = chat_environment()
_MARKED_ENVIRONMENT = chat_environment(marked=True)
_GIVEN = frozenset({"messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now"})


class Renderer:
    """Render one template as transformers would, with the clock handed in.

    Attributes:
        text: the template's source.
        name: what errors call it.
        variables: the names the template reads that a caller may set.
        settings: those of them that are meant to be set: not the template's own variables.
        reads_clock: whether the template can print a date.
        literals: the texts it can write by itself.
    """

    def __init__(self, text: str, constants: Mapping[str, Any], name: str, *, marked: bool = False) -> None:
        self.text = text
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        self.name = name or f"template {digest[:12]}"
        self._constants = {**_ENVIRONMENT.globals, "documents": None, **constants}
        try:
            self._template, names, own, self.literals = _compile(text, marked)
        except Exception as error:
            raise refuse(
                "template_raised", f"{self.name} does not compile: {_words(error)}", template=self.name
            ) from error
        self.variables = names - _GIVEN - frozenset(_ENVIRONMENT.globals)
        self.settings = self.variables - own
        self.reads_clock = "strftime_now" in names

    def with_marks(self) -> Renderer:
        """Give a renderer of the same template that also writes where its ``generation`` tags start and end."""
        return Renderer(self.text, self._constants, self.name, marked=True)

    def render(
        self,
        messages: list[MessageDict],
        tools: list[ToolDict] | None,
        kwargs: Mapping[str, Any],
        *,
        reply_follows: bool,
        clock: dt.datetime,
        index: int | None = None,
    ) -> str:
        """Render a conversation to text.

        Args:
            messages: normalised messages.
            tools: JSON schemas, or None.
            kwargs: what the template may read besides.
            reply_follows: add the header that asks for a reply.
            clock: the one time this conversation knows.
            index: the message an error names.

        Raises:
            TemplateError: code ``template_raised``, with the template's own words.
        """
        try:
            context = self._template.new_context(
                {
                    **self._constants,
                    "strftime_now": clock.strftime,
                    **kwargs,
                    "messages": messages,
                    "tools": tools,
                    "add_generation_prompt": reply_follows,
                },
                shared=True,
            )
            return "".join(self._template.root_render_func(context))
        except Exception as error:
            raise refuse(
                "template_raised", f"{self.name} raised {_words(error)}", index=index, template=self.name
            ) from error


def bind(renderer: Renderer, kwargs: Mapping[str, Any], clock: dt.datetime) -> Callable[..., str | None]:
    """Give a probe: a function that renders, or answers None where the template refuses."""
    defaults = kwargs

    def probe(
        messages: list[MessageDict],
        *,
        tools: list[ToolDict] | None = None,
        reply_follows: bool = False,
        kwargs: Mapping[str, Any] | None = None,
    ) -> str | None:
        chosen = defaults if kwargs is None else kwargs
        try:
            return renderer.render(messages, tools, chosen, reply_follows=reply_follows, clock=clock)
        except ValueError:
            return None

    return probe


@lru_cache(maxsize=64)
def _compile(text: str, marked: bool) -> tuple[jinja2.Template, frozenset[str], frozenset[str], str]:
    """Compile a template; give the names it reads, those it sets itself and the texts it can write by itself."""
    environment = _MARKED_ENVIRONMENT if marked else _ENVIRONMENT
    tree = environment.parse(text)
    names = frozenset(meta.find_undeclared_variables(tree))
    literals = "\0".join(_literals(tree))
    template = environment.from_string(tree)
    template.globals = {}  # every render would copy them: they stand among the variables instead
    return template, names, _own_names(tree), literals


def _own_names(tree: nodes.Template) -> frozenset[str]:
    """List the names a template only sets for itself: where it asks if one is defined, a caller may set that too."""
    names = list(tree.find_all(nodes.Name))
    kept, passed = ({name.name for name in names if name.ctx == use} for use in ("store", "param"))
    asked = [test.node for test in tree.find_all(nodes.Test) if test.name in ("defined", "undefined")]
    asked += [call.node for call in tree.find_all(nodes.Filter) if call.name in ("default", "d") and call.node]
    return frozenset(passed | kept - {node.name for node in asked if isinstance(node, nodes.Name)})


def _literals(tree: nodes.Template) -> list[str]:
    """List the texts a template can write by itself."""
    written = [data.data for data in tree.find_all(nodes.TemplateData)]
    return written + [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]


def _words(error: Exception) -> str:
    text = str(error) or "no message"
    return f"'{text}'" if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {text}"
