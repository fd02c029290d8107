"""Gradients of a loss of one's own, as ``session.custom_forward_backward`` takes them, and a check by differences."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch annotates only part of what is used here)

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import torch

from samplekit.errors import SampleError
from samplekit.sample.kinds import describe_kind
from samplekit.training.ranges import refuse_outside, refuse_uncountable
from samplekit.training.rows import as_rows, refuse_not_finite

if TYPE_CHECKING:
    from samplekit.sample import Sample
    from samplekit.training.rows import FloatsArray, LogprobRows

LossFunction: TypeAlias = Callable[[list[torch.Tensor], Sequence["Sample"]], Any]
"""Takes one (T_i,) tensor of logprobs a sample and the samples; gives a scalar tensor, a tuple that starts with one, or
an object with one as ``.loss``."""

_ROUNDINGS = 4  # a loss is off by a few units of its last digit


def loss_gradients(loss_fn: LossFunction, policy_logprobs: LogprobRows, samples: Sequence[Sample]) -> list[FloatsArray]:
    """Give d loss / d logprob at every position: what ``session.custom_forward_backward`` takes.

    The tensors that loss_fn gets are copies cut off from any model, so nothing flows further than the logprobs, and
    loss_fn may write into them and into its lists.

    Samples hold read-only arrays of numpy, so a loss makes tensors of them; functools.partial gives it its settings:

        >>> from functools import partial
        >>> import samplekit as sk
        >>> def too_sure(policy_logprobs, samples, most):
        ...     terms = [(row - most).clamp(min=0) for row in policy_logprobs]
        ...     return sum((term * torch.tensor(item.weights)).sum() for term, item in zip(terms, samples, strict=True))
        >>> samples = [sk.build_sample([5, 6, 7, 8], [0, 0, 1, 1])]
        >>> loss_gradients(partial(too_sure, most=-0.5), [torch.tensor([-0.1, -0.25, -2.0])], samples)[0].tolist()
        [0.0, 1.0, 0.0]

    Args:
        loss_fn: called as ``loss_fn(policy_logprobs, samples)``: gives a scalar tensor, or a tuple that starts with it,
            or what `compute_loss` and `dpo_loss` give.
        policy_logprobs: one (T_i,) tensor or array of floats a sample, such as `forward` of a session reports.
        samples: as many.

    Returns:
        One (T_i,) array a sample, 0.0 where the loss does not depend on the logprob; float64 where the row is, else
        float32.

    Raises:
        AlignmentError: policy_logprobs and samples disagree about a length.
        SampleError: loss_fn is no function, mixes tensors with arrays of numpy, gives no finite scalar, one that
            depends on no logprob, or a gradient that is not finite; or a logprob is NaN or infinite where its sample
            trains.
    """
    rows = _finite_rows(policy_logprobs, samples)
    with torch.inference_mode(False), torch.enable_grad():
        leaves = [torch.tensor(row, dtype=_wide(row), requires_grad=True) for row in rows]
        value = _scalar(loss_fn, leaves, samples)
        if not value.requires_grad:
            raise SampleError(
                "loss_fn gives a value that depends on no logprob, expected one computed from those it gets"
            )
        found = cast("tuple[torch.Tensor | None, ...]", torch.autograd.grad(value, leaves, allow_unused=True))
    gradients = [
        torch.zeros_like(leaf) if item is None else item for leaf, item in zip(leaves, found, strict=True)
    ]  # fmt: skip
    for index, item in enumerate(gradients):
        if not bool(torch.isfinite(item).all()):
            place = int(torch.nonzero(~torch.isfinite(item))[0])
            raise SampleError(
                f"gradient of loss_fn is {float(item[place])} at samples[{index}], position {place}, expected a finite "
                "number: mask what does not train with torch.where before any arithmetic"
            )
    if not math.isfinite(number := float(value.detach())):
        raise SampleError(
            f"loss_fn gives {number}, expected a finite number: mask what does not train with torch.where before "
            "any arithmetic"
        )
    return [item.numpy() for item in gradients]


def check_gradients(
    loss_fn: LossFunction,
    policy_logprobs: LogprobRows,
    samples: Sequence[Sample],
    *,
    gradients: Sequence[object] | None = None,
    num_positions: int = 64,
    step: float = 1e-5,
    rtol: float = 1e-4,
    atol: float = 1e-6,
    seed: int = 0,
) -> float:
    """Hold gradients of a loss against central differences in float64, at some positions.

    A loss that detaches part of itself differs from its differences by design: CISPO's weight does, and GRPO's ratio of
    a sequence where advantages vary within a sample, but not where they are the same at all of its trained positions.
    loss_fn is given float64: one that computes in float32, or adds a large constant, is rounded too far to be checked
    at a small step, and the message says so.

    Args:
        loss_fn: as in `loss_gradients`.
        policy_logprobs: as in `loss_gradients`.
        samples: as many.
        gradients: what is checked, (T_i,) a sample; what `loss_gradients` gives where None.
        num_positions: how many positions are tried, 1 or more, drawn by ``seed``; all where there are no more.
        step: how far a logprob is moved either way, in nats; 1e-10 to 1.
        rtol: how far a gradient may be off, relative to the difference; 0 to 0.5.
        atol: and absolutely; 0 to 1e30.
        seed: which positions are drawn, 0 or more.

    Returns:
        The largest error found, absolute.

    Raises:
        SampleError: a gradient is off (the message names the position), a setting is out of its range, or a logprob is
            NaN or infinite where its sample trains. AlignmentError where gradients have other lengths than the samples.
    """
    refuse_uncountable("num_positions", num_positions, "64 is common")
    refuse_uncountable("seed", seed, "0 is common", low=0)
    refuse_outside("step", step, "1e-5 is common", low=1e-10, high=1.0)
    refuse_outside("rtol", rtol, "1e-4 is common", low=0.0, high=0.5)
    refuse_outside("atol", atol, "1e-6 is common", low=0.0)
    rows = [torch.tensor(row, dtype=torch.float64) for row in _finite_rows(policy_logprobs, samples)]
    given = loss_gradients(loss_fn, rows, samples) if gradients is None else as_rows(gradients, samples, "gradients")
    starts = np.cumsum([0, *map(len, rows)])
    largest = 0.0
    for flat in np.random.default_rng(seed).permutation(starts[-1])[:num_positions]:
        index = int(np.searchsorted(starts, flat, side="right")) - 1
        place = int(flat - starts[index])
        slope, blur = _difference(loss_fn, rows, samples, (index, place), step)
        found = float(given[index][place])
        if not abs(found - slope) <= atol + rtol * abs(slope):
            reason = "the formula of one of the two is wrong, or the loss detaches part of itself or rounds to float32"
            if not abs(found - slope) > blur:
                reason = (
                    f"a loss of this size and precision is rounded so far that at step={step:g} differences tell "
                    f"it to {blur:.2g} only: compute it in float64 and without large constants, or take a larger step"
                )
            raise SampleError(
                f"gradient at samples[{index}], position {place} is {found:.8g}, differences of the loss give "
                f"{slope:.8g}: {reason}"
            )
        largest = max(largest, abs(found - slope))
    return largest


def _difference(
    loss_fn: LossFunction,
    rows: Sequence[torch.Tensor],
    samples: Sequence[Sample],
    at: tuple[int, int],
    step: float,
) -> tuple[float, float]:
    """Give the central difference of a loss at one position of one sample, and how far rounding may blur it."""
    index, place = at
    found: list[float] = []
    unit = 0.0
    for sign in (1, -1):
        moved = list(rows)  # of all of which loss_fn is given copies
        moved[index] = rows[index].clone()
        moved[index][place] += sign * step
        with torch.no_grad():
            value = _scalar(loss_fn, moved, samples)
        found.append(float(value))
        unit = max(unit, torch.finfo(value.dtype).eps * abs(found[-1]))
    return (found[0] - found[1]) / (2 * step), _ROUNDINGS * unit / step


def _finite_rows(policy_logprobs: LogprobRows, samples: Sequence[Sample]) -> list[FloatsArray]:
    rows = as_rows(policy_logprobs, samples)
    for index, (row, sample) in enumerate(zip(rows, samples, strict=True)):
        refuse_not_finite(row, sample.weights != 0, f"policy_logprobs[{index}]")
    return rows


def _scalar(loss_fn: LossFunction, rows: list[torch.Tensor], samples: Sequence[Sample]) -> torch.Tensor:
    if not callable(loss_fn):
        raise SampleError(
            f"loss_fn is {describe_kind(loss_fn)}, expected a function of (policy_logprobs, samples): see dpo_loss"
        )
    try:
        # a list and tensors of its own: what it appends, reorders or overwrites is not read here
        value: Any = loss_fn([row.clone() for row in rows], list(samples))
    except (TypeError, RuntimeError) as error:
        if "numpy" not in str(error):
            raise
        raise SampleError(
            f"loss_fn mixes tensors with arrays of numpy ({error!s:.100}), expected tensors only: samples hold arrays, "
            "so write torch.tensor(sample.weights)"
        ) from error
    found = value[0] if isinstance(value, tuple) and value else getattr(value, "loss", value)
    if not isinstance(found, torch.Tensor) or found.numel() != 1:
        shape = f"of shape {tuple(found.shape)}" if isinstance(found, torch.Tensor) else ""
        raise SampleError(
            f"loss_fn gives a {type(found).__name__} {shape}".rstrip() + ", expected a tensor of one number: sum or "
            "average the terms"
        )
    if not found.is_floating_point():
        raise SampleError(f"loss_fn gives a tensor of {found.dtype}, expected a float: take .real, or convert it")
    return found.reshape(())


def _wide(row: FloatsArray) -> torch.dtype:
    return torch.float64 if row.dtype == np.float64 else torch.float32
