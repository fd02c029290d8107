"""A model's logits at some positions only: the output head, the dearest layer of a small model, reads no others.

The head's input is cut, not its output, so whatever the model does to logits afterwards (scaling, capping) stays, as
long as it goes id by id. A model that works position by position after its head is read whole.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch and transformers annotate only part of what is used here)

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any

import torch

from samplekit.errors import SampleError
from samplekit.sample.kinds import describe_kind
from samplekit.training.chunks import refuse_logits

if TYPE_CHECKING:
    from collections.abc import Generator


def logits_at(
    model: torch.nn.Module, tokens: torch.Tensor, index: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Give the logits of some positions, or all of them and which ones are meant.

    Args:
        model: called with ``input_ids``, and without a cache where it would keep one.
        tokens: int64 (B, T).
        index: positions that are wanted, into B * T, int64 (N,).

    Returns:
        (N, V) and None; or (B * T, V) and ``index``, where the head could not be cut.

    Raises:
        SampleError: the model gives something else than one row of logits for every position.
    """
    cut: list[torch.nn.Module] = []
    with _head_reading(model, index, tokens.shape, cut):
        try:
            logits = raw_logits(_called(model, tokens))  # (1, N, V), or (B, T, V) without a head
        except (RuntimeError, SampleError) as error:
            if not cut or isinstance(error, torch.OutOfMemoryError):
                raise
            logits = None
    if logits is None or (cut and logits.shape[:2] != (1, len(index))):  # what follows the head goes by position
        cut, logits = [], raw_logits(_called(model, tokens))
    if not cut:
        _refuse_other_positions("logits", logits, tokens.shape)
    return logits.reshape(-1, logits.shape[-1]), None if cut else index


def logits_of(output: Any) -> torch.Tensor:  # noqa: ANN401 - a transformers output, or the logits themselves
    """Give a model's logits (B, T, V) in float32, or float64 where the model computes in it."""
    logits = raw_logits(output)
    return logits if logits.dtype == torch.float64 else logits.float()


def raw_logits(output: Any) -> torch.Tensor:  # noqa: ANN401 - as logits_of
    """Give a model's logits as they are.

    Raises:
        SampleError: it gives no tensor of floats.
    """
    logits: object = getattr(output, "logits", output)
    if not isinstance(logits, torch.Tensor):
        raise SampleError(f"model gives {describe_kind(logits)}, expected logits or an output with .logits: wrap it")
    refuse_logits(logits)
    return logits


def _called(model: torch.nn.Module, tokens: torch.Tensor) -> Any:  # noqa: ANN401 - whatever the model gives
    try:
        return model(input_ids=tokens, **_without_cache(model))
    except IndexError as error:  # an embedding, of ids or of positions, that the model does not name
        raise SampleError(
            f"the model cannot read a batch whose largest id is {int(tokens.max())} and whose longest sample holds "
            f"{tokens.shape[1]} tokens ({error}), expected ids of its vocabulary and no more positions than it "
            "has: use the model's own tokenizer, and shorter samples"
        ) from error


def _without_cache(model: torch.nn.Module) -> dict[str, bool]:
    """Give the option that keeps a model from holding keys and values of every layer, which only generation reads."""
    if not hasattr(getattr(model, "config", None), "use_cache"):
        return {}
    # a wrapper may carry the config of what it wraps and yet take input_ids only
    known = inspect.signature(model.forward).parameters.values()
    takes = any(item.name == "use_cache" or item.kind is item.VAR_KEYWORD for item in known)
    return {"use_cache": False} if takes else {}


def _refuse_other_positions(what: str, given: torch.Tensor, read: torch.Size) -> None:
    """Refuse values (B, T, ...) of other positions than those read: shifted by one, they look as good."""
    if given.shape[:-1] not in (read, (read.numel(),)):
        raise SampleError(
            f"{what} of the model have shape {tuple(given.shape)}, input_ids have shape {tuple(read)}, expected one "
            "row for every position read: cut off what the model puts before or after them"
        )


@contextlib.contextmanager
def _head_reading(
    model: torch.nn.Module, index: torch.Tensor, read: torch.Size, cut: list[torch.nn.Module]
) -> Generator[None]:
    """Let a model's output head read only some of the B * T positions, and note in ``cut`` that it did."""
    find: Any = getattr(model, "get_output_embeddings", None)
    head = find() if find is not None else None
    if not isinstance(head, torch.nn.Module):
        yield
        return

    def select(head: torch.nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        if not given:  # called by keyword: it reads everything
            return given
        hidden, *rest = given  # (B, T, H)
        _refuse_other_positions("inputs to the output head", hidden, read)
        cut.append(head)
        return (hidden.reshape(-1, hidden.shape[-1])[index].unsqueeze(0), *rest)

    handle = head.register_forward_pre_hook(select)
    try:
        yield
    finally:
        handle.remove()
