"""Public names that are imported when they are first used, so that importing a package loads nothing heavy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

from samplekit.errors import MissingExtraError


def lazy_names(
    package: str, homes: Mapping[str, str], *, what: str = "", needs: Collection[str] = ()
) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package whose names resolve on first use.

    Args:
        package: the package's full name.
        homes: the submodule that defines each public name.
        what: how to call the package where a module it needs is not installed.
        needs: the modules of the extra `local` that it needs.

    Returns:
        The function; it raises AttributeError for a name that is not public, and MissingExtraError, with the command
        that installs it, where a module of the extra is not there.
    """

    def resolve(name: str) -> Any:  # noqa: ANN401 - a public name of any kind
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(f"{package}.{home}"), name)
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in needs:
                raise
            raise MissingExtraError(
                f'{what} needs {error.name}, which is not installed: pip install "samplekit[local]"', extra="local"
            ) from error
        setattr(sys.modules[package], name, value)
        return value

    return resolve
