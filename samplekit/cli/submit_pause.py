"""A run that must end, by Ctrl-C, SIGTERM or a full disk: what it has begun is finished and saved first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from samplekit.cli.screen import errors
from samplekit.errors import FileFormatError, SamplekitError, ServiceError

if TYPE_CHECKING:
    from samplekit.cli.submit_run import Run
    from samplekit.cli.submit_session import Conditions
    from samplekit.cli.submit_state import RunState

SECONDS = 120.0


def can_be_saved_after(error: BaseException) -> bool:
    """Tell whether an error lies with this machine or its user, so that the service can still save what it trained."""
    return isinstance(error, KeyboardInterrupt | OSError | FileFormatError) and not isinstance(error, ServiceError)


def save_at_end(make_run: Callable[[], Run], state: RunState, conditions: Conditions) -> None:
    """Save a training checkpoint where steps were begun that no checkpoint holds.

    Args:
        make_run: makes a run that goes on from the state; the one that was broken off is not asked for anything.
        state: where the run stands.
        conditions: whether checkpoints are kept.
    """
    if not state.has_unsaved_steps:
        return
    if not conditions.keeps_checkpoints(state):
        errors.print(
            "the service of this run ends with it and keeps nothing: pass --save-every to keep checkpoints",
            style="yellow",
        )
        return
    errors.print(
        f"saving a checkpoint to go on from, for {SECONDS:g} s at most; interrupt again to end at once", style="yellow"
    )
    try:
        make_run().settle(SECONDS)
    except (SamplekitError, OSError) as error:
        errors.print(f"warning: no checkpoint was saved: {error}", style="yellow", markup=False)
    except KeyboardInterrupt:
        errors.print("interrupted again: no checkpoint was saved", style="yellow")
    else:
        errors.print(f"saved checkpoint {state.checkpoint_id}", style="yellow", markup=False)
