"""What needs torch: logprobs of a model, the reference of every loss, and gradients of losses of one's own.

Names resolve on first use; where torch is not installed, the error names the command that installs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from samplekit.errors import MissingExtraError

if TYPE_CHECKING:
    from samplekit.training.chunks import gather_logprobs as gather_logprobs
    from samplekit.training.collate import PackingCollator as PackingCollator
    from samplekit.training.diagnostics import FirstStep as FirstStep
    from samplekit.training.diagnostics import diagnose_first_step as diagnose_first_step
    from samplekit.training.diagnostics import policy_diagnostics as policy_diagnostics
    from samplekit.training.dpo import DpoOutput as DpoOutput
    from samplekit.training.dpo import dpo_loss as dpo_loss
    from samplekit.training.gradients import check_gradients as check_gradients
    from samplekit.training.gradients import loss_gradients as loss_gradients
    from samplekit.training.logprobs import target_logprobs as target_logprobs
    from samplekit.training.packed import packed_logprobs as packed_logprobs
    from samplekit.training.packed import unpack_tensors as unpack_tensors
    from samplekit.training.reference import LossOutput as LossOutput
    from samplekit.training.reference import closed_form_gradients as closed_form_gradients
    from samplekit.training.reference import compute_loss as compute_loss

_HOMES = {
    "DpoOutput": "dpo",
    "FirstStep": "diagnostics",
    "LossOutput": "reference",
    "PackingCollator": "collate",
    "check_gradients": "gradients",
    "closed_form_gradients": "reference",
    "compute_loss": "reference",
    "diagnose_first_step": "diagnostics",
    "dpo_loss": "dpo",
    "gather_logprobs": "chunks",
    "loss_gradients": "gradients",
    "packed_logprobs": "packed",
    "policy_diagnostics": "diagnostics",
    "target_logprobs": "logprobs",
    "unpack_tensors": "packed",
}

__all__ = [
    "DpoOutput",
    "FirstStep",
    "LossOutput",
    "PackingCollator",
    "check_gradients",
    "closed_form_gradients",
    "compute_loss",
    "diagnose_first_step",
    "dpo_loss",
    "gather_logprobs",
    "loss_gradients",
    "packed_logprobs",
    "policy_diagnostics",
    "target_logprobs",
    "unpack_tensors",
]


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
