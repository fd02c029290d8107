"""Operation bodies -> the work they ask for, refused before it is accepted where anything is wrong with them."""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from pydantic import ValidationError

from samplekit.checks import check
from samplekit.errors import SampleError
from samplekit.losses import Loss
from samplekit.sample import ModelInput, Sample, describe
from samplekit.server.bodies import (
    CustomForwardBackwardBody,
    DrawingBody,
    ForwardBackwardBody,
    GenerateBody,
    OptimStepBody,
    WeightsSyncBody,
    parse_body,
)
from samplekit.server.checkpoints import Checkpoint, CheckpointStore
from samplekit.server.generate_work import generate_work
from samplekit.server.loss_rules import GivenGradientRule, ReferenceRule
from samplekit.server.policy import Policy
from samplekit.server.records import Output, Session
from samplekit.server.refusals import Refusal, invalid
from samplekit.server.settings import DrawingSettings, Settings
from samplekit.server.step_settings import muon_scaling, step_settings
from samplekit.wire.names import SAMPLING_DEFAULTS, CheckpointType, OperationKind
from samplekit.wire.requests import gradient_arrays

if TYPE_CHECKING:
    from samplekit.sample.arrays import FloatArray, IntArray
    from samplekit.server.model_loading import LoadedModel

Work: TypeAlias = Callable[[Policy], Output]

# Faults that the service takes as the caller's choice and only notes.
NOTED_CODES = frozenset({"target_not_next", "positive_logprob"})
_SHOWN_FAULTS = 5
_TYPES = {
    OperationKind.INFERENCE_CHECKPOINT: CheckpointType.INFERENCE,
    OperationKind.TRAINING_CHECKPOINT: CheckpointType.TRAINING,
}

logger = logging.getLogger(__name__)


def plan_work(
    kind: OperationKind, body: Mapping[str, Any], session: Session, model: LoadedModel, checkpoints: Checkpoints
) -> Work:
    """Parse an operation's body completely and give what it asks for.

    Args:
        kind: which operation.
        body: its JSON; of an uploaded body the upload, with the flags of the request.
        session: whose policy will do the work.
        model: the base model, for its limits.
        checkpoints: where one would be saved, and under which id.

    Raises:
        Refusal: the body is at fault (400); nothing was accepted.
    """
    match kind:
        case OperationKind.FORWARD_BACKWARD:
            return _forward_backward(parse_body(ForwardBackwardBody, body), model)
        case OperationKind.CUSTOM_FORWARD_BACKWARD:
            return _custom_forward_backward(parse_body(CustomForwardBackwardBody, body), model)
        case OperationKind.OPTIM_STEP:
            return _optim_step(parse_body(OptimStepBody, body), session)
        case OperationKind.WEIGHTS_SYNC:
            parse_body(WeightsSyncBody, body)
            return lambda policy: Output({"weights_version": str(policy.sync())})
        case OperationKind.SAMPLE:
            return _generate(parse_body(GenerateBody, body), session, model)
        case OperationKind.INFERENCE_CHECKPOINT | OperationKind.TRAINING_CHECKPOINT:
            parse_body(Settings, body)
            return _checkpoint(_TYPES[kind], session, model, checkpoints)


def _forward_backward(body: ForwardBackwardBody, model: LoadedModel) -> Work:
    try:
        loss = Loss.from_wire(body.loss)
    except SampleError as error:
        raise invalid(error.message) from error
    backward, wants_outputs = not body.forward_only, body.return_loss_fn_outputs
    samples = parse_samples(body.samples, model, loss=loss, must_train=backward)
    rule = ReferenceRule(samples, loss)

    def work(policy: Policy) -> Output:
        outcome = policy.run(samples, rule, backward=backward)
        outputs = _loss_fn_outputs(samples, outcome.logprobs) if wants_outputs else []
        shown = {"loss": outcome.loss, "metrics": _finite(outcome.metrics)}
        return Output(shown, {"loss_fn_outputs": outputs} if wants_outputs else {}, leaves_gradients=backward)

    return work


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Leave out what JSON cannot say: a mean of ratios may be infinite while the clipped loss is not."""
    shown = {name: value for name, value in metrics.items() if math.isfinite(value)}
    if len(shown) < len(metrics):
        logger.warning("left out of the answer, for they are not finite: %s", sorted(set(metrics) - set(shown)))
    return shown


def _loss_fn_outputs(samples: Sequence[Sample], logprobs: Sequence[FloatArray]) -> list[Any]:
    """Show logprobs as the service does: a position that the loss leaves out reads 0, not its true value."""
    shown = (
        np.where(sample.weights != 0, found, np.float32(0)) for sample, found in zip(samples, logprobs, strict=True)
    )
    return [{"tensors": {"logprobs": {"data": values, "dtype": "float32"}}} for values in shown]


def _custom_forward_backward(body: CustomForwardBackwardBody, model: LoadedModel) -> Work:
    samples = parse_samples(body.samples, model, loss=None, must_train=False)
    try:
        rule = GivenGradientRule(gradient_arrays(samples, [item.data for item in body.gradients]))
    except SampleError as error:
        raise invalid(error.message) from error

    def work(policy: Policy) -> Output:
        policy.run(samples, rule, backward=True)
        return Output(leaves_gradients=True)

    return work


def _optim_step(body: OptimStepBody, session: Session) -> Work:
    settings = step_settings(body, session.resources)
    return lambda policy: Output({"step": str(policy.optim_step(settings))})


@dataclass(frozen=True)
class Checkpoints:
    """Where an operation saves a checkpoint.

    Attributes:
        store: keeps it.
        id: what it will be called; an operation that is run again after a crash must call it so again.
        clock: gives seconds since 1970.
    """

    store: CheckpointStore
    id: str
    clock: Callable[[], float]


def _checkpoint(kind: CheckpointType, session: Session, model: LoadedModel, checkpoints: Checkpoints) -> Work:
    by_muon = muon_scaling(session.resources) is not None

    def work(policy: Policy) -> Output:
        now = checkpoints.clock()
        saved = Checkpoint(checkpoints.id, model.name, session.id, policy.step, kind, now, session.lora, by_muon)
        checkpoints.store.save(saved, policy)
        return Output({"checkpoint": saved.to_output()}, checkpoint=saved)

    return work


def _generate(body: GenerateBody, session: Session, model: LoadedModel) -> Work:
    if session.resources.num_generators < 1:
        raise invalid("the session's resources have no generator: create them with num_generator_replicas of 1 or more")
    params = body.sampling_params
    prompts = [_prompt(item, index, model) for index, item in enumerate(body.model_inputs)]
    longest = max(range(len(prompts)), key=lambda index: len(prompts[index]))
    room = model.context_length - len(prompts[longest])
    if room < (params.max_tokens or 1):
        raise invalid(
            f"model_inputs[{longest}] holds {len(prompts[longest])} tokens and max_tokens is {params.max_tokens or 1}, "
            f"together more than the context of {model.context_length}: shorten the prompt or lower max_tokens"
        )
    if params.stop and model.tokenizer is None:
        raise invalid("sampling_params.stop needs a tokenizer, and the model's folder has none: leave stop out")
    return generate_work(body, prompts, _settings(params, room), model)


def _settings(params: DrawingBody, room: int) -> DrawingSettings:
    """Settle what a request leaves open: a seed, and a length that fits."""
    default = min(int(SAMPLING_DEFAULTS["max_tokens"]), room)
    return DrawingSettings(
        seed=secrets.randbits(63) if params.seed is None else params.seed,
        max_tokens=default if params.max_tokens is None else params.max_tokens,
        **params.model_dump(exclude={"seed", "max_tokens"}),
    )


def _prompt(item: object, index: int, model: LoadedModel) -> IntArray:
    try:
        tokens = ModelInput.model_validate(item).tokens
    except ValidationError as error:
        raise invalid(f"model_inputs[{index}].{describe(error)}") from error
    if int(tokens.max()) >= model.vocab_size:
        raise invalid(
            f"model_inputs[{index}] holds token id {tokens.max()}, the vocabulary of {model.name} has "
            f"{model.vocab_size} ids: the prompt was made with another tokenizer"
        )
    return tokens


def parse_samples(batch: Sequence[Any], model: LoadedModel, *, loss: Loss | None, must_train: bool) -> list[Sample]:
    """Make samples of a batch and hold it to the rules of the service.

    Args:
        batch: the ``samples`` of a body, at least one.
        model: for its vocabulary and context.
        loss: whose inputs must be there; None asks for target_tokens only.
        must_train: whether every sample needs a trained position.

    Raises:
        Refusal: something is at fault (400); the message names each sample, the first faults in full.
    """
    samples = _samples_or_none(batch)
    # max_length counts the last target too: as many positions as the context, and one token more
    limits: dict[str, Any] = {"vocab_size": model.vocab_size, "max_length": model.context_length + 1}
    report = check(batch if samples is None else samples, loss=loss, **limits)
    passed = NOTED_CODES if must_train else NOTED_CODES | {"nothing_trained"}
    refused = [finding.message for finding in report.errors if finding.code not in passed]
    for finding in [*report.errors, *report.warnings]:
        if finding.code in NOTED_CODES:
            logger.warning("accepted, but look at it: %s", finding.message)
    if refused or samples is None:
        raise _refusal(refused or ["samples cannot be read: build them with samplekit.build_sample"])
    return samples


def _samples_or_none(batch: Sequence[Any]) -> list[Sample] | None:
    """Give the samples, or None where one of them is none: then `check` says what is wrong, everywhere."""
    try:
        return [Sample.from_wire(item) for item in batch]
    except SampleError:
        return None


def _refusal(faults: Sequence[str]) -> Refusal:
    more = len(faults) - _SHOWN_FAULTS
    return invalid(
        "; ".join(faults[:_SHOWN_FAULTS]) + (f"; and {more} more fault{'s' * (more > 1)}" if more > 0 else "")
    )
