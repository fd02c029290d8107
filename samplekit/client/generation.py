"""What may be asked of a generator, checked before anything is sent."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from samplekit.errors import SampleError
from samplekit.sample import ModelInput, describe


@dataclass(frozen=True)
class GenerationSettings:
    """How completions are drawn; see `Session.generate`.

    Raises:
        SampleError: a setting is out of its range; the message says which.
    """

    num_samples: int = 1
    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop: Sequence[str] | str = ()
    seed: int | None = None
    prompt_logprobs: bool = False

    def __post_init__(self) -> None:
        _require_count("num_samples", self.num_samples)
        if self.max_tokens is not None:
            _require_count("max_tokens", self.max_tokens)
        if not _is_number(self.temperature) or self.temperature < 0:
            raise SampleError(f"temperature is {self.temperature!r}, expected a number of 0 or more")
        if not _is_number(self.top_p) or not 0 < self.top_p <= 1:
            raise SampleError(f"top_p is {self.top_p!r}, expected a number above 0 and at most 1")
        if not _is_int(self.top_k) or (self.top_k != -1 and self.top_k < 1):
            raise SampleError(f"top_k is {self.top_k!r}, expected a whole number of 1 or more, or -1 for no limit")
        if self.seed is not None and not _is_int(self.seed):
            raise SampleError(f"seed is {self.seed!r}, expected a whole number")
        object.__setattr__(self, "stop", _stop_strings(self.stop))

    def to_wire(self) -> dict[str, Any]:
        """Give the service's ``sampling_params``; what decides a probability is always sent."""
        return {
            "max_tokens": self.max_tokens,
            "temperature": float(self.temperature),
            "top_p": float(self.top_p),
            "top_k": self.top_k,
            "stop": list(self.stop) or None,
            "seed": self.seed,
        }

    def warn_if_bent(self, *, stacklevel: int) -> None:
        """Warn where the logprobs that come back are not the policy's own, so that importance ratios are bent.

        Greedy decoding (temperature 0) does not warn: it is for looking at replies, and draws nothing to train on.
        """
        if self.temperature == 0:
            return
        bent = [
            f"{name}={value}"
            for name, value, plain in (
                ("temperature", self.temperature, 1.0),
                ("top_p", self.top_p, 1.0),
                ("top_k", self.top_k, -1),
            )
            if value != plain
        ]
        if bent:
            warnings.warn(
                f"generate({', '.join(bent)}) draws from another distribution than the one trained: its logprobs are "
                "renormalised, which multiplies importance ratios by the mass kept; train a ratio loss (GRPO, PPO ...) "
                "on completions drawn with temperature=1, top_p=1, top_k=-1",
                UserWarning,
                stacklevel=stacklevel + 1,
            )


def model_inputs(prompts: Sequence[Any]) -> list[ModelInput]:
    """Check prompts and give each as a model input.

    Args:
        prompts: sequences of token ids, or ModelInputs.

    Raises:
        SampleError: there is none, one is empty, or holds something that is no token id.
    """
    if isinstance(prompts, str | bytes | ModelInput):
        raise SampleError(
            f"prompts is a {type(prompts).__name__}, expected a list of prompts, each a list of token ids"
        )
    items = list(prompts)
    if not items:
        raise SampleError("prompts is empty, expected at least one list of token ids")
    if _is_int(items[0]):
        raise SampleError("prompts is one list of token ids, expected a list of such lists: wrap it as [prompt]")
    return [_model_input(item, index) for index, item in enumerate(items)]


def _model_input(prompt: object, index: int) -> ModelInput:
    if isinstance(prompt, ModelInput):
        return prompt
    if isinstance(prompt, str):
        raise SampleError(f"prompts[{index}] is text, expected token ids: use ChatTemplate.prompt or .encode")
    try:
        return ModelInput.from_tokens(prompt)
    except ValidationError as error:
        raise SampleError(f"prompts[{index}]: {describe(error)}") from error


def _stop_strings(stop: Sequence[str] | str) -> tuple[str, ...]:
    found = (stop,) if isinstance(stop, str) else tuple(stop)
    for index, item in enumerate(found):
        if not isinstance(item, str) or not item:
            raise SampleError(
                f"stop[{index}] is {item!r}, expected a non-empty string: the service stops at text, not at token ids; "
                "use ChatTemplate.stop_strings"
            )
    return found


def _require_count(name: str, value: object) -> None:
    if not _is_int(value) or value < 1:  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue] - an int by then
        raise SampleError(f"{name} is {value!r}, expected a whole number of 1 or more")


def _is_int(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
