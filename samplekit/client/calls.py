"""The calls of a session, as data: what is submitted, and how its output is read.

Both sessions, blocking and async, submit what stands here; neither builds a body or reads an output itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from samplekit.checks import check
from samplekit.client.optimizer import step_settings
from samplekit.client.results import (
    TrainResult,
    join_training,
    parse_groups,
    parse_nothing,
    parse_saved,
    parse_step,
    parse_training,
    parse_version,
)
from samplekit.client.settings import several, shown
from samplekit.client.splitting import Division, obstacle_of
from samplekit.errors import SampleError
from samplekit.losses import Loss
from samplekit.sample import Sample
from samplekit.wire.names import OperationKind, WeightSyncType
from samplekit.wire.requests import custom_body, forward_backward_body, sample_body, small_body

if TYPE_CHECKING:
    from samplekit.client.generation import GenerationSettings
    from samplekit.rollouts import Group
    from samplekit.sample import ModelInput
    from samplekit.wire.answers import JsonObject
    from samplekit.wire.listings import Checkpoint
    from samplekit.wire.offers import Limits
    from samplekit.wire.requests import OperationBody

T = TypeVar("T")
_SAVING = (OperationKind.INFERENCE_CHECKPOINT, OperationKind.TRAINING_CHECKPOINT)


@dataclass(frozen=True)
class Prepared(Generic[T]):
    """A body ready to be sent, and what reads the output it will get.

    Attributes:
        body: None for a kind without a body.
        parse: reads (output, operation id); it outlives the submission, so it keeps neither body nor samples.
        divide: gives how it is sent in parts where it is too large, and keeps the samples for that but not the body;
            None for a call that has no parts.
    """

    body: OperationBody | None
    parse: Callable[[JsonObject, str], T]
    divide: Callable[[], Division[T]] | None = None

    @property
    def num_bytes(self) -> int:
        """Size of the body, bytes."""
        return 0 if self.body is None else self.body.num_bytes


@dataclass(frozen=True)
class Submission(Generic[T]):
    """One logical call before it is sent.

    Attributes:
        kind: the operation's kind.
        prepare: checks what is sent and serialises it, once; it may take long.
    """

    kind: OperationKind
    prepare: Callable[[], Prepared[T]]


@dataclass(frozen=True)
class Checks:
    """What samples are held to before they are sent.

    Attributes:
        limits: of the model, where known.
        allow: codes of findings to accept, see `samplekit.check`.
    """

    limits: Limits | None = None
    allow: Collection[str] = ()

    def admit(self, samples: Iterable[Sample | Mapping[str, Any]], loss: Loss | None, *, untrained: bool) -> Checked:
        """Check samples and give them with what results need to know of them.

        Raises:
            SampleError: a sample is at fault, or there are more than the model takes at a time.
        """
        items = several("samples", samples, "of them")
        limits = self.limits
        if limits is not None and len(items) > limits.max_batch_size:
            raise SampleError(
                f"samples holds {len(items)} samples, expected at most {limits.max_batch_size}, the model's "
                "max_batch_size: split them with session.batches"
            )
        report = check(
            items,
            loss=loss,
            max_length=None if limits is None else limits.max_seq_length + 1,
            allow={*self.allow, "nothing_trained"} if untrained else self.allow,
        ).raise_for_errors()
        ready = [item if isinstance(item, Sample) else Sample.from_wire(item) for item in items]
        return Checked(ready, report.stats["num_trained"])


@dataclass(frozen=True)
class Checked:
    """Samples that passed, and how many positions of theirs train."""

    samples: Sequence[Sample]
    num_trained: int

    def __getitem__(self, part: range) -> Checked:
        chosen = self.samples[part.start : part.stop]
        return Checked(chosen, sum(sample.num_trained for sample in chosen))


def train(
    samples: Iterable[Sample | Mapping[str, Any]], loss: Loss, checks: Checks, *, forward_only: bool, outputs: bool
) -> Submission[TrainResult]:
    """Compute a loss over samples, and its gradient unless forward_only."""
    if not isinstance(loss, Loss):
        raise SampleError(f"loss is {loss!r}, expected a loss such as samplekit.CrossEntropy()")

    def prepared(checked: Checked) -> Prepared[TrainResult]:
        lengths, num_trained = [sample.length for sample in checked.samples], checked.num_trained
        body = forward_backward_body(checked.samples, loss, forward_only=forward_only, return_outputs=outputs)
        sizes = body.sample_sizes
        return Prepared(
            body,
            lambda output, _: parse_training(output, lengths, num_trained, loss),
            lambda: Division(sizes, lambda part: prepared(checked[part]), join_training, obstacle_of(loss)),
        )

    def prepare() -> Prepared[TrainResult]:
        return prepared(checks.admit(samples, loss, untrained=forward_only))

    return Submission(OperationKind.FORWARD_BACKWARD, prepare)


def custom(
    samples: Iterable[Sample | Mapping[str, Any]], gradients: Iterable[object], checks: Checks
) -> Submission[None]:
    """Apply gradients computed elsewhere."""

    def prepared(checked: Sequence[Sample], arrays: Sequence[object]) -> Prepared[None]:
        body = custom_body(checked, arrays)
        sizes = body.sample_sizes

        def part(chosen: range) -> Prepared[None]:
            own = slice(chosen.start, chosen.stop)
            return prepared(checked[own], arrays[own])

        return Prepared(body, lambda output, _: parse_nothing(output), lambda: Division(sizes, part, lambda _: None))

    def prepare() -> Prepared[None]:
        arrays = several("gradients", gradients, "arrays, one for each sample")
        return prepared(checks.admit(samples, None, untrained=True).samples, arrays)

    return Submission(OperationKind.CUSTOM_FORWARD_BACKWARD, prepare)


def optim_step(adam: Mapping[str, float | None], muon: Mapping[str, Any] | None) -> Submission[int]:
    """Apply the accumulated gradient.

    Raises:
        SampleError: a setting is unknown or out of range, or Adam's settings are given beside muon.
    """
    body = small_body(step_settings(adam, muon))
    return Submission(OperationKind.OPTIM_STEP, lambda: Prepared(body, lambda output, _: parse_step(output)))


def generate(prompts: Sequence[ModelInput], settings: GenerationSettings) -> Submission[list[Group]]:
    """Draw completions."""

    def prepare() -> Prepared[list[Group]]:
        body = sample_body(
            prompts,
            num_samples=settings.num_samples,
            sampling_params=settings.to_wire(),
            extras=settings.extras(),
        )
        return Prepared(body, lambda output, made: parse_groups(output, prompts, made))

    return Submission(OperationKind.SAMPLE, prepare)


def weights_sync(kind: str) -> Submission[int]:
    """Give the trained weights to the generators.

    Raises:
        SampleError: the kind is unknown.
    """
    known = {item.name.lower(): item for item in WeightSyncType}
    if not isinstance(kind, str) or kind not in known:
        raise SampleError(f"kind is {shown(kind)}, expected one of {', '.join(known)}")
    body = small_body({"weight_sync_type": known[kind].value})
    return Submission(OperationKind.WEIGHTS_SYNC, lambda: Prepared(body, lambda output, _: parse_version(output)))


def save_checkpoint(kind: OperationKind, about: Mapping[str, Any]) -> Submission[Checkpoint]:
    """Save weights, alone or with the optimizer's state; ``about`` is what the service's answer leaves out."""
    return Submission(kind, lambda: Prepared(None, _reads_saved(kind, about)))


def _reads_saved(kind: OperationKind, about: Mapping[str, Any]) -> Callable[[JsonObject, str], Checkpoint]:
    return lambda output, _: parse_saved(output, kind, about)


def parser_of(
    kind: str, prompts: Sequence[ModelInput] | None, about: Mapping[str, Any]
) -> Callable[[JsonObject, str], Any]:
    """Give what reads the output of an operation that another process submitted: (output, operation id) -> result.

    Args:
        kind: the operation's kind.
        prompts: of kind ``"sample"``, what it was submitted with.
        about: what a checkpoint is of.

    Raises:
        SampleError: the kind is unknown, or is ``"sample"`` and the prompts are not given.
    """
    parsers: dict[str, Callable[[JsonObject, str], Any]] = {
        OperationKind.FORWARD_BACKWARD: lambda output, _: parse_training(output, None, None, None),
        OperationKind.CUSTOM_FORWARD_BACKWARD: lambda output, _: parse_nothing(output),
        OperationKind.OPTIM_STEP: lambda output, _: parse_step(output),
        OperationKind.WEIGHTS_SYNC: lambda output, _: parse_version(output),
        OperationKind.SAMPLE: lambda output, made: parse_groups(output, prompts or (), made),
        **{saving: _reads_saved(saving, about) for saving in _SAVING},
    }
    if not isinstance(kind, str) or kind not in parsers:
        raise SampleError(f"kind is {shown(kind)}, expected one of {', '.join(parsers)}")
    if kind == OperationKind.SAMPLE and not prompts:
        raise SampleError("operation(id, 'sample') needs prompts=, the ones it was submitted with: results lack them")
    return parsers[kind]


def joiner_of(kind: str) -> Callable[[Sequence[Any]], Any]:
    """Give what joins the results of parts of a call that another process submitted.

    Raises:
        SampleError: calls of this kind have no parts.
    """
    if kind == OperationKind.FORWARD_BACKWARD:
        return join_training
    if kind == OperationKind.CUSTOM_FORWARD_BACKWARD:
        return lambda _: None
    raise SampleError(f"id names several operations of kind {kind!r}, expected one: only batches are sent in parts")
