"""What a model can read, refused by name before torch fails somewhere inside it."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch and transformers annotate only part of what is used here)

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from samplekit.errors import SampleError
from samplekit.sample.kinds import is_mapping, is_number, is_whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from samplekit.sample.arrays import IntArray


def refuse_unreadable(model: torch.nn.Module, inputs: Sequence[IntArray]) -> None:
    """Refuse a model without weights, and samples that are too long for it or hold ids that it does not know.

    A sample is too long beyond ``max_position_embeddings`` of the model's config, of which learned positions hold no
    more and beyond which rotary ones were never trained, times the factor of its rope scaling where that gives more. A
    model whose config holds no such number is asked nothing.

    Args:
        model: what shall read them.
        inputs: int64 (T_i,) each.

    Raises:
        SampleError: the message names the sample and the position.
    """
    _refuse_meta(model)
    _refuse_unknown_ids(model, inputs)
    limit = _most_positions(model)
    for index, tokens in enumerate(inputs):
        if limit is not None and len(tokens) > limit:
            raise SampleError(
                f"samples[{index}].model_input holds {len(tokens)} tokens, the model reads {limit} at most (by "
                "max_position_embeddings and rope scaling in its config): cut the sample, or load the model with a "
                "config that allows more"
            )


def _refuse_meta(model: torch.nn.Module) -> None:
    empty = next((name for name, weight in model.named_parameters() if weight.is_meta), None)
    # accelerate keeps what it offloads on the meta device, and brings it in when a layer is called
    if empty is not None and not any(hasattr(module, "_hf_hook") for module in model.modules()):
        raise SampleError(
            f"model holds no values for {empty!r}, which is on the meta device, expected its weights: load the model "
            "with from_pretrained, or give it weights with to_empty and load_state_dict"
        )


def _refuse_unknown_ids(model: torch.nn.Module, inputs: Sequence[IntArray]) -> None:
    """Refuse an id that the model's embedding has no row of, where the model says which layer that is."""
    find: Any = getattr(model, "get_input_embeddings", None)
    size: object = getattr(find() if find is not None else None, "num_embeddings", None)
    if not isinstance(size, int):
        return
    for index, tokens in enumerate(inputs):
        if tokens.max() >= size:
            place = int(tokens.argmax())
            raise SampleError(
                f"samples[{index}].model_input holds {tokens[place]} at position {place}, expected an id of 0 to "
                f"{size - 1}: use the model's own tokenizer"
            )


def _most_positions(model: torch.nn.Module) -> int | None:
    config: Any = getattr(model, "config", None)
    find: Any = getattr(config, "get_text_config", None)
    text: Any = find() if callable(find) else config
    trained: object = getattr(text, "max_position_embeddings", None)
    if not is_whole_number(trained) or trained < 1:
        return None
    return max([trained, *_scaled(getattr(text, "rope_parameters", None), trained)])


def _scaled(rope: object, trained: int) -> Iterator[int]:
    """Yield the positions that rope scaling reaches: of one setting, or of one for each type of layer."""
    if not is_mapping(rope):
        return
    for setting in (rope, *rope.values()):
        if is_mapping(setting) and is_number(factor := setting.get("factor")):
            before: object = setting.get("original_max_position_embeddings")
            yield int(factor * (before if is_whole_number(before) else trained))
