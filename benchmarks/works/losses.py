"""Row "reference losses": GRPO's loss and its gradient at every position of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.meters import cpu_time
from benchmarks.rollouts import rollouts
from benchmarks.row import FLOOR, OURS, Case, Gate, Reading, Row, Size, Work, offer, require

if TYPE_CHECKING:
    import torch

    from samplekit import Sample

LOOP = "per-sample loop"
FROM_SAMPLES = "flat, from samples"
_NAMES = ("logprobs", "advantages", "weights")
_LOW, _HIGH = 0.8, 1.2


@dataclass(frozen=True)
class Found:
    """A loss and its gradients; equal up to what the order of additions changes."""

    loss: float
    gradients: list[np.ndarray]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Found)
            and bool(np.isclose(self.loss, other.loss, rtol=1e-6, atol=0))
            and all(
                np.allclose(one, two, rtol=1e-5, atol=1e-12)
                for one, two in zip(self.gradients, other.gradients, strict=True)
            )
        )

    __hash__ = None


def _prepare(size: Size) -> Case:
    require("torch")
    import torch

    import samplekit as sk

    samples = [
        sk.build_sample(item.tokens, item.mask, logprobs=item.logprobs, advantages=item.advantage)
        for item in rollouts(size)
    ]
    generator = torch.Generator().manual_seed(0)
    rows = [
        (torch.tensor(item.loss_fn_inputs["logprobs"].data) + 0.1 * torch.randn(item.length, generator=generator))
        .requires_grad_()
        for item in samples
    ]  # fmt: skip
    ready = _flat(samples)
    contenders, skipped = offer({
        OURS: lambda: _backward(rows, _ours(rows, samples)),
        FLOOR: lambda: _backward(rows, lambda: _surrogate(torch.cat(rows).double(), *ready)),
        FROM_SAMPLES: lambda: _backward(rows, lambda: _surrogate(torch.cat(rows).double(), *_flat(samples))),
        LOOP: lambda: _backward(rows, lambda: _loop(rows, samples)),
    })  # fmt: skip
    return Case(contenders, _normal, skipped)


def _backward(rows: list[torch.Tensor], compute: Callable[[], torch.Tensor]) -> Work:
    def work() -> tuple[torch.Tensor, list[torch.Tensor]]:
        for row in rows:
            row.grad = None
        loss = compute()
        loss.backward()
        return loss.detach(), [row.grad for row in rows if row.grad is not None]

    return work


def _ours(rows: list[torch.Tensor], samples: list[Sample]) -> Callable[[], torch.Tensor]:
    import samplekit as sk
    from samplekit.training import compute_loss

    return lambda: compute_loss(rows, samples, sk.GRPO()).loss


def _surrogate(
    policy: torch.Tensor, sampler: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:  # fmt: skip
    """Give GRPO's summed loss in torch operations, which autograd differentiates; inputs masked, float64."""
    import torch

    trained = weights != 0
    ratio = torch.exp(torch.where(trained, policy, 0.0) - torch.where(trained, sampler, 0.0))
    kept = torch.where(trained, advantages, 0.0)
    return -torch.minimum(ratio * kept, ratio.clamp(_LOW, _HIGH) * kept).sum()


def _flat(samples: list[Sample]) -> list[torch.Tensor]:
    import torch

    return [
        torch.from_numpy(np.concatenate([item.loss_fn_inputs[name].data for item in samples], dtype=np.float64))
        for name in _NAMES
    ]


def _loop(rows: list[torch.Tensor], samples: list[Sample]) -> torch.Tensor:
    import torch

    total = torch.zeros((), dtype=torch.float64)
    for row, sample in zip(rows, samples, strict=True):
        inputs = [torch.tensor(sample.loss_fn_inputs[name].data).double() for name in _NAMES]
        total = total + _surrogate(row.double(), *inputs)
    return total


def _normal(_name: str, result: Any) -> Found:
    loss, gradients = result
    return Found(float(loss), [item.numpy() for item in gradients])


ROW = Row(
    key="losses",
    work="reference losses, forward and backward",
    prepare=_prepare,
    readings=[
        Reading("CPU time", cpu_time, (Gate(LOOP, 3), Gate(FLOOR, 1.2, "floor"), Gate(FROM_SAMPLES, None, "floor")))
    ],
)
