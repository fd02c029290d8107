"""Read the signatures page (tests/data/signatures.md): every name it promises, with arguments, order and defaults."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parent / "data" / "signatures.md"
_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)?")
_RESULT = re.compile(r"->\s*[\w.]+")


@dataclass(frozen=True)
class Promise:
    """One name of the page.

    Attributes:
        module: where it is imported from.
        owner: the class it is a member of; empty for a name of the module.
        name: of the class, function, method or attribute.
        arguments: as they stand between the parentheses; None where the page gives none (an attribute, or "...").
    """

    module: str
    owner: str
    name: str
    arguments: str | None

    @property
    def label(self):
        return ".".join(filter(None, [self.module, self.owner, self.name]))

    def parameters(self):
        """The arguments as ast reads them; a choice of texts stands for an argument whose name is not promised."""
        text = re.sub(r'"\w+"( \| "\w+")+', "_choice", self.arguments or "")
        return ast.parse(f"def f({text}): ...").body[0].args


def promises(text=None):
    """Give every promise of the page, in order."""
    found = []
    for module, block in _blocks(PAGE.read_text() if text is None else text):
        owner = ""
        for line in _logical_lines(block):
            owner = _scan(line, module, owner, found)
    return list(dict.fromkeys(found))


def _blocks(text):
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        module = re.match(r"samplekit[\w.]*", section)
        if module:
            for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
                yield module[0], block


def _logical_lines(block):
    """Lines without comments, joined where a parenthesis stays open; no text on the page holds a #."""
    waiting = ""
    for line in block.splitlines():
        waiting += (" " if waiting else "") + line.partition("#")[0].rstrip()
        if waiting.count("(") == waiting.count(")"):
            if waiting.strip():
                yield waiting
            waiting = ""
    assert not waiting, waiting


def _closing(text, start):
    depth = 0
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise AssertionError(text)


def _arguments(line, at):
    """The text between parentheses that open here, and what follows them; None where none open."""
    if at < len(line) and line[at] == "(":
        end = _closing(line, at)
        return line[at + 1 : end], end + 1
    return None, at


def _brackets(line, at):
    """Where square brackets that open here have closed."""
    depth = 0
    while at < len(line) and (line[at] == "[" or depth):
        depth += {"[": 1, "]": -1}.get(line[at], 0)
        at += 1
    return at


def _scan(line, module, owner, found):
    """Read one line; give the class that members on the next lines belong to."""
    at = 0
    while at < len(line):
        result, name = _RESULT.match(line, at), _NAME.match(line, at)
        if result:
            at = _add_result(line, result, module, found)
        elif line[at] == "." and (member := _NAME.match(line, at + 1)):
            at = _add(line, member, module, owner, found)
        elif name is None or line[at - 1 : at].strip(" ;"):
            at += 1
        elif "." in name[0] or name[0].startswith("__"):
            owner = name[0].partition(".")[0] if "." in name[0] else owner
            at = _add(line, name, module, owner, found)
        elif at == 0 or line[name.end() : name.end() + 1] == "(":
            owner = name[0]
            at = _add_class(line, name, module, found)
        else:
            at = name.end()
    return owner


def _add_result(line, result, module, found):
    """Add the attributes of a result, where the page lists them; give where it ends."""
    inside, end = _arguments(line, _brackets(line, result.end()))
    name = result[0].removeprefix("->").strip()
    found += [Promise(module, name, item, None) for item in re.findall(r"\.(\w+)", inside or "")]
    return end


def _add_class(line, name, module, found):
    """Add a name of the module, a class with its attributes in parentheses too; give where it ends."""
    arguments, end = _arguments(line, name.end())
    attributes = re.findall(r"\.(\w+)", arguments) if (arguments or "").startswith(".") else []
    found.append(Promise(module, "", name[0], None if attributes else _spelled(arguments)))
    found += [Promise(module, name[0], item, None) for item in attributes]
    return end


def _add(line, name, module, owner, found):
    """Add a member; give where its text ends."""
    arguments, end = _arguments(line, name.end())
    found.append(Promise(module, owner, name[0].rpartition(".")[2], _spelled(arguments)))
    return end


def _spelled(arguments):
    return None if arguments in (None, "...") else " ".join(arguments.split())
