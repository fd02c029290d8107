"""The calls of a session, as data: what is submitted, and how its output is read.

Both sessions, blocking and async, submit what stands here; neither builds a body or reads an output itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from samplekit.checks import check
from samplekit.client.results import TrainResult, parse_groups, parse_nothing, parse_step, parse_training, parse_version
from samplekit.errors import SampleError
from samplekit.losses import Loss
from samplekit.sample import Sample
from samplekit.wire.names import OperationKind, WeightSyncType
from samplekit.wire.requests import custom_body, forward_backward_body, sample_body, small_body

if TYPE_CHECKING:
    from samplekit.client.generation import GenerationSettings
    from samplekit.rollouts import Group
    from samplekit.sample import ModelInput
    from samplekit.wire.answers import JsonObject, Limits
    from samplekit.wire.requests import OperationBody

T = TypeVar("T")


@dataclass(frozen=True)
class Submission(Generic[T]):
    """One logical call before it is sent.

    Attributes:
        kind: the operation's kind.
        build: checks what is sent and serialises it, once; None for a kind without a body.
        read: reads (output, operation id).
    """

    kind: OperationKind
    build: Callable[[], OperationBody] | None
    read: Callable[[JsonObject, str], T]


@dataclass(frozen=True)
class Checks:
    """What samples are held to before they are sent.

    Attributes:
        limits: of the model, where known.
        allow: codes of findings to accept, see `samplekit.check`.
    """

    limits: Limits | None = None
    allow: Collection[str] = ()

    def read(self, samples: Iterable[Sample | Mapping[str, Any]], loss: Loss | None, *, untrained: bool) -> Checked:
        """Check samples and give them with what results need to know of them.

        Raises:
            SampleError: a sample is at fault, or there are more than the model takes at a time.
        """
        items = list(samples)
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


def train(
    samples: Iterable[Sample | Mapping[str, Any]], loss: Loss, checks: Checks, *, forward_only: bool, outputs: bool
) -> Submission[TrainResult]:
    """Compute a loss over samples, and its gradient unless forward_only."""
    if not isinstance(loss, Loss):
        raise SampleError(f"loss is {loss!r}, expected a loss such as samplekit.CrossEntropy()")
    checked: list[Checked] = []

    def build() -> OperationBody:
        checked.append(checks.read(samples, loss, untrained=forward_only))
        return forward_backward_body(checked[0].samples, loss, forward_only=forward_only, return_outputs=outputs)

    def read(output: JsonObject, operation_id: str) -> TrainResult:
        del operation_id
        lengths = [sample.length for sample in checked[0].samples]
        return parse_training(output, lengths, checked[0].num_trained, loss)

    return Submission(OperationKind.FORWARD_BACKWARD, build, read)


def custom(
    samples: Iterable[Sample | Mapping[str, Any]], gradients: Iterable[object], checks: Checks
) -> Submission[None]:
    """Apply gradients computed elsewhere."""

    def build() -> OperationBody:
        return custom_body(checks.read(samples, None, untrained=True).samples, list(gradients))

    return Submission(OperationKind.CUSTOM_FORWARD_BACKWARD, build, lambda output, _: parse_nothing(output))


def optim_step(adam: Mapping[str, float | None], muon: Mapping[str, Any] | None) -> Submission[int]:
    """Apply the accumulated gradient.

    Raises:
        SampleError: a setting is out of range, or Adam's settings are given beside muon.
    """
    given = {name: _checked_setting(name, value) for name, value in adam.items() if value is not None}
    if muon is not None and given:
        raise SampleError(f"optim_step got muon and {', '.join(given)}: put Adam's settings in muon['adam']")
    members = {"adam_params": given or None, "muon_params": None if muon is None else dict(muon)}
    body = small_body(members)
    return Submission(OperationKind.OPTIM_STEP, lambda: body, lambda output, _: parse_step(output))


def generate(prompts: Sequence[ModelInput], settings: GenerationSettings) -> Submission[list[Group]]:
    """Draw completions."""

    def build() -> OperationBody:
        return sample_body(
            prompts,
            num_samples=settings.num_samples,
            sampling_params=settings.to_wire(),
            prompt_logprobs=settings.prompt_logprobs,
        )

    return Submission(OperationKind.SAMPLE, build, lambda output, made: parse_groups(output, prompts, made))


def weights_sync(kind: str) -> Submission[int]:
    """Give the trained weights to the generators.

    Raises:
        SampleError: the kind is unknown.
    """
    known = {item.name.lower(): item for item in WeightSyncType}
    if kind not in known:
        raise SampleError(f"kind is {kind!r}, expected one of {', '.join(known)}")
    body = small_body({"weight_sync_type": known[kind].value})
    return Submission(OperationKind.WEIGHTS_SYNC, lambda: body, lambda output, _: parse_version(output))


def picked_up(kind: str, prompts: Sequence[ModelInput] | None) -> Submission[Any]:
    """Read the result of an operation that another process submitted.

    Raises:
        SampleError: the kind is unknown, or is ``"sample"`` and the prompts are not given.
    """
    readers: dict[str, Callable[[JsonObject, str], Any]] = {
        OperationKind.FORWARD_BACKWARD: lambda output, _: parse_training(output, None, None, None),
        OperationKind.CUSTOM_FORWARD_BACKWARD: lambda output, _: parse_nothing(output),
        OperationKind.OPTIM_STEP: lambda output, _: parse_step(output),
        OperationKind.WEIGHTS_SYNC: lambda output, _: parse_version(output),
        OperationKind.SAMPLE: lambda output, made: parse_groups(output, prompts or (), made),
    }
    if kind not in readers:
        raise SampleError(f"kind is {kind!r}, expected one of {', '.join(readers)}")
    if kind == OperationKind.SAMPLE and not prompts:
        raise SampleError("operation(id, 'sample') needs prompts=, the ones it was submitted with: results lack them")
    return Submission(OperationKind(kind), None, readers[kind])


def _checked_setting(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise SampleError(f"{name} is {value!r}, expected a finite number of 0 or more")
    return value
