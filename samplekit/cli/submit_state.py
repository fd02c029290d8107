"""Where a run stands, in its folder: enough to go on in another process without a step lost or applied twice."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, MutableMapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import click
import orjson
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from samplekit.cli.submit_folder import STATE
from samplekit.errors import FileFormatError
from samplekit.files import write_whole

_FORMAT = 2


Steps = Annotated[int, Field(ge=0)]


def _unusable(path: Path, why: str) -> FileFormatError:
    return FileFormatError(f"{path} {why}: take another --run-dir", path=str(path))


def unwritten(path: Path, error: OSError) -> FileFormatError:
    """Say which file of a run could not be written, and what to do."""
    return FileFormatError(
        f"{path} cannot be written ({error.strerror or error}): make room or allow it, and give the same command again",
        path=str(path),
    )


@dataclass
class RunState:
    """Where a run stands; written whole at every change.

    Attributes:
        plan: settings and digests that decide every number of the run.
        batches: digest of the batches that come of them; None before a step is planned.
        id: of the run, whatever sessions it takes.
        run: made once a session, from which the keys of its operations follow.
        base_url: of the service; None for a local one of the run's own.
        session_id: the session that trains, None before there is one.
        step: optimizer steps whose results are known.
        begun: optimizer steps of which the session may have accepted an operation.
        offset: steps that the service counts beyond those, the same throughout a session; None before one is known.
        submitted: ids of operations of later steps, by ``"step/place"``.
        uploads: ids of payloads whose operation is not known to be accepted, by idempotency key.
        checkpoint_id: the latest training checkpoint.
        checkpoint_step: steps done in it.
        held_out: held-out loss by step.
        saved: what became of the trained weights, for the summary.
        complete: whether nothing is left to do but to stop the session.
        stopped: whether the session is known to be stopped.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    plan: dict[str, Any]
    batches: str | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    base_url: str | None = None
    run: str = ""
    session_id: str | None = None
    step: Steps = 0
    begun: Steps = 0
    offset: int | None = None
    submitted: dict[str, str] = field(default_factory=dict[str, str])
    uploads: dict[str, str] = field(default_factory=dict[str, str])
    checkpoint_id: str | None = None
    checkpoint_step: Steps = 0
    held_out: dict[Annotated[str, Field(pattern=r"^\d+$")], float] = field(default_factory=dict[str, float])
    saved: dict[str, Any] = field(default_factory=dict[str, Any])
    complete: bool = False
    stopped: bool = False
    format: int = _FORMAT

    @staticmethod
    def path_in(folder: Path) -> Path:
        """Give where a run's folder keeps it."""
        return folder / STATE

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read the state of a folder's run; None where there is none.

        Raises:
            FileFormatError: it cannot be read.
        """
        path = cls.path_in(folder)
        try:
            state = TypeAdapter(cls).validate_json(path.read_bytes(), strict=True)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(path, f"cannot be read ({error.strerror})") from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = "".join(f"{name}: " for name in first["loc"][:1])
            raise _unusable(path, f"is no state of a run ({where}{first['msg']})") from error
        if state.format != _FORMAT:
            raise _unusable(path, f"has format {state.format}, expected {_FORMAT}")
        return state

    def save(self, folder: Path) -> None:
        """Write it.

        Raises:
            FileFormatError: it cannot be written; what stood there stays.
        """
        self._write(folder, self.path_in(folder))

    def rehearse_save(self, folder: Path) -> None:
        """Find out whether it can be written; whatever comes of it, what stood there stays.

        Raises:
            FileFormatError: it cannot be written.
        """
        trial = folder / f".run.{uuid.uuid4().hex}.trial"
        self._write(folder, trial)
        trial.unlink()

    def _write(self, folder: Path, path: Path) -> None:
        try:
            with write_whole(path) as stream:
                stream.write(orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        except OSError as error:
            raise unwritten(self.path_in(folder), error) from error

    @property
    def finished(self) -> bool:
        """Whether the run is over."""
        return self.complete and self.stopped

    @property
    def can_fetch(self) -> bool:
        """Whether weights were saved that are not fetched."""
        return "checkpoint" in self.saved and "files" not in self.saved

    def service_in(self, folder: Path) -> Path:
        """Give where a local service of this run alone keeps its state: no other program's files are in the way."""
        return folder / f"service-{self.id}"

    @property
    def is_resumable(self) -> bool:
        """Whether there is something to go on from."""
        alive = self.session_id is not None and not self.stopped
        return not self.finished and (alive or self.checkpoint_id is not None)

    @property
    def has_unsaved_steps(self) -> bool:
        """Whether steps were begun that are needed still and that the latest checkpoint does not hold."""
        return not self.complete and max(self.begun, self.step) > self.checkpoint_step

    def require_plan(self, plan: dict[str, Any]) -> None:
        """Refuse to go on with other settings or samples.

        Raises:
            UsageError: naming each that differs.
        """
        other = [f"{name} was {self.plan.get(name)!r} and is {plan.get(name)!r}" for name in sorted({*plan, *self.plan})
                 if self.plan.get(name) != plan.get(name)]  # fmt: skip
        if other:
            raise click.UsageError(
                f"the run can go on after step {self.step} with its own settings and samples only, else take another "
                f"--run-dir: {'; '.join(other)}"
            )

    def take_batches(self, digest: str) -> None:
        """Take the batches of the run, or hold those of a run that has begun to what they were.

        Raises:
            UsageError: they are others, so that samples would train twice and others never.
        """
        if self.batches not in {None, digest} and max(self.begun, self.step) > 0:
            raise click.UsageError(
                f"the run can go on after step {self.step} with its own batches only, and the service or this release "
                "of samplekit makes others: see whether the model's max_batch_size was changed, or take another "
                "--run-dir"
            )
        self.batches = digest

    def forget_checkpoint(self) -> None:
        """Take the latest checkpoint for gone."""
        self.checkpoint_id, self.checkpoint_step = None, 0

    def return_to_checkpoint(self) -> None:
        """Forget what came after the latest checkpoint; without one, everything."""
        self.step = self.begun = self.checkpoint_step
        self.held_out = {step: loss for step, loss in self.held_out.items() if int(step) <= self.step}
        if self.checkpoint_id is None:
            self.held_out = {}

    def open_session(self, session_id: str) -> None:
        """Begin, or go on, on a new session."""
        self.session_id, self.run, self.stopped = session_id, uuid.uuid4().hex, False
        self.submitted, self.uploads, self.offset = {}, {}, None

    def accept(self, place: str, operation_id: str) -> None:
        """Remember an operation that was accepted; what was uploaded for it, in parts or whole, is named by it now."""
        self.submitted[place] = operation_id
        key = self.key_of(place)  # with which those of its parts begin
        self.uploads = {known: upload for known, upload in self.uploads.items() if not known.startswith(key)}

    def count(self, done: int) -> None:
        """Count the steps whose results are known, and forget their operations."""
        self.step = done
        self.submitted = {
            place: found for place, found in self.submitted.items() if int(place.partition("/")[0]) >= done
        }

    def key_of(self, place: str) -> str:
        """Give the idempotency key of an operation: asked for again, by another process too, it is the same."""
        return hashlib.sha256(f"{self.run}/{self.session_id}/{place}".encode()).hexdigest()[:32]


class Uploads(MutableMapping[str, str]):
    """Payload ids by idempotency key, kept in a run's state before an operation names them."""

    def __init__(self, state: RunState, folder: Path) -> None:
        self._state, self._folder = state, folder

    def __getitem__(self, key: str) -> str:
        return self._state.uploads[key]

    def __setitem__(self, key: str, payload_id: str) -> None:
        self._state.uploads[key] = payload_id
        self._state.save(self._folder)

    def __delitem__(self, key: str) -> None:
        del self._state.uploads[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._state.uploads)

    def __len__(self) -> int:
        return len(self._state.uploads)
