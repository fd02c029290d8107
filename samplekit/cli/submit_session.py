"""The session of a run: opened or taken up again, stopped whatever happens, its weights saved."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samplekit.cli.screen import errors
from samplekit.cli.submit_folder import set_metrics_aside
from samplekit.cli.submit_state import Uploads
from samplekit.client import Client, Runtime
from samplekit.client.endpoint import is_loopback
from samplekit.errors import ConnectionFailedError, FileFormatError, ServiceError

if TYPE_CHECKING:
    from samplekit.cli.submit_cadence import Keys
    from samplekit.cli.submit_plan import Settings
    from samplekit.cli.submit_run import Run
    from samplekit.cli.submit_state import RunState
    from samplekit.client import Session
    from samplekit.wire.answers import Limits


@dataclass(frozen=True)
class Conditions:
    """Where and beside what a run happens; none of it changes a number.

    Attributes:
        base_url: the service; None starts a local one.
        template: the tokenizer that samples are held to; ``"none"`` for none.
        evaluate_every: steps between scores; None scores once an epoch.
        save_every: steps between training checkpoints; None saves none.
        save: whether the trained weights are saved at the end; None does where the service is not on this machine.
        download: a folder for the trained weights.
        run_dir: the run's folder.
        resume: whether to go on with the run of that folder.
        overwrite: whether a finished run of that folder may be lost.
        wandb: a project.
        tensorboard: whether TensorBoard's files are written.
    """

    base_url: str | None
    template: str
    evaluate_every: int | None
    save_every: int | None
    save: bool | None
    download: Path | None
    run_dir: Path
    resume: bool
    overwrite: bool
    wandb: str | None
    tensorboard: bool

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether the service still has its checkpoints when this process has ended."""
        return self.base_url is not None or self.save_every is not None


def open_client(
    stack: contextlib.ExitStack, settings: Settings, conditions: Conditions, keys: Keys, state: RunState
) -> Client:
    """Make a client of the service asked for, or of a local one that lives as long as the run."""
    url = conditions.base_url
    if url is None:
        from samplekit.server import LocalService

        state_dir = conditions.run_dir / "service" if conditions.save_every is not None else None
        if state_dir is not None and state.session_id is None and state_dir.exists():
            shutil.rmtree(state_dir)  # of an earlier run
        with errors.status(f"loading {settings.model}"):
            url = stack.enter_context(LocalService(model=settings.model, state_dir=state_dir)).url
    uploads = Uploads(state, conditions.run_dir)
    return Client.with_runtime(Runtime(new_key=keys, uploads=uploads), base_url=url)


def limits_of(client: Client, settings: Settings) -> Limits | None:
    """Find what the model takes, where the service says."""
    models = {model.base_model: model for model in client.supported_models()}
    found = models.get(settings.model)
    return None if found is None else found.full if settings.lora_rank is None else found.lora


@contextlib.contextmanager
def open_session(client: Client, settings: Settings, conditions: Conditions, state: RunState) -> Generator[Session]:
    """Open a session, or take up the run's own; stop it at the end whatever happens, and remember that."""
    session = _attached(client, state)
    if session is None:
        _return_to_checkpoint(state, conditions)
        state.save(conditions.run_dir)  # where that fails, nothing was created yet
        with errors.status("opening a session"):
            session = client.session(
                base_model=settings.model,
                lora_rank=settings.lora_rank,
                num_generators=0,
                name=conditions.run_dir.name or None,
                resume_from=state.checkpoint_id,
            )
    try:
        if session.id != state.session_id:
            state.open_session(session.id)
        state.save(conditions.run_dir)
        yield session
    except BaseException:
        _stop_after_error(session, state, conditions)
        raise
    session.stop()
    _remember_stop(state, conditions)


def stop_left(client: Client, conditions: Conditions, state: RunState) -> None:
    """Stop the session of a run that an earlier process completed and did not come to stop."""
    session = _attached(client, state)
    if session is not None:
        session.stop()
    _remember_stop(state, conditions)


def _stop_after_error(session: Session, state: RunState, conditions: Conditions) -> None:
    """Stop what costs, and say whether the run can go on."""
    try:
        session.stop()
    except ServiceError as error:
        errors.print(f"warning: {error}", style="yellow", markup=False)
    else:
        _remember_stop_if_possible(state, conditions)
    if state.finished:
        return
    if not (state.is_resumable and conditions.keeps_checkpoints):
        errors.print("no checkpoint was saved: the same command begins anew", style="yellow", markup=False)
    else:
        step = state.checkpoint_step if state.stopped else state.step
        errors.print(f"the same command goes on after step {step}", style="yellow", markup=False)


def _remember_stop(state: RunState, conditions: Conditions) -> None:
    state.stopped = True
    state.save(conditions.run_dir)


def _remember_stop_if_possible(state: RunState, conditions: Conditions) -> None:
    """Remember it, or say that it is not remembered: the error that ended the run is what its user must see."""
    try:
        _remember_stop(state, conditions)
    except (FileFormatError, OSError) as error:
        errors.print(
            f"warning: the session is stopped, which is not in run.json: {error}", style="yellow", markup=False
        )


def _attached(client: Client, state: RunState) -> Session | None:
    """Take up the session that an earlier process left running; None where it has ended."""
    if state.session_id is None or state.stopped:
        return None
    try:
        session = client.attach(state.session_id)
    except ConnectionFailedError:
        raise
    except ServiceError as error:  # it has ended, or the service does not know it
        errors.print(f"the run's session is gone: {error}", style="yellow", markup=False)
        return None
    session.adopt()
    return session


def _return_to_checkpoint(state: RunState, conditions: Conditions) -> None:
    """Go back to the latest checkpoint; without one to the beginning, unless that was not asked for."""
    if state.session_id is not None and state.checkpoint_id is None:
        if conditions.resume:
            raise ServiceError(
                "the run's session has ended and no checkpoint was saved: leave --resume out to begin anew"
            )
        errors.print("no checkpoint was saved (--save-every): the run begins anew", style="yellow", markup=False)
        set_metrics_aside(conditions.run_dir)
    state.return_to_checkpoint()


def save_weights(client: Client, run: Run, settings: Settings, conditions: Conditions) -> dict[str, Any]:
    """Save the trained weights, and fetch them where asked."""
    wanted = conditions.save
    if wanted is None:
        wanted = conditions.download is not None or not is_loopback(client.base_url)
    if not wanted:
        return {}
    with errors.status("saving the trained weights"):
        saved = run.save_weights()
    found: dict[str, Any] = {"checkpoint": saved.id}
    if conditions.download is not None:
        variant = "merged" if settings.lora_rank is None else "adapter"
        found["files"] = [str(path) for path in client.download(saved.id, conditions.download, variant=variant)]
    return found
