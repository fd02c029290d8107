"""Correct training samples for remote post-training, proved before they are sent.

Names resolve on first use, so that importing the package loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from samplekit._version import __version__

if TYPE_CHECKING:
    from samplekit.build import build_sample as build_sample
    from samplekit.chat import BuildResult as BuildResult
    from samplekit.chat import ChatTemplate as ChatTemplate
    from samplekit.chat import SampleBuilder as SampleBuilder
    from samplekit.chat import Skipped as Skipped
    from samplekit.chat import Turn as Turn
    from samplekit.chat import build_chat_samples as build_chat_samples
    from samplekit.checks import Finding as Finding
    from samplekit.checks import Report as Report
    from samplekit.checks import check as check
    from samplekit.errors import AlignmentError as AlignmentError
    from samplekit.errors import ConnectionFailedError as ConnectionFailedError
    from samplekit.errors import FileFormatError as FileFormatError
    from samplekit.errors import LossInputError as LossInputError
    from samplekit.errors import MissingExtraError as MissingExtraError
    from samplekit.errors import OperationError as OperationError
    from samplekit.errors import OperationFailedError as OperationFailedError
    from samplekit.errors import OperationTimeoutError as OperationTimeoutError
    from samplekit.errors import PackingError as PackingError
    from samplekit.errors import PrefixMismatchError as PrefixMismatchError
    from samplekit.errors import SampleError as SampleError
    from samplekit.errors import SamplekitError as SamplekitError
    from samplekit.errors import ServiceError as ServiceError
    from samplekit.errors import StatusError as StatusError
    from samplekit.errors import TemplateError as TemplateError
    from samplekit.files import read_chats as read_chats
    from samplekit.files import read_samples as read_samples
    from samplekit.files import write_samples as write_samples
    from samplekit.losses import CISPO as CISPO
    from samplekit.losses import DPPO as DPPO
    from samplekit.losses import DRO as DRO
    from samplekit.losses import GRPO as GRPO
    from samplekit.losses import PPO as PPO
    from samplekit.losses import CrossEntropy as CrossEntropy
    from samplekit.losses import ImportanceSampling as ImportanceSampling
    from samplekit.sample import EncodedText as EncodedText
    from samplekit.sample import ModelInput as ModelInput
    from samplekit.sample import Sample as Sample
    from samplekit.sample import TensorData as TensorData

_HOMES = {
    "build": ["build_sample"],
    "chat": ["BuildResult", "ChatTemplate", "SampleBuilder", "Skipped", "Turn", "build_chat_samples"],
    "checks": ["Finding", "Report", "check"],
    "errors": [
        "AlignmentError", "ConnectionFailedError", "FileFormatError", "LossInputError", "MissingExtraError",
        "OperationError", "OperationFailedError", "OperationTimeoutError", "PackingError", "PrefixMismatchError",
        "SampleError", "SamplekitError", "ServiceError", "StatusError", "TemplateError",
    ],
    "files": ["read_chats", "read_samples", "write_samples"],
    "losses": ["CISPO", "CrossEntropy", "DPPO", "DRO", "GRPO", "ImportanceSampling", "PPO"],
    "sample": ["EncodedText", "ModelInput", "Sample", "TensorData"],
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted([*_HOME_OF, "__version__"])  # noqa: PLE0605 - derived, and held to the visible names by a test


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a public name of any kind
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'samplekit' has no attribute {name!r}")
    value = getattr(import_module(f"samplekit.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
