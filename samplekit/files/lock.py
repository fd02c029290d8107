"""The lock beside a samples file: what the samples were built with, so that training and serving can be held to it."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol, cast

import orjson

from samplekit.errors import FileFormatError
from samplekit.files.lines import read_lines

_PACKAGES = ("samplekit", "transformers", "tokenizers", "jinja2", "numpy")


class Template(Protocol):
    """What a lock needs to know of a chat template."""

    @property
    def fingerprint(self) -> str:
        """A digest of the tokenizer and the template's text."""
        ...

    def settings(self) -> dict[str, Any]:
        """Give the name, the template kwargs and the options it renders with."""
        ...


def lock_path(path: str | os.PathLike[str]) -> Path:
    """Give the path of a samples file's lock: its name with ``.lock.json`` behind it."""
    return Path(f"{os.fspath(path)}.lock.json")


def make_lock(template: Template, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Describe what samples are built with: tokenizer and template fingerprint, template kwargs, versions.

    Args:
        template: the chat template.
        more: other settings of the run to keep, as plain JSON values.
    """
    return {
        "fingerprint": template.fingerprint,
        "template": template.settings(),
        **more,
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def read_lock(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Read the lock beside a samples file, or give None where there is none.

    Raises:
        FileFormatError: there is one and it is not JSON.
    """
    beside = lock_path(path)
    if not beside.exists():
        return None
    try:
        found = orjson.loads(beside.read_bytes())
    except orjson.JSONDecodeError as error:
        raise FileFormatError(f"{beside} is not JSON ({error}): build the samples again", path=str(beside)) from error
    if not isinstance(found, dict):
        raise FileFormatError(f"{beside} is no JSON object: build the samples again", path=str(beside))
    return cast("dict[str, Any]", found)


def locked_clock(path: str | os.PathLike[str]) -> dt.datetime | None:
    """Give the time that the samples of a file were rendered with, or None where its lock names none."""
    template: Any = (read_lock(path) or {}).get("template")
    clock: Any = cast("dict[str, Any]", template).get("clock") if isinstance(template, dict) else None
    return dt.datetime.fromisoformat(clock) if isinstance(clock, str) else None


def check_lock(path: str | os.PathLike[str], template: Template | None = None) -> Mapping[str, Any] | None:
    """Hold a samples file, and the template that will serve it, to its lock; give the lock, or None without one.

    Raises:
        FileFormatError: the file is not the one the lock was written for, or the template is another.
    """
    lock = read_lock(path)
    if lock is None:
        return None
    name = os.fspath(path)
    contents: Any = lock.get("samples")
    digest = hashlib.sha256()
    for _, line in read_lines(name):
        digest.update(line)
    if not isinstance(contents, dict) or cast("dict[str, Any]", contents).get("sha256") != digest.hexdigest():
        raise FileFormatError(
            f"{name} is not the file that {lock_path(name).name} was written for: it was changed since, or its writing "
            "was cut short; build it again or remove the lock",
            path=name,
        )
    if template is not None and lock.get("fingerprint") != template.fingerprint:
        raise FileFormatError(
            f"{name} was built with the tokenizer and template {lock.get('fingerprint')}, and this one is "
            f"{template.fingerprint}: build the samples again with it",
            path=name,
        )
    return lock
