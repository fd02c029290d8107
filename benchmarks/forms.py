"""The forms in which a rollout becomes a training sample: ours, and the peers' as their users write them.

Every form shifts: position i reads token i and predicts token i + 1. A function here imports its package and gives the
function that builds one sample; ImportError means that the package is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from benchmarks.rollouts import Rollout
from benchmarks.row import FLOOR, OURS, require

Build: TypeAlias = Callable[[Rollout], Any]
SDK_DICTS = "SDK dicts"
PYDANTIC_LISTS = "pydantic lists"
PYDANTIC_TYPES = "pydantic lists, types only"
TINKER = "tinker Datum"
RECIPE = "plain recipe"


def ours() -> Build:
    """Give `build_sample`."""
    from samplekit import build_sample

    return lambda rollout: build_sample(
        rollout.tokens, rollout.mask, advantages=rollout.advantage, logprobs=rollout.logprobs
    )


def arrays_only() -> Build:
    """Give the floor: lists to arrays and the advantage spread over the mask; nothing checked, nothing shifted."""

    def build(rollout: Rollout) -> dict[str, np.ndarray]:
        weights = np.array(rollout.mask, dtype=np.float32)
        return {
            "tokens": np.array(rollout.tokens, dtype=np.int64),
            "weights": weights,
            "logprobs": np.array(rollout.logprobs, dtype=np.float32),
            "advantages": weights * np.float32(rollout.advantage),
        }

    return build


def recipe() -> Build:
    """Give what a training script writes by hand: checked lengths, slices and one comprehension a list."""

    def build(rollout: Rollout) -> dict[str, Any]:
        if not len(rollout.tokens) == len(rollout.mask) == len(rollout.logprobs):
            raise ValueError("lengths differ")
        mask = rollout.mask[1:]
        return {
            "tokens": [int(token) for token in rollout.tokens[:-1]],
            "target_tokens": [int(token) for token in rollout.tokens[1:]],
            "weights": [float(value) for value in mask],
            "logprobs": [float(value) for value in rollout.logprobs[1:]],
            "advantages": [rollout.advantage if value else 0.0 for value in mask],
        }

    return build


def sdk_dicts() -> Build:
    """Give together's own types, which are TypedDicts: nothing is converted or checked until a request is made."""
    require("together.post_training")
    from together.post_training import Sample, TensorData

    def build(rollout: Rollout) -> Any:
        mask = rollout.mask[1:]
        return Sample(
            model_input={"chunks": [{"encoded_text": {"tokens": rollout.tokens[:-1]}}]},
            loss_fn_inputs={
                "target_tokens": TensorData(data=rollout.tokens[1:], dtype="int64"),
                "weights": TensorData(data=[float(value) for value in mask], dtype="float32"),
                "logprobs": TensorData(data=rollout.logprobs[1:], dtype="float32"),
                "advantages": TensorData(data=[rollout.advantage if v else 0.0 for v in mask], dtype="float32"),
            },
        )

    return build


def pydantic_lists() -> Build:
    """Give pydantic models of lists in the service's shape that refuse what ours refuses."""
    from benchmarks.pydantic_forms import build_checked

    return build_checked


def pydantic_types() -> Build:
    """Give a flat pydantic model of lists that only looks at types."""
    from benchmarks.pydantic_forms import build_typed

    return build_typed


def tinker_datum() -> Build:
    """Give tinker's Datum, which makes arrays of the loss inputs and keeps the tokens as they are."""
    require("tinker")
    import tinker

    def build(rollout: Rollout) -> Any:
        mask = rollout.mask[1:]
        inputs: dict[str, Any] = {  # lists, which the class takes though its annotation is narrower
            "target_tokens": rollout.tokens[1:],
            "weights": mask,
            "logprobs": rollout.logprobs[1:],
            "advantages": [rollout.advantage if value else 0.0 for value in mask],
        }
        return tinker.Datum(model_input=tinker.ModelInput.from_ints(rollout.tokens[:-1]), loss_fn_inputs=inputs)

    return build


FORMS: Mapping[str, Callable[[], Build]] = {
    OURS: ours,
    FLOOR: arrays_only,
    PYDANTIC_LISTS: pydantic_lists,
    PYDANTIC_TYPES: pydantic_types,
    TINKER: tinker_datum,
    SDK_DICTS: sdk_dicts,
    RECIPE: recipe,
}


def arrays_of(name: str, sample: Any) -> dict[str, list[float]]:
    """Read any form as lists by name, tokens among them, rounded to float32: equal for equal samples."""
    if name == FLOOR:
        shifted = {key: values[1:] for key, values in sample.items() if key != "tokens"}
        sample = {"tokens": sample["tokens"][:-1], "target_tokens": sample["tokens"][1:], **shifted}
    if name in (FLOOR, RECIPE):
        return {key: _as_float32(values) for key, values in sample.items()}
    if name == PYDANTIC_TYPES:
        return {key: _as_float32(values) for key, values in sample.model_dump().items()}
    if name == TINKER:
        inputs = {key: _as_float32(tensor.data) for key, tensor in sample.loss_fn_inputs.items()}
        return {"tokens": _as_float32(sample.model_input.to_ints()), **inputs}
    if name == PYDANTIC_LISTS:
        sample = sample.model_dump()
    return wire_arrays(sample.to_wire() if name == OURS else sample)


def wire_arrays(sample: Mapping[str, Any]) -> dict[str, list[float]]:
    """Read a sample in the service's spelling as lists by name, rounded to float32."""
    tokens = [token for chunk in sample["model_input"]["chunks"] for token in chunk["encoded_text"]["tokens"]]
    inputs = {key: _as_float32(tensor["data"]) for key, tensor in sample["loss_fn_inputs"].items()}
    return {"tokens": _as_float32(tokens), **inputs}


def _as_float32(values: Any) -> list[float]:
    found: list[float] = np.asarray(values, dtype=np.float32).tolist()
    return found
