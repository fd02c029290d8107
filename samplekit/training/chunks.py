"""Logprobs of targets from logits, a few rows at a time.

A log-softmax of all rows would hold a second array of the logits' size for the backward pass, and a float32 copy of
half-precision logits a third. Here a chunk of rows is widened once, worked on in place and let go; what is kept for the
backward pass is the logits themselves and two numbers a row.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportIncompatibleMethodOverride=false
# (torch annotates only part of what is used here)

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from samplekit.errors import AlignmentError, SampleError
from samplekit.sample.kinds import describe_kind
from samplekit.training.ranges import refuse_outside

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROWS = 32
_MOST_VALUES = 2**18  # of a chunk of many rows: what a core's cache holds
_LEAST_VALUES = 2**15  # of any chunk: fewer cost more in calls than in work, and are 128 KB
_FEWEST_CHUNKS = 64  # of larger logits: a chunk's float32 copies stay under a tenth of them, bfloat16 or not


def gather_logprobs(logits: torch.Tensor, targets: torch.Tensor, *, temperature: float = 1.0) -> torch.Tensor:
    """Give the logprob of one target a row, differentiably and in little memory.

    Beside the logits, and their gradient once asked for, less than a tenth of their memory is taken, whatever their
    precision and the temperature; of few or small rows 256 KB, or two rows in float32 where those are more.

    Args:
        logits: of a flat batch (N, V) or (1, N, V), or of a padded one (B, T, V).
        targets: int64, of the logits' shape without V; whatever id fills padding must be below V, so -100 is refused.
        temperature: logits are divided by it; finite, above 0.

    Returns:
        Nats, of the shape of targets; float64 where the logits are, else float32.

    Raises:
        AlignmentError: the shapes do not belong together.
        SampleError: temperature is not a finite number above 0, a target is no id below V, or one of the two is no
            dense tensor.
    """
    refuse_temperature(temperature, "gather_logprobs")
    for name, given in (("logits", logits), ("targets", targets)):
        _refuse_unreadable(name, given)
    refuse_logits(logits)
    if logits.shape[:-1] != targets.shape:
        raise AlignmentError(
            f"targets has shape {tuple(targets.shape)}, logits has shape {tuple(logits.shape)}, expected one target "
            "for every row of logits: leave out the last dimension only"
        )
    flat = logits.reshape(-1, logits.shape[-1])
    return rows_logprobs(flat, None, targets.reshape(-1), temperature).reshape(targets.shape)


def refuse_temperature(temperature: object, reader: str) -> None:
    """Refuse a temperature that logits cannot be divided by.

    Args:
        temperature: what was given.
        reader: the function it was given to, for the error.

    Raises:
        SampleError: it is not a finite number above 0.
    """
    advice = "pass the one that the tokens were drawn at, and 1.0 for tokens taken greedily"
    refuse_outside(f"temperature of {reader}", temperature, advice)


def refuse_logits(logits: torch.Tensor) -> None:
    """Refuse what holds no logits.

    Raises:
        SampleError: it holds no floats, or has no last dimension of one value or more.
    """
    if not logits.is_floating_point() or not logits.ndim or not logits.shape[-1]:
        raise SampleError(
            f"logits holds {logits.dtype} of shape {tuple(logits.shape)}, expected floats, one for every id in the "
            "last dimension: pass what the model's output head gives"
        )


def _refuse_unreadable(name: str, given: object) -> None:
    if not isinstance(given, torch.Tensor):
        raise SampleError(f"{name} is {describe_kind(given)}, expected a tensor: pass torch.tensor({name})")
    if given.layout != torch.strided or given.is_meta:
        raise SampleError(
            f"{name} is a tensor of layout {given.layout} on {given.device}, expected a dense one with values: pass "
            f"{name}.to_dense(), or load the model with its weights"
        )


def rows_logprobs(
    logits: torch.Tensor, rows: torch.Tensor | None, targets: torch.Tensor, temperature: float
) -> torch.Tensor:  # fmt: skip
    """Give the logprobs of the targets of some rows.

    Args:
        logits: (M, V).
        rows: which rows are read, each at most once, int64 (N,); all of them where None.
        targets: int64 (N,).
        temperature: logits are divided by it.

    Returns:
        (N,), float64 where the logits are, else float32.

    Raises:
        SampleError: a target is no id below V.
    """
    _refuse_targets(targets, logits.shape[-1])
    found: torch.Tensor = _Gathered.apply(logits, rows, targets, float(temperature))  # type: ignore[no-untyped-call]
    return found


def _refuse_targets(targets: torch.Tensor, vocab_size: int) -> None:
    if targets.dtype != torch.int64:
        raise SampleError(f"targets holds {targets.dtype}, expected int64: pass token ids")
    wrong = (targets < 0) | (targets >= vocab_size)
    if bool(wrong.any()):
        place = int(torch.nonzero(wrong)[0])
        raise SampleError(
            f"targets holds {int(targets[place])} at row {place}, expected an id of 0 to {vocab_size - 1}: put any id "
            "in place of an ignore label and mask the result, and use the model's own tokenizer"
        )


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's own
        logits: torch.Tensor,
        rows: torch.Tensor | None,
        targets: torch.Tensor,
        temperature: float,
    ) -> torch.Tensor:
        norms = logits.new_empty(len(targets), dtype=_wide(logits.dtype))
        peaks, found = torch.empty_like(norms), torch.empty_like(norms)
        for part in _parts(len(targets), logits.shape[-1]):
            peaks[part], norms[part], found[part] = _reduced(logits, rows, part, targets[part], temperature)
        ctx.save_for_backward(logits, rows, targets, peaks, norms)
        ctx.temperature = temperature
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401
        logits, rows, targets, peaks, norms = ctx.saved_tensors
        gradient = torch.empty_like(logits) if rows is None else torch.zeros_like(logits)
        for part in _parts(len(targets), logits.shape[-1]):
            taken = part if rows is None else rows[part]
            at_row = targets[part], peaks[part], norms[part], upstream[part] / ctx.temperature
            gradient[taken] = _slopes(logits, rows, part, ctx.temperature, *at_row)
        return gradient, None, None, None


def _parts(num_rows: int, vocab_size: int) -> Iterator[slice]:
    most = max(_ROWS, _MOST_VALUES // vocab_size)
    size = max(1, _LEAST_VALUES // vocab_size, min(num_rows // _FEWEST_CHUNKS, most))
    for start in range(0, num_rows, size):
        yield slice(start, start + size)


# One chunk at a time: what a function made is let go before the next is called.
def _reduced(
    logits: torch.Tensor, rows: torch.Tensor | None, part: slice, targets: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Give the maximum, the log of the sum over the row below it, and the logprob of the target, of each row."""
    chunk = _widened(logits, rows, part)
    peaks = chunk.amax(-1)
    _lower(chunk, peaks, temperature)
    lowered = chunk.gather(-1, targets[:, None])[:, 0]
    norms = chunk.exp_().sum(-1).log_()
    return peaks, norms, lowered - norms


def _slopes(
    logits: torch.Tensor,
    rows: torch.Tensor | None,
    part: slice,
    temperature: float,
    targets: torch.Tensor,
    peaks: torch.Tensor,
    norms: torch.Tensor,
    scale: torch.Tensor,
) -> torch.Tensor:
    """Give ``scale * d logprob / d logits`` of some rows: 1 at the target, less the softmax."""
    chunk = _widened(logits, rows, part)
    _lower(chunk, peaks, temperature)
    chunk.sub_(norms[:, None]).exp_().mul_(-scale[:, None])
    return chunk.scatter_add_(-1, targets[:, None], scale[:, None]).to(logits.dtype)


def _widened(logits: torch.Tensor, rows: torch.Tensor | None, part: slice) -> torch.Tensor:
    """Copy some rows, so that they may be written to."""
    # rows picked by index are a copy already
    return logits[part if rows is None else rows[part]].to(_wide(logits.dtype), copy=rows is None)


def _lower(chunk: torch.Tensor, peaks: torch.Tensor, temperature: float) -> None:
    """Subtract each row's maximum in place, before anything rounds: far from 0 a float32 holds few digits."""
    chunk.sub_(peaks[:, None])
    if temperature != 1.0:
        chunk.div_(temperature)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
