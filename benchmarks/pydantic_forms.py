"""Samples as pydantic models of plain lists, in two strengths."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator

from benchmarks.rollouts import Rollout

TokenId = Annotated[int, Field(strict=True, ge=0)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class CheckedText(BaseModel):
    """Token ids: no bool, text, float or negative number is one."""

    tokens: Annotated[list[TokenId], Field(min_length=1)]


class CheckedChunk(BaseModel):
    """One chunk of a model's input."""

    encoded_text: CheckedText


class CheckedInput(BaseModel):
    """A model's input."""

    chunks: list[CheckedChunk]


class CheckedTensor(BaseModel):
    """Ids or finite numbers, as the service's tensors may hold either."""

    data: list[TokenId] | list[Finite]
    dtype: Literal["int64", "float32"]


class CheckedSample(BaseModel):
    """The service's sample, refusing the values that ours refuses."""

    model_input: CheckedInput
    loss_fn_inputs: dict[str, CheckedTensor]

    @model_validator(mode="after")
    def _align(self) -> Self:
        length = sum(len(chunk.encoded_text.tokens) for chunk in self.model_input.chunks)
        if any(len(tensor.data) != length for tensor in self.loss_fn_inputs.values()):
            raise ValueError("lengths differ")
        return self


class TypedSample(BaseModel):
    """The leanest model: flat fields, types only; it takes bools and text as ids, and NaN."""

    tokens: list[int]
    target_tokens: list[int]
    weights: list[float]
    logprobs: list[float]
    advantages: list[float]


def build_checked(rollout: Rollout) -> CheckedSample:
    """Shift a rollout into the model that refuses what ours refuses."""
    mask = [float(value) for value in rollout.mask[1:]]
    inputs = {
        "target_tokens": ("int64", rollout.tokens[1:]),
        "weights": ("float32", mask),
        "logprobs": ("float32", rollout.logprobs[1:]),
        "advantages": ("float32", [rollout.advantage if value else 0.0 for value in mask]),
    }
    return CheckedSample.model_validate({
        "model_input": {"chunks": [{"encoded_text": {"tokens": rollout.tokens[:-1]}}]},
        "loss_fn_inputs": {name: {"data": data, "dtype": dtype} for name, (dtype, data) in inputs.items()},
    })  # fmt: skip


def build_typed(rollout: Rollout) -> TypedSample:
    """Shift a rollout into the leanest model."""
    mask = rollout.mask[1:]
    return TypedSample.model_validate({
        "tokens": rollout.tokens[:-1],
        "target_tokens": rollout.tokens[1:],
        "weights": mask,
        "logprobs": rollout.logprobs[1:],
        "advantages": [rollout.advantage if value else 0.0 for value in mask],
    })  # fmt: skip
