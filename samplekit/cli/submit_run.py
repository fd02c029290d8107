"""The loop of a run: steps submitted one ahead, collected, logged, scored and saved."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from samplekit.cli.submit_folder import METRICS
from samplekit.cli.submit_state import unwritten
from samplekit.errors import ServiceError, StatusError
from samplekit.wire.names import OperationKind

if TYPE_CHECKING:
    from samplekit.cli.submit_cadence import Cadence, Keys
    from samplekit.cli.submit_plan import Plan, Settings, Step
    from samplekit.cli.submit_state import RunState
    from samplekit.client import Operation, Session, TrainResult
    from samplekit.files import RunFolder
    from samplekit.wire.listings import Checkpoint

T = TypeVar("T")
Log: TypeAlias = Callable[[int, dict[str, float]], None]
Tell: TypeAlias = Callable[[int, str], None]
# How a service says that it does not take a request, as one that names a payload it no longer has.
_REFUSALS = (400, 404, 410, 422)


@dataclass
class Submitted:
    """A step on its way: its gradients, and the operation that applies them."""

    step: Step
    rate: float
    gradients: list[Operation[TrainResult]]
    applied: Operation[int]


@dataclass
class Run:
    """One run on an open session.

    Attributes:
        session: trains.
        plan: what to do.
        settings: with which numbers.
        cadence: what happens beside it.
        folder: takes metrics.
        state: where it stands.
        keys: of the session's client.
        log: other places that metrics go to.
        tell: shows progress: steps done, and a note.
    """

    session: Session
    plan: Plan
    settings: Settings
    cadence: Cadence
    folder: RunFolder
    state: RunState
    keys: Keys
    log: list[Log] = field(default_factory=list[Log])
    tell: Tell = lambda _done, _note: None
    _counted: int | None = None
    _begun: int = 0
    _deadline: float | None = None
    _clock: float = 0.0

    def train(self) -> None:
        """Do every step that is not done; a step is submitted while the one before it runs."""
        loss = self.settings.make_loss()
        if f"{self.state.step}/0" not in self.state.submitted:
            self._look_up(self.state.step)  # which a process that was killed may not have come to
        waiting: Submitted | None = None
        self._clock = time.monotonic()
        for step in self.plan.steps[self.state.step :]:
            ahead = self._submit(step, loss)
            if waiting is not None:
                self._collect(waiting)
            waiting, done = ahead, step.index + 1
            if self._is_last(done) or self.cadence.evaluates(done) or self.cadence.saves(done):
                self._collect(ahead)
                waiting = None
                self._look_up(done)

    @property
    def has_unsaved_steps(self) -> bool:
        """Whether steps were begun that the latest checkpoint does not hold."""
        return max(self._begun, self.state.step) > self.state.checkpoint_step

    def settle(self, seconds: float) -> None:
        """Finish the steps that were begun, and save a training checkpoint of them.

        Raises:
            OperationTimeoutError: it takes longer than so many seconds.
        """
        self._deadline = time.monotonic() + seconds
        loss = self.settings.make_loss()
        for step in self.plan.steps[self.state.step : self._begun]:
            self._collect(self._submit(step, loss))  # what was accepted is recognised
        self._save(self.state.step)

    def save_weights(self) -> Checkpoint:
        """Save the trained weights."""
        place, kind = f"{len(self.plan.steps)}/weights", OperationKind.INFERENCE_CHECKPOINT
        saved: Checkpoint = self._wait(self._operation(place, kind, self.session.save_inference_checkpoint))
        return saved

    def complete(self, saved: Mapping[str, Any]) -> None:
        """Remember that nothing is left to do but to stop the session."""
        self.state.saved, self.state.complete = dict(saved), True
        self._save_state()

    def _is_last(self, done: int) -> bool:
        return done == len(self.plan.steps)

    def _look_up(self, done: int) -> None:
        """Score and save between two steps, where that is due and not done."""
        if self._is_last(done) or self.cadence.evaluates(done):
            self._evaluate(done)
        if self.cadence.saves(done) or (self._is_last(done) and self.cadence.save_every is not None):
            self._save(done)
        self._clock = time.monotonic()

    def _save(self, done: int) -> None:
        if done == self.state.checkpoint_step:  # 0 is no checkpoint, and needs none
            return
        kind = OperationKind.TRAINING_CHECKPOINT
        saved = self._wait(self._operation(f"{done}/saved", kind, self.session.save_training_checkpoint))
        self.state.checkpoint_id, self.state.checkpoint_step = saved.id, done
        self._save_state()

    def _submit(self, step: Step, loss: Any) -> Submitted:  # noqa: ANN401 - a loss
        self._begun = max(self._begun, step.index + 1)
        rate = self.settings.rate_at(step.index, len(self.plan.steps))
        gradients = [
            self._operation(
                f"{step.index}/{place}",
                OperationKind.FORWARD_BACKWARD,
                partial(self.session.forward_backward, batch, loss),
            )
            for place, batch in enumerate(step.batches)
        ]
        # Where they are of sums over tokens, a norm of the mean's gradient is so many times larger in theirs.
        clip = self.settings.grad_clip * self.settings.divisor(step.num_trained)
        applied = self._operation(
            f"{step.index}/step",
            OperationKind.OPTIM_STEP,
            lambda: self.session.optim_step(
                learning_rate=rate, weight_decay=self.settings.weight_decay, grad_clip_norm=clip
            ),
        )
        return Submitted(step, rate, gradients, applied)

    def _operation(self, place: str, kind: OperationKind, submit: Callable[[], Operation[Any]]) -> Operation[Any]:
        """Submit an operation, or take up the one that an earlier process submitted in this place."""
        known = self.state.submitted.get(place)
        if known is not None:
            return self.session.operation(known, kind)
        key = self.state.key_of(place)
        uploaded = key in self.state.uploads
        self.keys.next = key
        try:
            made = submit()
        except StatusError as error:
            if not uploaded or error.status not in _REFUSALS:
                raise
            # what an earlier process uploaded is gone, and so was nothing accepted
            del self.state.uploads[key]
            self.keys.next = key
            made = submit()
        self.state.submitted[place] = made.id
        self.state.uploads.pop(key, None)
        self._save_state()
        return made

    def _wait(self, operation: Operation[T]) -> T:
        left = None if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)
        return operation.result(timeout=left)

    def _collect(self, submitted: Submitted) -> None:
        """Wait for a step and log it."""
        step = submitted.step
        total = sum(self._wait(operation).loss for operation in submitted.gradients)
        counted = self._wait(submitted.applied)
        if self._counted is not None and counted != self._counted + 1:
            raise ServiceError(
                f"the service counts {counted} steps after {self._counted}, expected {self._counted + 1}: somebody "
                "else trains this session, or a step was applied twice; go on from a checkpoint with --resume"
            )
        self._counted = counted
        done, now = step.index + 1, time.monotonic()
        speed = step.num_tokens / max(now - self._clock, 1e-9)
        self._clock = now
        mean = total / self.settings.divisor(step.num_trained)
        self._record(
            step=done,
            epoch=step.epoch + 1,
            loss=mean,
            num_trained=step.num_trained,
            learning_rate=submitted.rate,
            tokens_per_second=round(speed, 1),
        )
        self.state.step = done
        self.state.submitted = {
            place: found for place, found in self.state.submitted.items() if int(place.partition("/")[0]) >= done
        }
        self._save_state()
        self.tell(done, f"loss {mean:.3f}  {speed:,.0f} tokens/s")

    def _evaluate(self, done: int) -> None:
        """Score the held-out samples: one sum over all batches, divided once."""
        if not self.plan.held_out or str(done) in self.state.held_out:
            return
        loss = self.settings.make_loss()
        operations = [
            self._operation(
                f"{done}/held-out/{index}", OperationKind.FORWARD_BACKWARD, partial(self.session.forward, batch, loss)
            )
            for index, batch in enumerate(self.plan.held_out)
        ]
        total = sum(self._wait(operation).loss for operation in operations)
        value = total / self.settings.divisor(_num_trained(self.plan.held_out))
        self.state.held_out[str(done)] = value
        self._save_state()
        for log in self.log:
            log(done, {"held_out_loss": value})
        self.tell(done, f"held-out loss {value:.3f}")

    def _record(self, **row: float) -> None:
        try:
            self.folder.log(**row)
        except OSError as error:
            raise unwritten(Path(self.folder.path) / METRICS, error) from error
        for log in self.log:
            log(int(row["step"]), {name: value for name, value in row.items() if name != "step"})

    def _save_state(self) -> None:
        self.state.save(Path(self.folder.path))


def _num_trained(batches: Any) -> int:  # noqa: ANN401 - batches
    return sum(batch.num_trained for batch in batches)
