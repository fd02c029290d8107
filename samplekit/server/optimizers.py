"""What applies gradients: Adam for every weight, or Muon for hidden matrices and Adam for the others."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch annotates only part of what is used here)

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch

from samplekit.server.settings import AdamSettings, MuonSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# torch has Muon since 2.9; an older one trains with Adam only.
HAS_MUON = hasattr(torch.optim, "Muon")
MATRIX_DIMENSIONS = 2
_PREFIX = "optimizer/"


class StepOptimizer:
    """An optimizer whose settings come with every step, and whose state can be taken out and put back.

    Without ``muon_scaling`` it is AdamW for all weights. With it, Muon (Newton-Schulz on the momentum, Nesterov, as
    ``torch.optim.Muon`` has it) takes every trained matrix but those of the embeddings and of the output head, which
    Adam keeps together with vectors.
    """

    def __init__(self, model: torch.nn.Module, *, muon_scaling: str | None = None) -> None:
        """Start without any momentum.

        Args:
            model: its parameters that want a gradient are trained.
            muon_scaling: how Muon scales its step: ``"original"`` or ``"match_rms_adamw"``; None trains by Adam alone.
        """
        self._named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        hidden = set[str]() if muon_scaling is None else _hidden_matrices(model, self._named)
        others = [weight for name, weight in self._named.items() if name not in hidden]
        matrices = [self._named[name] for name in self._named if name in hidden]
        self._adam = torch.optim.AdamW(others, lr=0.0, foreach=False) if others else None
        self._muon: torch.optim.Optimizer | None = (
            torch.optim.Muon(matrices, lr=0.0, weight_decay=0.0, adjust_lr_fn=muon_scaling) if matrices else None
        )

    def step(self, settings: AdamSettings | MuonSettings) -> None:
        """Clip the gradients of all weights together, and apply one step."""
        if settings.grad_clip_norm > 0:
            torch.nn.utils.clip_grad_norm_(self._named.values(), settings.grad_clip_norm, foreach=False)
        if isinstance(settings, MuonSettings):
            adam = settings.adam
            if self._muon is not None:
                _set(
                    self._muon,
                    lr=settings.learning_rate,
                    momentum=settings.momentum,
                    weight_decay=settings.weight_decay,
                    ns_steps=settings.newton_schulz_steps,
                )
                self._muon.step()
        else:
            adam = settings
        if self._adam is not None:
            betas = (adam.beta1, adam.beta2)
            _set(self._adam, lr=adam.learning_rate, betas=betas, eps=adam.eps, weight_decay=adam.weight_decay)
            self._adam.step()

    def tensors(self) -> dict[str, torch.Tensor]:
        """Give its state, each tensor under ``optimizer/<member>/<weight>``."""
        found: dict[str, torch.Tensor] = {}
        for optimizer in self._optimizers():
            for name, weight in self._named.items():
                for member, value in cast("Mapping[str, Any]", optimizer.state.get(weight, {})).items():
                    found[f"{_PREFIX}{member}/{name}"] = torch.as_tensor(value)
        return found

    def put_back(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Go on from a state that `tensors` gave, of an optimizer of the same kind; other tensors are passed over.

        Raises:
            ValueError: the state is of another kind of optimizer, or of other weights.
        """
        homes = {weight: optimizer for optimizer in self._optimizers() for weight in _weights_of(optimizer)}
        for optimizer in self._optimizers():
            optimizer.state.clear()
        for spelled, value in tensors.items():
            if spelled.startswith(_PREFIX):
                member, _, name = spelled.removeprefix(_PREFIX).partition("/")
                home = homes.get(self._named[name]) if name in self._named else None
                if home is None or (member == "momentum_buffer") != (home is self._muon):
                    raise ValueError(f"the state holds {spelled}, which this session's optimizer has no place for")
                home.state[self._named[name]][member] = value.clone()

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        return [optimizer for optimizer in (self._adam, self._muon) if optimizer is not None]


def _weights_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def _set(optimizer: torch.optim.Optimizer, **settings: object) -> None:
    for group in optimizer.param_groups:
        group.update(settings)


def _hidden_matrices(model: torch.nn.Module, named: Mapping[str, torch.nn.Parameter]) -> set[str]:
    """Name the matrices between the embeddings and the output head; a LoRA adapter's factors count as its layer's."""
    ends = [
        getattr(model, getter)()
        for getter in ("get_input_embeddings", "get_output_embeddings")
        if hasattr(model, getter)
    ]
    at_the_ends = _identities(weight for layer in ends if layer is not None for weight in layer.parameters())
    return {
        name for name, weight in named.items() if weight.ndim == MATRIX_DIMENSIONS and id(weight) not in at_the_ends
    }


def _identities(weights: Iterable[torch.Tensor]) -> set[int]:
    return {id(weight) for weight in weights}
