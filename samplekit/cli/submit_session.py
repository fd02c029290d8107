"""The session of a run: opened or taken up again, stopped whatever happens, its weights saved."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from samplekit.cli.screen import errors
from samplekit.cli.submit_folder import give_room, keep_earlier
from samplekit.cli.submit_notices import Notices
from samplekit.cli.submit_pause import can_be_saved_after, save_at_end
from samplekit.cli.submit_state import Uploads
from samplekit.client import Client, Runtime
from samplekit.client.opening import EndedError
from samplekit.errors import FileFormatError, ServiceError, StatusError

if TYPE_CHECKING:
    from samplekit.cli.submit_cadence import Keys
    from samplekit.cli.submit_plan import Settings
    from samplekit.cli.submit_run import Run
    from samplekit.cli.submit_state import RunState
    from samplekit.client import Session
    from samplekit.wire.offers import Limits

_NOT_FOUND = 404


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

    def keeps_checkpoints(self, state: RunState | None = None) -> bool:
        """Tell whether the service still has its checkpoints when this process has ended.

        A local service that kept those of an earlier process goes on to, whatever is asked for now.
        """
        began = state is not None and state.service_in(self.run_dir).exists()
        return began or self.base_url is not None or self.save_every is not None


def open_client(
    stack: contextlib.ExitStack, settings: Settings, conditions: Conditions, keys: Keys, state: RunState
) -> Client:
    """Make a client of the service asked for, or of a local one that lives as long as the run."""
    url = conditions.base_url
    if url is None:
        from samplekit.server import LocalService

        state_dir = state.service_in(conditions.run_dir) if conditions.keeps_checkpoints(state) else None
        with errors.status(f"loading {settings.model}"):
            url = stack.enter_context(LocalService(model=settings.model, state_dir=state_dir)).url
    uploads = Uploads(state, conditions.run_dir)
    return Client.with_runtime(Runtime(new_key=keys, uploads=uploads, listener=Notices()), base_url=url)


def limits_of(client: Client, settings: Settings) -> Limits | None:
    """Find what the model takes, where the service says."""
    models = {model.base_model: model for model in client.supported_models()}
    found = models.get(settings.model)
    return None if found is None else found.full if settings.lora_rank is None else found.lora


@contextlib.contextmanager
def open_run(
    client: Client,
    settings: Settings,
    conditions: Conditions,
    state: RunState,
    make_run: Callable[[Session], Run],
) -> Generator[Run]:
    """Open a session, or take up the run's own, and give a run on it.

    However the block ends, the session is stopped and that is remembered; before that, an interrupt
    or a full disk saves a checkpoint.

    Args:
        client: of the service.
        settings: what decides the run's numbers.
        conditions: where and beside what it happens.
        state: where it stands; nothing of it changes before there is a session to go on in.
        make_run: makes a run that goes on from the state.
    """
    session: Session | None = None
    try:
        session = _attached(client, state)
        is_anew = session is None
        if session is None:
            _require_beginning(state, conditions)
            with errors.status("opening a session"):
                session = _open_next(client, settings, conditions, state)  # held before the status line goes
            _begin(session, state, conditions)
        if not is_anew or state.checkpoint_id is not None:
            errors.print(f"{conditions.run_dir} is gone on with, after step {state.step}", style="dim", markup=False)
        yield make_run(session)
        session.stop()
    except BaseException as error:
        if session is not None:
            _end_after_error(session, state, conditions, partial(make_run, session), error)
        raise
    _remember_stop(state, conditions)


def stop_left(client: Client, conditions: Conditions, state: RunState) -> None:
    """Stop the session of a run that an earlier process completed and did not come to stop."""
    session = _attached(client, state)
    if session is not None:
        session.stop()
    _remember_stop(state, conditions)


def _attached(client: Client, state: RunState) -> Session | None:
    """Take up the session that an earlier process left running; None where it has ended.

    Raises:
        ServiceError: whether it has ended is not known.
    """
    if state.session_id is None or state.stopped:
        return None
    try:
        session = client.attach(state.session_id)
        session.adopt()
    except BaseException as error:
        if _says_gone(error):
            errors.print(f"the run's session is gone: {error}", style="yellow", markup=False)
            return None
        errors.print(
            f"session {state.session_id} of this run may still run and cost: the same command goes on with it",
            style="yellow",
            markup=False,
        )
        raise
    return session


def _says_gone(error: BaseException) -> bool:
    """Tell whether a session has ended, or the service does not know it; any other fault says nothing about it."""
    return isinstance(error, EndedError) or (isinstance(error, StatusError) and error.status == _NOT_FOUND)


def _require_beginning(state: RunState, conditions: Conditions) -> None:
    """Require that the run may begin where its next session does, and that its state can be written there."""
    if state.session_id is not None and state.checkpoint_id is None:
        if conditions.resume:
            raise ServiceError(
                "the run's session has ended and no checkpoint was saved: leave --resume out to begin anew"
            )
        errors.print("no checkpoint was saved (--save-every): the run begins anew", style="yellow", markup=False)
    state.rehearse_save(conditions.run_dir)


def _open_next(client: Client, settings: Settings, conditions: Conditions, state: RunState) -> Session:
    """Open the run's next session.

    Raises:
        ServiceError: there is none, or the checkpoint to go on from is gone.
    """
    try:
        return _new_session(client, settings, conditions, state)
    except StatusError as error:
        if error.status != _NOT_FOUND or state.checkpoint_id is None or _is_kept(client, state.checkpoint_id):
            raise
        gone = f"the service does not have checkpoint {state.checkpoint_id} of this run any more"
        if not conditions.overwrite:
            raise ServiceError(f"{gone}: pass --overwrite to begin anew, or take another --run-dir") from error
        errors.print(f"{gone}: the run begins anew", style="yellow", markup=False)
    state.forget_checkpoint()
    return _open_next(client, settings, conditions, state)


def _is_kept(client: Client, checkpoint_id: str) -> bool:
    """Tell whether the service may have a checkpoint: where it does not say, it may."""
    try:
        return any(found.id == checkpoint_id for found in client.checkpoints(kind="training"))
    except ServiceError:
        return True


def _new_session(client: Client, settings: Settings, conditions: Conditions, state: RunState) -> Session:
    return client.session(
        base_model=settings.model,
        lora_rank=settings.lora_rank,
        num_generators=0,
        name=conditions.run_dir.name or None,
        resume_from=state.checkpoint_id,
    )


def _begin(session: Session, state: RunState, conditions: Conditions) -> None:
    """Go back to the latest checkpoint, without one to the beginning, and on from there in a new session."""
    if state.checkpoint_id is None:
        keep_earlier(conditions.run_dir, state.service_in(conditions.run_dir))
    state.return_to_checkpoint()
    state.open_session(session.id)
    state.save(conditions.run_dir)


def _end_after_error(
    session: Session, state: RunState, conditions: Conditions, make_run: Callable[[], Run], error: BaseException
) -> None:
    """Save what an interrupt would lose, stop what costs, and say whether the run can go on."""
    begun = session.id == state.session_id  # else it was just made, and the state is of another
    try:
        if begun and can_be_saved_after(error):
            give_room(conditions.run_dir)
            save_at_end(make_run, state, conditions)
    finally:
        stopped = _stop_if_possible(session)
        if begun and stopped:
            _remember_stop_if_possible(state, conditions)
    if state.finished:
        return
    if not (state.is_resumable and conditions.keeps_checkpoints(state)):
        errors.print("no checkpoint was saved: the same command begins anew", style="yellow", markup=False)
    else:
        step = state.checkpoint_step if state.stopped else state.step
        errors.print(f"the same command goes on after step {step}", style="yellow", markup=False)


def _stop_if_possible(session: Session) -> bool:
    """Stop a session, or say why it is not stopped: the error that ended the run is what its user must see."""
    try:
        session.stop()
    except ServiceError as error:
        errors.print(f"warning: {error}", style="yellow", markup=False)
        return False
    return True


def _remember_stop(state: RunState, conditions: Conditions) -> None:
    state.stopped = True
    state.save(conditions.run_dir)


def _remember_stop_if_possible(state: RunState, conditions: Conditions) -> None:
    """Remember it, or say that it is not remembered."""
    try:
        _remember_stop(state, conditions)
    except (FileFormatError, OSError) as error:
        errors.print(
            f"warning: the session is stopped, which is not in run.json: {error}", style="yellow", markup=False
        )
