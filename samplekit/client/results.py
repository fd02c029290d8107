"""What operations give: outputs of the service read into results."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from samplekit.client.drawn import Alternatives, DrawnGroup, PolicySegment
from samplekit.errors import SampleError
from samplekit.losses import CrossEntropy, Loss
from samplekit.rollouts import Completion, Group
from samplekit.sample.arrays import freeze
from samplekit.wire.answers import (
    AnswerError,
    JsonObject,
    as_float,
    as_floats,
    as_int,
    as_list,
    as_object,
    parse_logprobs,
    parse_metrics,
)
from samplekit.wire.listings import Checkpoint, checkpoint_of

if TYPE_CHECKING:
    from samplekit.sample import ModelInput
    from samplekit.sample.arrays import FloatArray


@dataclass(frozen=True)
class TrainResult:
    """What a forward_backward (or forward) gives.

    Attributes:
        loss: as the service reports it; cross-entropy's is a sum over trained tokens.
        metrics: the service's named numbers.
        logprobs: where asked for, one float32 (T_i,) a sample: nats of the target tokens under the current policy;
            positions that do not train read 0, not their true value.
        num_trained: positions that train, over the batch; None for an operation of another process.
        loss_type: the loss by name, or None where unknown.
    """

    loss: float
    metrics: dict[str, float]
    logprobs: list[FloatArray] | None
    num_trained: int | None
    loss_type: str | None = None

    @property
    def mean_loss(self) -> float:
        """The loss per trained token: loss / num_trained.

        Raises:
            SampleError: the loss is not cross-entropy, whose reported loss is a plain sum, or nothing trained.
        """
        if self.loss_type not in {None, CrossEntropy.__name__}:
            raise SampleError(
                f"mean_loss divides a sum, and {self.loss_type}'s reduction is not documented: read .loss"
            )
        if not self.num_trained:
            raise SampleError(f"mean_loss needs trained tokens, num_trained is {self.num_trained}: read .loss")
        return self.loss / self.num_trained


def parse_training(
    output: JsonObject, lengths: Sequence[int] | None, num_trained: int | None, loss: Loss | None
) -> TrainResult:
    """Parse the output of forward-backward.

    Args:
        output: the service's output, payload merged.
        lengths: positions of every sample sent, where known: logprobs must match them.
        num_trained: trained positions of the batch, where known.
        loss: the loss that was sent, where known.
    """
    logprobs = parse_logprobs(output)
    if logprobs is not None and lengths is not None and [len(item) for item in logprobs] != list(lengths):
        raise AnswerError(f"the answer's logprobs have other lengths than the {len(lengths)} samples sent")
    name = type(loss).__name__ if loss is not None else None
    return TrainResult(as_float(output.get("loss"), "loss"), parse_metrics(output), logprobs, num_trained, name)


def join_training(parts: Sequence[TrainResult]) -> TrainResult:
    """Make one result of those of the parts of a batch, for a loss that is a sum.

    Means among the metrics are weighed by trained positions; what is neither a mean nor a sum by its name is left out.
    """
    logprobs = [part.logprobs for part in parts]
    numbers = [part.num_trained for part in parts]
    return TrainResult(
        sum(part.loss for part in parts),
        _joined_metrics(parts),
        None if None in logprobs else [array for arrays in logprobs for array in arrays or ()],
        None if None in numbers else sum(number or 0 for number in numbers),
        parts[0].loss_type,
    )


def _joined_metrics(parts: Sequence[TrainResult]) -> dict[str, float]:
    weights = [float(part.num_trained or 0) for part in parts]
    joined: dict[str, float] = {}
    for name in parts[0].metrics:
        values = [part.metrics.get(name, math.nan) for part in parts]
        if name.endswith(("mean", "fraction")) and sum(weights) > 0:
            joined[name] = math.fsum(map(operator.mul, values, weights)) / sum(weights)
        elif name.endswith("sum"):
            joined[name] = math.fsum(values)
    return joined


def parse_nothing(output: JsonObject) -> None:
    """Parse an output that holds nothing."""
    del output


def parse_step(output: JsonObject) -> int:
    """Parse how many optimizer steps the session has done."""
    return as_int(output.get("step"), "step")


def parse_version(output: JsonObject) -> int:
    """Parse which version of the weights the generators have."""
    return as_int(output.get("weights_version"), "weights_version")


def parse_saved(output: JsonObject, kind: str, about: Mapping[str, Any]) -> Checkpoint:
    """Parse which checkpoint was saved; ``about`` says what is known of its session, where the answer is silent."""
    found = checkpoint_of(as_object(output.get("checkpoint")), kind.removesuffix("-checkpoint"))
    return replace(found, **{name: value for name, value in about.items() if not getattr(found, name)})


def parse_groups(output: JsonObject, prompts: Sequence[ModelInput], operation_id: str) -> list[Group]:
    """Parse generated completions, one group a prompt, in the order of the prompts.

    Raises:
        SampleError: a completion cannot be one; the message names it.
    """
    results = as_list(output.get("results"), "results")
    if len(results) != len(prompts):
        raise AnswerError(f"the answer holds {len(results)} results, expected one for each of {len(prompts)} prompts")
    return [
        _group(as_object(item), prompt, f"results[{index}]", f"{operation_id}/{index}")
        for index, (item, prompt) in enumerate(zip(results, prompts, strict=True))
    ]


def _group(result: JsonObject, prompt: ModelInput, where: str, group_id: str) -> Group:
    sequences = as_list(result.get("sequences"), f"{where}.sequences")
    completions = [_completion(as_object(item), f"{where}.sequences[{n}]") for n, item in enumerate(sequences)]
    logprobs = _prompt_logprobs(result.get("prompt_logprobs"), f"{where}.prompt_logprobs")
    segments = _segments(result.get("policy_segments"), f"{where}.policy_segments")
    found = result.get("topk_prompt_logprobs")
    try:
        group = Group(prompt.tokens, completions, id=group_id, prompt_logprobs=logprobs)
        alternatives = _alternatives(found, f"{where}.topk_prompt_logprobs", group) if found else []
        return DrawnGroup(group, alternatives, segments) if alternatives or segments else group
    except SampleError as error:
        raise error.reworded(f"{where}: {error}") from error


def _prompt_logprobs(found: Any, name: str) -> FloatArray | None:  # noqa: ANN401 - any JSON
    """Parse a prompt's logprobs; nothing predicts its first token, so the first may be null and is a placeholder."""
    values = [] if found is None else as_list(found, name)
    if not values:  # not asked for
        return None
    return as_floats([0.0, *values[1:]] if values[0] is None else values, name)


def _segments(found: Any, name: str) -> list[PolicySegment]:  # noqa: ANN401 - any JSON
    """Parse which weights drew a group; a service may leave zeros out."""
    items = [as_object(item) for item in as_list(found or [], name)]
    return [
        PolicySegment(
            as_int(item.get("version", 0), f"{name}[{index}].version"),
            as_int(item.get("start_token", 0), f"{name}[{index}].start_token"),
        )
        for index, item in enumerate(items)
    ]


def _alternatives(found: Any, name: str, group: Group) -> list[Alternatives]:  # noqa: ANN401 - any JSON
    """Parse the likeliest tokens along a prompt, which are one record for each of its tokens."""
    items = [as_object(item) for item in as_list(found, name)]
    if len(items) != len(group.prompt):
        raise AnswerError(f"the answer's {name!r} holds {len(items)} items, expected {len(group.prompt)}")
    parsed: list[Alternatives] = []
    for index, item in enumerate(items):
        ids = [as_int(token, f"{name}[{index}].token_ids") for token in as_list(item.get("token_ids") or [], name)]
        logprobs = as_floats(item.get("logprobs") or [], f"{name}[{index}].logprobs")
        if len(ids) != len(logprobs):
            raise AnswerError(f"the answer's '{name}[{index}]' holds {len(ids)} ids and {len(logprobs)} logprobs")
        parsed.append(Alternatives(freeze(np.array(ids, dtype=np.int64)), logprobs))
    return parsed


def _completion(sequence: JsonObject, where: str) -> Completion:
    stop_reason, experts = sequence.get("stop_reason"), sequence.get("routed_experts_key")
    try:
        return Completion(
            as_list(sequence.get("tokens"), "tokens"),
            sequence.get("logprobs"),
            stop_reason=None if stop_reason is None else str(stop_reason).removeprefix("STOP_REASON_").lower(),
            routed_experts_key=None if experts is None else str(experts),
        )
    except SampleError as error:
        raise error.reworded(f"{where}: {error}") from error
