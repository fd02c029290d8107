"""What needs torch: logprobs of a model, the reference of every loss, and gradients of losses of one's own.

Names resolve on first use; where torch is not installed, the error names the command that installs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samplekit.lazy import lazy_names

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

__getattr__ = lazy_names("samplekit.training", _HOMES, what="samplekit.training", needs=("torch",))


def __dir__() -> list[str]:
    return list(__all__)
