"""The loop of a run: steps submitted one ahead, collected, logged, scored and saved."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import orjson

from samplekit.cli.submit_folder import METRICS, SCORES
from samplekit.cli.submit_state import unwritten
from samplekit.errors import ServiceError
from samplekit.files import write_whole
from samplekit.wire.names import LARGEST_SETTING, OperationKind

if TYPE_CHECKING:
    from samplekit.cli.submit_cadence import Cadence, Keys
    from samplekit.cli.submit_logs import Logs
    from samplekit.cli.submit_plan import Plan, Settings, Step
    from samplekit.cli.submit_state import RunState
    from samplekit.client import Operation, Session, TrainResult
    from samplekit.files import RunFolder
    from samplekit.wire.listings import Checkpoint

T = TypeVar("T")
Tell: TypeAlias = Callable[[int, str], None]


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

    Where it stands is in ``state`` alone: after an interrupt at any statement, another Run on the same state goes on as
    another process would after a kill.

    Attributes:
        session: trains.
        plan: what to do.
        settings: with which numbers.
        cadence: what happens beside it.
        folder: takes metrics.
        state: where it stands.
        keys: of the session's client.
        logs: other places that metrics go to.
        tell: shows progress: steps done, and a note.
    """

    session: Session
    plan: Plan
    settings: Settings
    cadence: Cadence
    folder: RunFolder
    state: RunState
    keys: Keys
    logs: Logs
    tell: Tell = lambda _done, _note: None
    _deadline: float | None = None
    _clock: float = field(default_factory=time.monotonic)

    def train(self) -> None:
        """Do every step that is not done; a step is submitted while the one before it runs."""
        loss = self.settings.make_loss()
        if f"{self.state.step}/0" not in self.state.submitted:
            self._look_up(self.state.step)  # which a process that was killed may not have come to
        waiting: Submitted | None = None
        for step in self.plan.steps[self.state.step :]:
            ahead = self._submit(step, loss)
            if waiting is not None:
                self._collect(waiting)
            waiting, done = ahead, step.index + 1
            if self._is_last(done) or self.cadence.evaluates(done) or self.cadence.saves(done):
                self._collect(ahead)
                waiting = None
                self._look_up(done)

    def settle(self, seconds: float) -> None:
        """Finish the steps that were begun, and save a training checkpoint of them; logs are given nothing meanwhile.

        Raises:
            OperationTimeoutError: it takes longer than so many seconds.
        """
        self._deadline = time.monotonic() + seconds
        loss = self.settings.make_loss()
        for step in self.plan.steps[self.state.step : self.state.begun]:
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
        self.state.begun = max(self.state.begun, step.index + 1)
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
        clip = min(self.settings.grad_clip * self.settings.divisor(step.num_trained), LARGEST_SETTING)
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
        self.keys.next = self.state.key_of(place)
        made = submit()
        self.state.accept(place, made.id)
        self._save_state()
        return made

    def _wait(self, operation: Operation[T]) -> T:
        left = None if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)
        return operation.result(timeout=left)

    def _collect(self, submitted: Submitted) -> None:
        """Wait for a step, log it and count it: until it is counted, all of this may be done again."""
        step = submitted.step
        total = sum(self._wait(operation).loss for operation in submitted.gradients)
        done = step.index + 1
        self._require_counted(done, self._wait(submitted.applied))
        now = time.monotonic()
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
        self.state.count(done)
        self._save_state()
        self.tell(done, f"loss {mean:.3f}  {speed:,.0f} tokens/s")

    def _require_counted(self, done: int, counted: int) -> None:
        """Hold the service's count of steps against ours: in one session they differ by the same number throughout."""
        offset = counted - done
        if self.state.offset not in {None, offset}:
            raise ServiceError(
                f"the service counts {counted} steps, expected {done + (self.state.offset or 0)}: somebody else trains "
                "this session, or a step was applied twice; go on from a checkpoint with --resume"
            )
        self.state.offset = offset

    def _evaluate(self, done: int) -> None:
        """Score the held-out samples: one sum over all batches, divided once."""
        if not self.plan.held_out:
            return
        if str(done) in self.state.held_out:
            self._write_scores()  # which a process that was killed may not have come to
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
        # Only now, for another process would score and give again what is not remembered.
        self._write_scores()
        self.logs.add(done, {"held_out_loss": value})
        self.logs.give()
        self.tell(done, f"held-out loss {value:.3f}")

    def _write_scores(self) -> None:
        """Write all scores that are remembered: each stands in its file once, however often this is done."""
        path = Path(self.folder.path) / SCORES
        rows = [{"step": int(step), "held_out_loss": loss} for step, loss in self.state.held_out.items()]
        try:
            with write_whole(path) as stream:
                stream.writelines(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)
        except OSError as error:
            raise unwritten(path, error) from error

    def _record(self, **row: float) -> None:
        try:
            self.folder.log(**row)
        except OSError as error:
            raise unwritten(Path(self.folder.path) / METRICS, error) from error
        self.logs.add(int(row["step"]), {name: value for name, value in row.items() if name != "step"})
        if self._deadline is None:  # else a checkpoint comes first
            self.logs.give()

    def _save_state(self) -> None:
        self.state.save(Path(self.folder.path))


def _num_trained(batches: Any) -> int:  # noqa: ANN401 - batches
    return sum(batch.num_trained for batch in batches)
