"""What needs torch: how likely a model finds the targets of samples.

Names resolve on first use; where torch is not installed, the error names the command that installs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from samplekit.errors import MissingExtraError

if TYPE_CHECKING:
    from samplekit.training.logprobs import target_logprobs as target_logprobs

_HOMES = {"target_logprobs": "logprobs"}

__all__ = ["target_logprobs"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a public name of any kind
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'samplekit.training' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"samplekit.training.{home}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "torch":
            raise
        raise MissingExtraError(
            'samplekit.training needs torch, which is not installed: pip install "samplekit[local]"', extra="local"
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
