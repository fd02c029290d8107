"""Which checkpoint a new session may go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samplekit.server.refusals import invalid
from samplekit.server.step_settings import muon_scaling
from samplekit.wire.names import CheckpointType

if TYPE_CHECKING:
    from samplekit.server.bodies import SessionBody
    from samplekit.server.checkpoints import Checkpoint
    from samplekit.server.records import Resources
    from samplekit.server.settings import LoraSettings


# What an adapter was trained with: another value would make other weights of the same numbers.
_DECIDED = ("rank", "alpha", "train_unembed")


def resumed_adapter(checkpoint: Checkpoint, asked: LoraSettings | None) -> LoraSettings | None:
    """Give how a session is adapted that goes on from a checkpoint: as it was, but for what is asked otherwise."""
    if checkpoint.lora is None or asked is None:
        return checkpoint.lora
    return checkpoint.lora.model_copy(update=asked.model_dump(exclude_unset=True))


def refuse_resuming(checkpoint: Checkpoint, resources: Resources, body: SessionBody) -> None:
    """Refuse a checkpoint that does not fit the session that is to go on from it.

    Raises:
        Refusal: one is LoRA and the other is not, the adapter was trained otherwise, or the optimizers differ (400).
    """
    if (checkpoint.lora is not None) != resources.lora_enabled:
        kind = "a LoRA adapter" if checkpoint.lora is not None else "full weights"
        raise invalid(f"{checkpoint.id} holds {kind}: create resources with lora_enabled={checkpoint.lora is not None}")
    if body.lora_config is not None and checkpoint.lora is not None:
        asked, saved = body.lora_config.model_dump(exclude_unset=True), checkpoint.lora.model_dump()
        for name in _DECIDED:
            if asked.get(name, saved[name]) != saved[name]:
                raise invalid(
                    f"lora_config.{name} is {asked[name]!r}, {checkpoint.id} holds {saved[name]!r}: leave it out to "
                    "take the checkpoint's"
                )
    if checkpoint.type is CheckpointType.INFERENCE:
        if body.load_optimizer:
            raise invalid(
                f"load_optimizer is true, {checkpoint.id} is for inference and has no optimizer: leave it out"
            )
    elif body.load_optimizer is not False and checkpoint.by_muon != (muon_scaling(resources) is not None):
        raise invalid(
            f"{checkpoint.id} was trained by {'Muon' if checkpoint.by_muon else 'Adam'}, the resources train by the "
            "other: create others, or pass load_optimizer=false to take the weights alone"
        )
