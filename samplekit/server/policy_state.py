"""The state of a policy as one safetensors file, written whole or not at all."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (safetensors annotates only part of what is used here)

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from samplekit.server.folders import flush

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

_WEIGHT = "weight/"


@dataclass(frozen=True)
class PolicyState:
    """What training, or generating, goes on from.

    Attributes:
        weights: by parameter name, float32.
        optimizer: by the names of `StepOptimizer.tensors`.
        step: optimizer steps done.
        num_passes: passes over requests done.
    """

    weights: Mapping[str, torch.Tensor]
    optimizer: Mapping[str, torch.Tensor]
    step: int
    num_passes: int = 0

    def write(self, path: Path) -> None:
        """Write beside ``path``, flush to disk, and move there.

        Raises:
            OSError: it cannot be written; what was there before still is.
            SafetensorError: the same, as its writer says it.
        """
        tensors = {f"{_WEIGHT}{name}": weight for name, weight in self.weights.items()} | dict(self.optimizer)
        partial = path.with_suffix(".partial")
        counters = {"step": str(self.step), "num_passes": str(self.num_passes)}
        try:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, partial, counters)
            flush(partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)  # half a policy takes the room that the next try needs
        flush(path.parent)

    @classmethod
    def read(cls, path: Path) -> PolicyState:
        """Read what `write` wrote.

        Raises:
            OSError: there is no such file, or it is damaged.
        """
        try:
            with safe_open(path, "pt") as file:
                counters = file.metadata()
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        except SafetensorError as error:
            raise OSError(f"{path} is damaged ({error})") from error
        weights = {name.removeprefix(_WEIGHT): value for name, value in tensors.items() if name.startswith(_WEIGHT)}
        optimizer = {name: value for name, value in tensors.items() if not name.startswith(_WEIGHT)}
        return cls(weights, optimizer, int(counters["step"]), int(counters["num_passes"]))
