"""Correct training samples for remote post-training, proved before they are sent.

Names resolve on first use, so that importing the package loads nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samplekit._version import __version__
from samplekit.lazy import lazy_names

if TYPE_CHECKING:
    from samplekit.batching import FLUSH, SampleBatch, batch, labels_from_mask, unpack
    from samplekit.build import build_sample
    from samplekit.chat import (
        BuildResult,
        ChatTemplate,
        SampleBuilder,
        Skipped,
        TemplateReport,
        Turn,
        build_chat_samples,
    )
    from samplekit.checks import Finding, Report, check
    from samplekit.errors import (
        AlignmentError,
        ConnectionFailedError,
        FileFormatError,
        LossInputError,
        MissingExtraError,
        OperationError,
        OperationFailedError,
        OperationTimeoutError,
        PackingError,
        PrefixMismatchError,
        SampleError,
        SamplekitError,
        ServiceError,
        StatusError,
        TemplateError,
    )
    from samplekit.files import read_chats, read_samples, write_samples
    from samplekit.losses import CISPO, DPPO, DRO, GRPO, PPO, CrossEntropy, ImportanceSampling
    from samplekit.packing import PackedRecord, Plan, Record, StreamingPacker, balance, pack, plan_packing
    from samplekit.rollouts import (
        Completion,
        EncodingDrift,
        Group,
        SampleList,
        Step,
        Trajectory,
        build_grpo_samples,
        build_trajectory_samples,
        encoding_drift,
        group_advantages,
        group_from_openai,
        group_from_vllm,
        group_metrics,
        groups_from_openai,
        groups_from_together,
        rollout_metrics,
    )
    from samplekit.sample import EncodedText, ModelInput, Sample, TensorData

__all__ = [  # noqa: RUF022 - in the plain order of sorted()
    "AlignmentError",
    "BuildResult",
    "CISPO",
    "ChatTemplate",
    "Completion",
    "ConnectionFailedError",
    "CrossEntropy",
    "DPPO",
    "DRO",
    "EncodedText",
    "EncodingDrift",
    "FLUSH",
    "FileFormatError",
    "Finding",
    "GRPO",
    "Group",
    "ImportanceSampling",
    "LossInputError",
    "MissingExtraError",
    "ModelInput",
    "OperationError",
    "OperationFailedError",
    "OperationTimeoutError",
    "PPO",
    "PackedRecord",
    "PackingError",
    "Plan",
    "PrefixMismatchError",
    "Record",
    "Report",
    "Sample",
    "SampleBatch",
    "SampleBuilder",
    "SampleError",
    "SampleList",
    "SamplekitError",
    "ServiceError",
    "Skipped",
    "StatusError",
    "Step",
    "StreamingPacker",
    "TemplateError",
    "TemplateReport",
    "TensorData",
    "Trajectory",
    "Turn",
    "__version__",
    "balance",
    "batch",
    "build_chat_samples",
    "build_grpo_samples",
    "build_sample",
    "build_trajectory_samples",
    "check",
    "encoding_drift",
    "group_advantages",
    "group_from_openai",
    "group_from_vllm",
    "group_metrics",
    "groups_from_openai",
    "groups_from_together",
    "labels_from_mask",
    "pack",
    "plan_packing",
    "read_chats",
    "read_samples",
    "rollout_metrics",
    "unpack",
    "write_samples",
]

_HOMES = {
    "batching": ("FLUSH", "SampleBatch", "batch", "labels_from_mask", "unpack"),
    "build": ("build_sample",),
    "chat": ("BuildResult", "ChatTemplate", "SampleBuilder", "Skipped", "TemplateReport", "Turn", "build_chat_samples"),
    "checks": ("Finding", "Report", "check"),
    "errors": (
        "AlignmentError",
        "ConnectionFailedError",
        "FileFormatError",
        "LossInputError",
        "MissingExtraError",
        "OperationError",
        "OperationFailedError",
        "OperationTimeoutError",
        "PackingError",
        "PrefixMismatchError",
        "SampleError",
        "SamplekitError",
        "ServiceError",
        "StatusError",
        "TemplateError",
    ),
    "files": ("read_chats", "read_samples", "write_samples"),
    "losses": ("CISPO", "CrossEntropy", "DPPO", "DRO", "GRPO", "ImportanceSampling", "PPO"),
    "packing": ("PackedRecord", "Plan", "Record", "StreamingPacker", "balance", "pack", "plan_packing"),
    "rollouts": (
        "Completion",
        "EncodingDrift",
        "Group",
        "SampleList",
        "Step",
        "Trajectory",
        "build_grpo_samples",
        "build_trajectory_samples",
        "encoding_drift",
        "group_advantages",
        "group_from_openai",
        "group_from_vllm",
        "group_metrics",
        "groups_from_openai",
        "groups_from_together",
        "rollout_metrics",
    ),
    "sample": ("EncodedText", "ModelInput", "Sample", "TensorData"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__getattr__ = lazy_names("samplekit", _HOME_OF)


def __dir__() -> list[str]:
    return list(__all__)
