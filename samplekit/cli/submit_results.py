"""What comes of a run: its weights saved and fetched, and what its user is told at the end."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from rich.table import Table

from samplekit.cli.screen import errors, results
from samplekit.client.endpoint import is_loopback
from samplekit.errors import MissingExtraError, SampleError

if TYPE_CHECKING:
    from samplekit.cli.submit_plan import Plan, Settings
    from samplekit.cli.submit_run import Run
    from samplekit.cli.submit_session import Conditions
    from samplekit.cli.submit_state import RunState
    from samplekit.client import Client
    from samplekit.files import RunFolder


def save_weights(client: Client, run: Run, conditions: Conditions) -> dict[str, Any]:
    """Save the trained weights where that is wanted, and give what there is of them."""
    wanted = conditions.save
    if wanted is None:
        wanted = conditions.download is not None or not is_loopback(client.base_url)
    if not wanted:
        return {}
    with errors.status("saving the trained weights"):
        return {"checkpoint": run.save_weights().id}


def fetch_weights(client: Client, settings: Settings, conditions: Conditions, state: RunState) -> None:
    """Fetch the saved weights where that is asked for and not done: after the session, which costs while it lasts."""
    if conditions.download is None or not state.can_fetch:
        return
    variant = "merged" if settings.lora_rank is None else "adapter"
    checkpoint = state.saved["checkpoint"]
    try:
        try:
            files = client.download(checkpoint, conditions.download, variant=variant)
        except SampleError as error:  # it holds other files, and the service may end with this run
            errors.print(f"{error}: the weights go into {checkpoint} in it", style="yellow", markup=False)
            files = client.download(checkpoint, conditions.download / checkpoint, variant=variant)
    except BaseException:
        is_kept = conditions.keeps_checkpoints(state)
        then = "the same command fetches it" if is_kept else "it ends with the service of this run"
        errors.print(f"checkpoint {checkpoint} is saved and not fetched: {then}", style="yellow", markup=False)
        raise
    state.saved["files"] = [str(path) for path in files]
    state.save(conditions.run_dir)


def make_summary(folder: RunFolder, state: RunState, plan: Plan) -> dict[str, Any]:
    """Gather what a script reads of a run that is over."""
    losses, held_out = folder.losses, state.held_out
    summary: dict[str, Any] = {
        "run_dir": str(folder.path),
        "steps": state.step,
        "tokens": sum(step.num_tokens for step in plan.steps),
        "trained": sum(step.num_trained for step in plan.steps),
        "first_loss": losses[0][1] if losses else None,
        "last_loss": losses[-1][1] if losses else None,
        "held_out_loss": held_out,
        **state.saved,
    }
    with contextlib.suppress(MissingExtraError):  # the curve is a convenience
        label = {} if state.plan["loss"] == "cross_entropy" else {"label": f"{state.plan['loss']} loss of a step"}
        summary["curve"] = str(folder.plot_loss({int(step): loss for step, loss in held_out.items()}, **label))
    if state.checkpoint_id is not None:
        summary["training_checkpoint"] = state.checkpoint_id
    return summary


def print_summary(summary: dict[str, Any]) -> None:
    """Show it to people."""
    table = Table(show_header=False, box=None)
    table.add_row("steps", f"{summary['steps']:,}")
    table.add_row("tokens", f"{summary['tokens']:,} ({summary['trained']:,} trained)")
    if summary["first_loss"] is not None:
        table.add_row("loss", f"{summary['first_loss']:.3f} at first, {summary['last_loss']:.3f} at last")
    scores = list(summary["held_out_loss"].values())
    if scores:
        table.add_row("held-out loss", f"{scores[0]:.3f} before, {scores[-1]:.3f} after")
    for name in ("checkpoint", "training_checkpoint", "curve", "run_dir"):
        if name in summary:
            table.add_row(name.replace("_", " "), summary[name])
    for path in summary.get("files", ()):
        table.add_row("fetched", path)
    results.print(table)
