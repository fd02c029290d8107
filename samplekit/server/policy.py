"""The model of one session: the weights being trained, their gradients and optimizer, and the weights that generate."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch and transformers annotate only part of what is used here)

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from samplekit.server.adapters import SeededDropout, copy_frozen_shared, copy_whole, copy_with_adapter
from samplekit.server.optimizers import StepOptimizer
from samplekit.server.policy_state import PolicyState
from samplekit.training.logprobs import batch_logprobs, plan_rows, targets_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from samplekit.sample import Sample
    from samplekit.sample.arrays import FloatArray
    from samplekit.server.loss_rules import LossRule
    from samplekit.server.model_loading import LoadedModel
    from samplekit.server.settings import AdamSettings, LoraSettings, MuonSettings

# Positions and logits that one forward pass may hold, padding included.
BATCH_TOKENS = 8192
BATCH_LOGITS = 2**27


def share_cores() -> None:
    """Let this thread compute on half of the cores, unless OMP_NUM_THREADS says otherwise.

    torch's threads spin while they wait for each other. Where a client or anything else wants a core too, as many
    threads as cores were measured at a twentieth of the speed of half as many.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))


class NonFiniteError(ArithmeticError):
    """A loss, gradient or logprob is NaN or infinite; what had been accumulated before is untouched."""


class NoGradientError(ValueError):
    """A step was asked for and there is no gradient to apply."""


@dataclass(frozen=True)
class TrainOutcome:
    """What a forward or forward-backward pass found.

    Attributes:
        loss: of the whole request.
        metrics: of the loss, over the whole request.
        logprobs: of the target tokens, float32 (T_i,) a sample; 0.0 where the loss does not read them.
    """

    loss: float
    metrics: dict[str, float]
    logprobs: list[FloatArray]


class Policy:
    """A session's model. Not safe for threads: the session's queue calls it, one operation at a time.

    Attributes:
        trained: the weights that `optim_step` changes.
        served: the weights that generate: the trained ones as of the last `sync`.
        step: optimizer steps done.
        version: the step that `served` holds.
        num_passes: passes over requests so far; adapter dropout is drawn from it.
    """

    def __init__(self, base: LoadedModel, lora: LoraSettings | None = None, *, muon_scaling: str | None = None) -> None:
        """Copy the base model whole, or share its weights under an adapter where ``lora`` is given.

        Args:
            base: what to copy.
            lora: the adapter; None trains all weights.
            muon_scaling: train by Muon, see `StepOptimizer`; None trains by Adam.
        """
        self.trained = copy_whole(base.module) if lora is None else copy_with_adapter(base.module, lora)
        self.served = copy_frozen_shared(self.trained)
        self.step = 0
        self.version = 0
        self._lora = lora
        self.num_passes = 0
        self._accumulated = False  # whether a pass gave gradients, be they 0, since the last step
        self._batch_tokens = max(1, min(BATCH_TOKENS, BATCH_LOGITS // base.vocab_size))
        self._named = {name: weight for name, weight in self.trained.named_parameters() if weight.requires_grad}
        self._weights = list(self._named.values())
        served = dict(self.served.named_parameters())
        self._served = {name: served[name] for name in self._named}
        self._optimizer = StepOptimizer(self.trained, muon_scaling=muon_scaling)

    def run(self, samples: Sequence[Sample], rule: LossRule, *, backward: bool) -> TrainOutcome:
        """Score a request and, where asked, add its gradients to those accumulated since the last step.

        Args:
            samples: the whole request; passes are made over groups of like length.
            rule: the loss.
            backward: whether gradients are wanted.

        Raises:
            NonFiniteError: the loss or a gradient is not finite; nothing was accumulated.
        """
        before = [weight.grad for weight in self._weights]
        self._set_gradients([None] * len(before))
        try:
            with self._dropout(active=backward), torch.set_grad_enabled(backward):
                outcome = self._run_groups(samples, rule, backward=backward)
            self._merge_gradients(before)
            self._accumulated = self._accumulated or backward
        except BaseException:
            self._set_gradients(before)
            raise
        return outcome

    def optim_step(self, settings: AdamSettings | MuonSettings) -> int:
        """Apply one step to the accumulated gradients, clear them, and give the number of steps done.

        Raises:
            NoGradientError: nothing was accumulated since the last step; no step is counted.
        """
        if not self._accumulated:
            raise NoGradientError(
                "no gradient was accumulated since the last step: run forward-backward first, and see whether it failed"
            )
        self._optimizer.step(settings)
        self._set_gradients([None] * len(self._weights))
        self._accumulated = False
        self.step += 1
        return self.step

    def sync(self) -> int:
        """Let the generator use the trained weights from now on, and give their version."""
        _overwrite(self._served, self._named)
        self.version = self.step
        return self.version

    def state(self) -> PolicyState:
        """Give what training goes on from: trained weights, optimizer and counters, but no gradients.

        The tensors are the policy's own: write them before the next operation.
        """
        weights = {name: weight.detach() for name, weight in self._named.items()}
        return PolicyState(weights, self._optimizer.tensors(), self.step, self.num_passes)

    def served_state(self) -> PolicyState:
        """Give the weights that generate, and their version as the step."""
        return PolicyState({name: weight.detach() for name, weight in self._served.items()}, {}, self.version)

    def restore(self, state: PolicyState, *, with_optimizer: bool = True) -> None:
        """Go on from a state; without the optimizer's part, from its weights alone at step 0.

        What the generator uses stays as it is until `sync`.

        Raises:
            ValueError: the state is of other weights or of another optimizer.
        """
        _overwrite(self._named, state.weights)
        if with_optimizer:
            self._optimizer.put_back(state.optimizer)
            self.step, self.num_passes = state.step, state.num_passes

    def restore_served(self, state: PolicyState) -> None:
        """Let the generator use the weights of `served_state`."""
        _overwrite(self._served, state.weights)
        self.version = state.step

    def _run_groups(self, samples: Sequence[Sample], rule: LossRule, *, backward: bool) -> TrainOutcome:
        inputs = [sample.model_input.tokens for sample in samples]
        targets = [targets_of(sample, f"samples[{index}]") for index, sample in enumerate(samples)]
        logprobs: dict[int, FloatArray] = {}
        for rows in plan_rows([len(tokens) for tokens in inputs], self._batch_tokens):
            wanted = [rule.wanted(row) for row in rows]
            found = batch_logprobs(
                self.trained, [inputs[row] for row in rows], [targets[row] for row in rows], wanted=wanted
            )
            logprobs.update((row, item.detach().float().cpu().numpy()) for row, item in zip(rows, found, strict=True))
            _refuse_logprobs(logprobs, rows)
            if backward and any(mask.any() for mask in wanted):
                torch.autograd.backward(found, rule.gradients([item.detach() for item in found], rows))
        ordered = [logprobs[index] for index in range(len(samples))]
        verdict = rule.judge(ordered)
        _refuse_losses(verdict.sample_losses.tolist())
        return TrainOutcome(verdict.loss, verdict.metrics, ordered)

    def _merge_gradients(self, before: Sequence[torch.Tensor | None]) -> None:
        fresh = [weight.grad for weight in self._weights if weight.grad is not None]
        if fresh and not bool(torch.isfinite(torch.nn.utils.get_total_norm(fresh, foreach=False))):
            raise NonFiniteError("the gradient is not finite: look for huge weights, gradients or learning rates")
        for weight, old in zip(self._weights, before, strict=True):
            if weight.grad is None:
                weight.grad = old
            elif old is not None:
                weight.grad.add_(old)

    def _set_gradients(self, gradients: Sequence[torch.Tensor | None]) -> None:
        for weight, gradient in zip(self._weights, gradients, strict=True):
            weight.grad = gradient

    def _dropout(self, *, active: bool) -> SeededDropout:
        self.num_passes += 1
        return SeededDropout(self.trained, self._lora if active else None, self.num_passes)


def _overwrite(targets: Mapping[str, torch.Tensor], sources: Mapping[str, torch.Tensor]) -> None:
    """Copy weights into those of the same name and shape.

    Raises:
        ValueError: the names or shapes differ; nothing was copied.
    """
    here = {name: tuple(weight.shape) for name, weight in targets.items()}
    there = {name: tuple(weight.shape) for name, weight in sources.items()}
    if here != there:
        name = min(set(here.items()) ^ set(there.items()))[0]
        raise ValueError(f"{name} has shape {there.get(name)} in the saved state, expected {here.get(name)}")
    with torch.no_grad():
        for name, weight in targets.items():
            weight.copy_(sources[name])


def _refuse_logprobs(logprobs: Mapping[int, FloatArray], rows: Sequence[int]) -> None:
    for row in sorted(rows):
        finite = np.isfinite(logprobs[row])
        if not finite.all():
            place = int(finite.argmin())
            raise NonFiniteError(
                f"the logprob of samples[{row}] at position {place} is {logprobs[row][place]}, expected a finite "
                "number: a target has probability 0, or the weights of the model are broken"
            )


def _refuse_losses(found: Sequence[float]) -> None:
    bad = [row for row, value in enumerate(found) if not math.isfinite(value)]
    if bad:
        names = ", ".join(f"samples[{row}]" for row in bad)
        raise NonFiniteError(
            f"the loss of {names} is not finite: weights or advantages are huge, or logprobs lie far from the policy's"
        )
