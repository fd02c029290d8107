"""The local service: the same paths as the real one, a torch model behind them.

Names resolve on first use; where the extra is not installed, the error names the command that installs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samplekit.lazy import lazy_names

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

__all__ = ["LoadedModel", "LocalService", "Service", "create_app", "load_model"]

__getattr__ = lazy_names(
    "samplekit.server", _HOMES, what="the local service", needs=("peft", "starlette", "torch", "uvicorn")
)


def __dir__() -> list[str]:
    return list(__all__)
