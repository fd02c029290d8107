"""The local service: the same paths as the real one, a torch model behind them.

Names resolve on first use; where the extra is not installed, the error names the command that installs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from samplekit.errors import MissingExtraError

if TYPE_CHECKING:
    from samplekit.server.app import create_app as create_app
    from samplekit.server.local import LocalService as LocalService
    from samplekit.server.model_loading import LoadedModel as LoadedModel
    from samplekit.server.model_loading import load_model as load_model
    from samplekit.server.service import Service as Service

_HOMES = {
    "LoadedModel": "model_loading",
    "LocalService": "local",
    "Service": "service",
    "create_app": "app",
    "load_model": "model_loading",
}
_EXTRA = ("peft", "starlette", "torch", "uvicorn")

__all__ = ["LoadedModel", "LocalService", "Service", "create_app", "load_model"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a public name of any kind
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'samplekit.server' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"samplekit.server.{home}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _EXTRA:
            raise
        raise MissingExtraError(
            f'the local service needs {error.name}, which is not installed: pip install "samplekit[local]"',
            extra="local",
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
