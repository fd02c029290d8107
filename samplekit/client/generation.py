"""What may be asked of a generator, checked before anything is sent."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from samplekit.client.settings import flag, number, several, shown, whole_number
from samplekit.errors import SampleError
from samplekit.sample import ModelInput, describe
from samplekit.sample.kinds import is_mapping, is_number, is_sequence, is_whole_number
from samplekit.wire.names import LARGEST_SETTING, MAX_TOPK_PROMPT_LOGPROBS, SMALLEST_TEMPERATURE


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
    topk_prompt_logprobs: int = 0
    return_routed_experts: bool = False

    def __post_init__(self) -> None:
        taken: dict[str, Any] = {
            "num_samples": whole_number("num_samples", self.num_samples, least=1),
            "max_tokens": None if self.max_tokens is None else whole_number("max_tokens", self.max_tokens, least=1),
            "temperature": _temperature(self.temperature),
            "top_p": _top_p(self.top_p),
            "top_k": _top_k(self.top_k),
            "stop": _stop_strings(self.stop),
            "seed": None if self.seed is None else whole_number("seed", self.seed),
            "prompt_logprobs": flag("prompt_logprobs", self.prompt_logprobs),
            "topk_prompt_logprobs": whole_number(
                "topk_prompt_logprobs", self.topk_prompt_logprobs, least=0, most=MAX_TOPK_PROMPT_LOGPROBS
            ),
            "return_routed_experts": flag("return_routed_experts", self.return_routed_experts),
        }
        for name, value in taken.items():
            object.__setattr__(self, name, value)

    def to_wire(self) -> dict[str, Any]:
        """Give the service's ``sampling_params``; what decides a probability is always sent."""
        return {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "stop": list(self.stop) or None,
            "seed": self.seed,
        }

    def extras(self) -> dict[str, Any]:
        """Give what results should hold beside completions, in the service's spelling."""
        asked = {
            "prompt_logprobs": self.prompt_logprobs,
            "topk_prompt_logprobs": self.topk_prompt_logprobs,
            "return_routed_experts": self.return_routed_experts,
        }
        return {name: value for name, value in asked.items() if value}

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
    items = several("prompts", prompts, "prompts, each a list of token ids")
    if not items:
        raise SampleError("prompts is empty, expected at least one list of token ids")
    if is_whole_number(items[0]) or getattr(items[0], "ndim", None) == 0:
        raise SampleError("prompts is one list of token ids, expected a list of such lists: wrap it as [prompt]")
    return [_model_input(item, index) for index, item in enumerate(items)]


def _model_input(prompt: object, index: int) -> ModelInput:
    if isinstance(prompt, ModelInput):
        return prompt
    if isinstance(prompt, str):
        raise SampleError(f"prompts[{index}] is text, expected token ids: use ChatTemplate.prompt or .encode")
    if is_mapping(prompt) or (is_sequence(prompt) and any(map(is_mapping, prompt[:1]))):
        raise SampleError(f"prompts[{index}] holds messages, expected token ids: use ChatTemplate.prompt")
    try:
        return ModelInput.from_tokens(prompt)
    except ValidationError as error:
        raise SampleError(f"prompts[{index}]: {describe(error).strip()}") from error


def _temperature(value: object) -> float:
    found = number("temperature", value, most=LARGEST_SETTING)
    if 0 < found < SMALLEST_TEMPERATURE:
        raise SampleError(
            f"temperature is {shown(value)}, expected 0, which takes the likeliest token, or {SMALLEST_TEMPERATURE:g} "
            "or more: logits divided by it leave float32"
        )
    return found


def _top_p(value: object) -> float:
    if not is_number(value) or not 0 < value <= 1:
        raise SampleError(f"top_p is {shown(value)}, expected a number above 0 and at most 1")
    return float(value)


def _top_k(value: object) -> int:
    if is_whole_number(value) and value == -1:
        return -1
    try:
        return whole_number("top_k", value, least=1)
    except SampleError as error:
        raise error.reworded(f"{error}, or -1 for no limit") from None


def _stop_strings(stop: object) -> tuple[str, ...]:
    found = (stop,) if isinstance(stop, str) else tuple(several("stop", stop, "strings"))
    for index, item in enumerate(found):
        if not isinstance(item, str) or not item:
            raise SampleError(
                f"stop[{index}] is {item!r}, expected a non-empty string: the service stops at text, not at token ids; "
                "use ChatTemplate.stop_strings"
            )
    return found
