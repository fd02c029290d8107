"""The Jinja environment chat templates run in: transformers' own, with its slow attribute path short-cut.

Most of a render is attribute access (``message.role``, ``loop.first``, ``text.startswith``), and the sandbox answers
each one by raising and catching an exception or by a chain of safety checks. The shortcuts below give the same answer
for the few types templates really touch, and leave everything else to the sandbox. ``tests/chat/test_environment.py``
holds the two equal. Where one of them can apply, it is also written into the compiled template itself, so that the
common case costs no call.
"""

from __future__ import annotations

import json
from types import BuiltinMethodType
from typing import Any, cast

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MARK_START, MARK_END = "\ufdd4", "\ufdd5"
_DICT_ATTRIBUTES = frozenset(dir(dict))
_DICT_READERS = frozenset({"get", "items", "keys", "values"})
_STR_READERS = frozenset(name for name in dir(str) if not name.startswith("_")) - {"format", "format_map"}
_LOOP_READERS = frozenset(name for name in dir(LoopContext) if not name.startswith("_"))


class _GenerationTag(Extension):
    """Read ``{% generation %}`` as transformers does: its body renders in a scope of its own."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Scope:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _MarkedGenerationTag(_GenerationTag):
    """Write MARK_START and MARK_END around what ``{% generation %}`` covers, so that its spans can be read off."""

    def parse(self, parser: Parser) -> nodes.Scope:
        scope = super().parse(parser)
        return nodes.Scope([_text(MARK_START), *scope.body, _text(MARK_END)], lineno=scope.lineno)


class _ShortCuts(CodeGenerator):
    """Write the common case of an attribute, an item or a text's method in place, and the sandbox's way behind it."""

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:  # noqa: N802 - jinja2's own spelling
        """Write ``message.role`` and ``loop.first``."""
        if node.attr in _DICT_ATTRIBUTES or node.attr in _STR_READERS:
            super().visit_Getattr(node, frame)
        elif node.attr in _LOOP_READERS:
            self._choose(node.node, "LoopContext", f".{node.attr}", frame)
            self.write(f"environment.getattr(held, {node.attr!r}))")
        else:
            self._choose(node.node, "dict", f"[{node.attr!r}]", frame, f" and {node.attr!r} in held")
            self.write(f"environment.getattr(held, {node.attr!r}))")

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:  # noqa: N802
        """Write ``content.strip()``: a text's method with constants, so that nothing is written twice."""
        method = node.node
        constants = [arg.value for arg in node.args if isinstance(arg, nodes.Const)]
        plain = len(constants) == len(node.args) and not (node.kwargs or node.dyn_args or node.dyn_kwargs)
        if not (plain and isinstance(method, nodes.Getattr) and method.attr in _STR_READERS):
            super().visit_Call(node, frame, forward_caller=forward_caller)
            return
        shown = ", ".join(map(repr, constants))
        self._choose(method.node, "str", f".{method.attr}({shown})", frame)
        self.write(f"environment.call(context, environment.getattr(held, {method.attr!r})")
        self.write(f", {shown}))" if shown else "))")

    def _choose(self, owner: nodes.Expr, kind: str, shortcut: str, frame: Frame, also: str = "") -> None:
        self.write(f"(held{shortcut} if type(held := ")
        self.visit(owner, frame)
        self.write(f") is {kind}{also} else ")


class _Namespace(Namespace):
    """Keep a template's own variables as plain attributes, which are read without a call."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - "self" may be one of the variables
        variables: dict[str, Any] = dict(*args[1:], **kwargs)
        vars(cast("object", args[0])).update(variables)

    __getattribute__ = object.__getattribute__  # pyright: ignore[reportAssignmentType]

    def __setitem__(self, name: str, value: Any) -> None:  # noqa: ANN401 - any value
        vars(self)[name] = value

    def __repr__(self) -> str:
        return f"<Namespace {vars(self)!r}>"


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Render what transformers' sandbox renders, faster."""

    code_generator_class = _ShortCuts

    def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401 - whatever a template touches
        """Give an attribute or item of ``obj`` as the sandbox would."""
        kind: object = type(obj)  # pyright: ignore[reportUnknownVariableType]
        if kind is dict:
            if attribute not in _DICT_ATTRIBUTES:
                try:
                    return obj[attribute]
                except KeyError:
                    return self.undefined(obj=obj, name=attribute)
            if attribute in _DICT_READERS:
                return getattr(obj, attribute)
        elif (kind is str and attribute in _STR_READERS) or (kind is LoopContext and attribute in _LOOP_READERS):
            return getattr(obj, attribute)
        elif kind is _Namespace and not attribute.startswith("_"):
            try:
                return getattr(obj, attribute)
            except AttributeError:
                return self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, N805, PYI063 - jinja2's own spelling
        """Call ``__obj`` as the sandbox would; built-in methods cannot carry its marks, so they run at once."""
        if __obj is _Namespace or type(__obj) is BuiltinMethodType:
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            try:
                return __obj(*args, **kwargs)
            except StopIteration:
                return __self.undefined("value was undefined because a callable raised a StopIteration exception")
        return super().call(__context, __obj, *args, **kwargs)


def _text(text: str) -> nodes.Output:
    return nodes.Output([nodes.TemplateData(text)])


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _tojson(
    value: Any,  # noqa: ANN401 - any JSON
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def chat_environment(*, marked: bool = False) -> ChatEnvironment:
    """Build the environment: trimmed blocks, loop controls, ``generation`` tags, JSON without HTML escapes.

    Args:
        marked: write MARK_START and MARK_END around what ``generation`` tags cover.

    Returns:
        An environment whose templates expect ``strftime_now`` among the render's variables: the clock belongs to a
        conversation, not to a process.
    """
    tag = _MarkedGenerationTag if marked else _GenerationTag
    environment = ChatEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[tag, loopcontrols])
    filters: dict[str, Any] = environment.filters
    filters["tojson"] = _tojson
    environment.globals["namespace"] = _Namespace
    environment.globals["raise_exception"] = _raise_exception  # pyright: ignore[reportArgumentType] - typed for its own
    return environment
