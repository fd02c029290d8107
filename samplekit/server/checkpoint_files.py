"""Weights as the folders that other tools load: a transformers model with its tokenizer, or a peft adapter."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch, transformers and peft annotate only part of what is used here)

from __future__ import annotations

import copy
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from peft import PeftModel, set_peft_model_state_dict
from safetensors.torch import load_file, load_model

from samplekit.server.quiet import without_bars

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from transformers import PreTrainedModel

    from samplekit.server.model_loading import LoadedModel
    from samplekit.server.policy import Policy

ADAPTER_FILE, MODEL_FILE = "adapter_model.safetensors", "model.safetensors"
ONE_SHARD = 2**62  # bytes


def write_adapter(policy: Policy, base: LoadedModel, folder: Path) -> None:
    """Write a policy's adapter as peft does; its configuration names the base model as this service was given it."""
    adapted: Any = policy.trained
    adapted.peft_config["default"].base_model_name_or_path = base.name
    with _quiet():
        # Without the last argument peft asks the hub whether the vocabulary was changed.
        adapted.save_pretrained(folder, save_embedding_layers=False)


def write_model(module: torch.nn.Module, base: LoadedModel, folder: Path) -> None:
    """Write whole weights, float32, in one file, and the tokenizer where the base model has one."""
    with without_bars():
        cast("PreTrainedModel", module).save_pretrained(folder, max_shard_size=ONE_SHARD)
    if base.tokenizer is not None:
        base.tokenizer.save_pretrained(folder)


def merged(base: LoadedModel, adapter: Path) -> torch.nn.Module:
    """Add an adapter to a copy of its base model.

    An output head that has an adapter of its own is no longer tied to the embeddings: they stay as they were.
    """
    module: Any = copy.deepcopy(base.module)
    head, embeddings = module.get_output_embeddings(), module.get_input_embeddings()
    names = [name for name, layer in module.named_modules() if layer is head]
    tensors = load_file(adapter / ADAPTER_FILE)
    if head.weight is embeddings.weight and any(f".{name}.lora_" in key for name in names for key in tensors):
        head.weight = torch.nn.Parameter(head.weight.detach().clone(), requires_grad=False)
        module.config.tie_word_embeddings = False
        module.config.get_text_config().tie_word_embeddings = False
    with _quiet():
        return cast("torch.nn.Module", cast("Any", PeftModel.from_pretrained(module, adapter)).merge_and_unload())


def read_weights(policy: Policy, folder: Path) -> None:
    """Let a policy train on from weights that `write_adapter` or `write_model` wrote.

    Raises:
        OSError: the files are not there.
        RuntimeError: they are of another shape, or lack a weight.
    """
    model: Any = policy.trained
    if (folder / ADAPTER_FILE).exists():
        set_peft_model_state_dict(model, load_file(folder / ADAPTER_FILE))
    else:
        load_model(model, folder / MODEL_FILE)


@contextmanager
def _quiet() -> Generator[None]:
    """Pass over what peft says of tied heads, which `merged` looks after, and of GPT-2's transposed layers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Model (with|has) `tie_word_embeddings=True`")
        warnings.filterwarnings("ignore", message="fan_in_fan_out is set to")
        yield
