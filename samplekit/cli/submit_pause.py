"""A run that is asked to end, by Ctrl-C or SIGTERM: what it has begun is finished and saved, then its session stops."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING

from samplekit.cli.screen import errors
from samplekit.errors import SamplekitError

if TYPE_CHECKING:
    from samplekit.cli.submit_run import Run
    from samplekit.cli.submit_session import Conditions

SECONDS = 120.0


@contextlib.contextmanager
def saved_at_interrupt(run: Run, conditions: Conditions) -> Generator[None]:
    """Save a training checkpoint where the block is interrupted after steps that no checkpoint holds."""
    try:
        yield
    except KeyboardInterrupt:
        if not run.has_unsaved_steps:
            pass
        elif conditions.keeps_checkpoints:
            _save(run)
        else:
            errors.print(
                "the service of this run ends with it and keeps nothing: pass --save-every to keep checkpoints",
                style="yellow",
            )
        raise


def _save(run: Run) -> None:
    errors.print(
        f"saving a checkpoint to go on from, for {SECONDS:g} s at most; interrupt again to end at once", style="yellow"
    )
    try:
        run.settle(SECONDS)
    except (SamplekitError, OSError) as error:
        errors.print(f"warning: no checkpoint was saved: {error}", style="yellow", markup=False)
    except KeyboardInterrupt:
        errors.print("interrupted again: no checkpoint was saved", style="yellow")
    else:
        errors.print(f"saved checkpoint {run.state.checkpoint_id}", style="yellow", markup=False)
