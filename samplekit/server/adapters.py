"""Copies of a base model for a session: whole, or sharing its weights under a LoRA adapter."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch and transformers annotate only part of what is used here)

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any, cast

import torch
from peft import LoraConfig, get_peft_model

if TYPE_CHECKING:
    from samplekit.server.settings import LoraSettings


def copy_whole(base: torch.nn.Module) -> torch.nn.Module:
    """Copy a model with weights of its own, all of them trainable; tied weights stay tied."""
    return copy.deepcopy(base).requires_grad_(requires_grad=True)


def copy_frozen_shared(model: torch.nn.Module) -> torch.nn.Module:
    """Copy a model for reading: frozen weights are shared with it, trainable ones are copied and frozen."""
    shared = {id(weight): weight for weight in model.parameters() if not weight.requires_grad}
    return copy.deepcopy(model, dict(shared)).requires_grad_(requires_grad=False).eval()


def copy_with_adapter(base: torch.nn.Module, settings: LoraSettings) -> torch.nn.Module:
    """Hang a LoRA adapter on every linear layer of a copy that shares the base's weights.

    Only the adapter is trainable; its second factor starts at 0, so the first answers are the base model's.
    """
    model = copy_frozen_shared(base)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=linear_layers(model, with_head=settings.train_unembed),
        bias="none",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # An adapter on a tied output head adapts the head alone, which is what train_unembed asks for.
        warnings.filterwarnings("ignore", message="Model (with|has) `tie_word_embeddings=True`")
        # GPT-2's layers are stored transposed; peft notices by itself and says so.
        warnings.filterwarnings("ignore", message="fan_in_fan_out is set to")
        torch.manual_seed(settings.seed)
        adapted = get_peft_model(cast("Any", model), config)
    return cast("torch.nn.Module", adapted).eval()


def linear_layers(model: torch.nn.Module, *, with_head: bool) -> list[str]:
    """Name every linear layer of a model, its output head only where asked."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None  # type: ignore[operator]  # pyright: ignore[reportCallIssue, reportUnknownVariableType]
    kinds = ("Linear", "Conv1D")  # GPT-2 spells its linear layers Conv1D
    return [
        name
        for name, layer in model.named_modules()
        if type(layer).__name__ in kinds and (with_head or layer is not head)
    ]


def set_adapter_dropout(model: torch.nn.Module, *, active: bool) -> None:
    """Switch the dropout of adapters on or off; the base model stays in evaluation mode."""
    for name, layer in model.named_modules():
        if "lora_dropout" in name:
            layer.train(active)


class SeededDropout:
    """Adapter dropout for one pass, drawn from the session's seed and the pass's number: a replay repeats it."""

    def __init__(self, model: torch.nn.Module, lora: LoraSettings | None, number: int) -> None:
        self._model = model if lora is not None and lora.dropout > 0 else None
        self._seed = hash((0 if lora is None else lora.seed, number)) % 2**63
        self._state = torch.empty(0)

    def __enter__(self) -> None:
        if self._model is not None:
            self._state = torch.random.get_rng_state()
            torch.manual_seed(self._seed)
            set_adapter_dropout(self._model, active=True)

    def __exit__(self, *_: object) -> None:
        if self._model is not None:
            set_adapter_dropout(self._model, active=False)
            torch.random.set_rng_state(self._state)
