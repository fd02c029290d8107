"""`samplekit submit`: a whole training run from a samples file."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from samplekit.checks import Report
from samplekit.cli.screen import errors, load_template, number_of, print_json, progress
from samplekit.cli.submit_cadence import Cadence, Keys
from samplekit.cli.submit_folder import FolderName, default_folder, held_folder, make_writable
from samplekit.cli.submit_held_out import split_held_out
from samplekit.cli.submit_logs import Logs, Place, tensorboard_log, wandb_log
from samplekit.cli.submit_plan import (
    LOSS_NAMES,
    SCHEDULES,
    FiniteRange,
    Settings,
    Source,
    digest_of,
    make_plan,
    read_checked,
    require_file,
)
from samplekit.cli.submit_results import fetch_weights, make_summary, print_summary, save_weights
from samplekit.cli.submit_run import Run
from samplekit.cli.submit_session import Conditions, limits_of, open_client, open_run, stop_left
from samplekit.cli.submit_state import RunState
from samplekit.errors import SampleError, StatusError
from samplekit.files import RunFolder, check_lock
from samplekit.wire.names import ENV_BASE_URL

if TYPE_CHECKING:
    from samplekit.cli.submit_plan import Plan
    from samplekit.client import Client, Session
    from samplekit.sample import Sample

NO_TEMPLATE = "none"


@click.command(short_help="Train on a samples file through a service.")
@click.argument("samples", type=click.Path(path_type=Path))
@click.option("--model", "-m", required=True, help="What is trained: samplekit/tiny, a path, or a name of the service.")
@click.option("--base-url", envvar=ENV_BASE_URL, show_envvar=True,
              help="The service; else a local one is started for the run.")  # fmt: skip
@click.option("--loss", type=click.Choice(sorted(LOSS_NAMES)), default="cross_entropy", show_default=True,
              help="What is minimised; its inputs stand in the samples.")  # fmt: skip
@click.option("--beta", type=FiniteRange(min=0), help="Of --loss dro and grpo.")
@click.option("--lora-rank", type=click.IntRange(min=1), help="Train an adapter; else full weights.")
@click.option("--epochs", type=click.IntRange(min=1), default=1, show_default=True, help="Passes over the samples.")
@click.option("--batch-size", type=click.IntRange(min=1), help="Samples sent at a time; 32, or the model's limit.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="The most positions sent at a time.")
@click.option("--accumulate", type=click.IntRange(min=1), default=1, show_default=True, help="Batches to a step.")
@click.option("--learning-rate", type=FiniteRange(min=0, min_open=True), default=1e-4, show_default=True,
              help="Of Adam, at its highest: after the warm-up.")  # fmt: skip
@click.option(
    "--schedule", type=click.Choice(SCHEDULES), default="linear", show_default=True, help="How it falls to 0, or not."
)
@click.option("--warmup", type=FiniteRange(min=0), default=0.0, help="Steps it rises in; below 1 a share of all.")
@click.option("--weight-decay", type=FiniteRange(min=0), default=0.0, show_default=True, help="Of Adam.")
@click.option("--grad-clip", type=FiniteRange(min=0), default=1.0, show_default=True,
              help="Largest norm of the gradient, of cross_entropy's mean loss; 0 does not clip.")  # fmt: skip
@click.option("--held-out", help="Kept apart and scored: a share (0.1) or a number, in whole conversations, or a file.")
@click.option("--evaluate-every", type=click.IntRange(min=1), help="Steps between scores; else once an epoch.")
@click.option("--save-every", type=click.IntRange(min=1), help="Steps between training checkpoints, to resume from.")
@click.option(
    "--save/--no-save", default=None, help="Save the trained weights at the end; not by default on this machine."
)
@click.option("--download", type=FolderName(), help="Fetch them into this folder; implies --save.")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Of the order of the samples, and of those held out."
)
@click.option("--run-dir", type=FolderName(), help="Metrics and state; else runs/<name>.")
@click.option("--resume", is_flag=True, help="Go on with the run of --run-dir or not at all.")
@click.option("--overwrite", is_flag=True, help="Begin anew where the run of --run-dir is over or its checkpoint gone.")
@click.option("--template", help="Tokenizer that samples and lock are held to; else --model. 'none' for none.")
@click.option("--wandb", metavar="PROJECT", help="Log to Weights & Biases too.")
@click.option("--tensorboard", is_flag=True, help="Log to TensorBoard too.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def submit(samples: Path, as_json: bool, run_dir: Path | None, template: str | None, **options: Any) -> None:  # noqa: ANN401
    """Train on every sample of SAMPLES, which samplekit build has made.

    Everything is checked before anything is created. The folder of the run holds metrics.jsonl (a line a step),
    held_out.jsonl (a line a score) and run.json, where the run stands: the same command goes on with a run that was
    interrupted or killed, and no step is lost or done twice.

    \b
    Example:
      samplekit submit samples.jsonl --model samplekit/tiny --epochs 3 --learning-rate 4e-3 --held-out 0.1
      samplekit submit samples.jsonl --model Qwen/Qwen3-8B --base-url https://api.together.ai --lora-rank 32 \\
        --schedule cosine --warmup 0.03 --save-every 50 --download trained
    """
    folder = run_dir or default_folder(samples)
    settings = Settings(**{name: options.pop(name) for name in Settings.__dataclass_fields__ if name in options})
    options["base_url"] = options["base_url"] or None  # an empty one is none
    conditions = Conditions(template=template or settings.model, run_dir=folder, **options)
    _require_use(conditions)
    summary = _run(samples, settings, conditions)
    if as_json:
        print_json(summary)
    else:
        print_summary(summary)


def _require_use(conditions: Conditions) -> None:
    """Refuse what would be saved for nobody."""
    if conditions.save is False and conditions.download is not None:
        raise click.UsageError("--no-save saves no weights that --download could fetch: leave one of them out")
    if conditions.save and conditions.download is None and not conditions.keeps_checkpoints():
        raise click.UsageError(
            "--save: the local service of this run ends with it, and the saved weights with the service: pass "
            "--download FOLDER to have them, or --save-every to keep what the service has"
        )


def _run(path: Path, settings: Settings, conditions: Conditions) -> dict[str, Any]:
    """Check, open, train, save."""
    sources = _read(path, settings, conditions)
    train, held_out = _parts(sources, settings)
    digests = [digest_of(source.path) for source in sources]
    identity = {"samples": digests[0], "held_out_samples": digests[1] if len(digests) > 1 else None}
    with contextlib.ExitStack() as stack:
        stack.enter_context(held_folder(conditions.run_dir))
        if conditions.download is not None:
            make_writable(conditions.download, "--download")
        state = _state(conditions, {**asdict(settings), **identity})
        keys = Keys()
        client = stack.enter_context(open_client(stack, settings, conditions, keys, state))
        limits = limits_of(client, settings)
        for source in sources:
            source.require_lengths(settings, limits)
        with errors.status("planning"):
            plan = make_plan(train, held_out, settings, limits)
        if state.complete:
            stop_left(client, conditions, state)
        else:
            state.take_batches(plan.digest)
            _announce(client, settings, plan)
            logs, cadence = _logs(stack, settings, conditions, state), _cadence(conditions, plan)

            def make_run(session: Session) -> Run:
                folder = RunFolder(conditions.run_dir, resume_at=state.step)
                return Run(session, plan, settings, cadence, folder, state, keys, logs)

            with open_run(client, settings, conditions, state, make_run) as run:
                with progress(transient=False) as display:
                    task = display.add_task("training", total=len(plan.steps), completed=state.step, note="")
                    run.tell = lambda done, note: display.update(task, completed=done, note=note)
                    run.train()
                run.complete(save_weights(client, run, conditions))
        fetch_weights(client, settings, conditions, state)
    return make_summary(RunFolder(conditions.run_dir, resume_at=state.step), state, plan)


def _read(path: Path, settings: Settings, conditions: Conditions) -> list[Source]:
    """Hold samples and locks to the tokenizer, and give the file that trains, and that which is held out.

    Raises:
        SampleError: a sample is at fault; all faults are printed.
    """
    template = None if conditions.template == NO_TEMPLATE else load_template(conditions.template)
    vocab_size = None if template is None else len(template.tokenizer)
    paths = [path]
    if settings.held_out is not None and Path(settings.held_out).is_file():
        paths.append(Path(settings.held_out))
    found: list[Source] = []
    for item in paths:
        require_file(item)
        check_lock(item, template)
        source, report = read_checked(item, settings.make_loss(), vocab_size)
        _require_good(item, report)
        found.append(source)
    return found


def _parts(sources: Sequence[Source], settings: Settings) -> tuple[list[Sample], list[Sample]]:
    """Give what trains and what is held out."""
    train = sources[0].samples
    if len(sources) > 1 or settings.held_out is None:
        return train, sources[1].samples if len(sources) > 1 else []
    return split_held_out(train, settings.held_out, settings.seed)


def _require_good(path: Path, report: Report) -> None:
    if not report.ok:
        errors.print(str(report), style="red", markup=False)
        raise SampleError(
            f"{path} has {number_of(len(report.errors), 'fault')}: nothing was created; samplekit validate names them"
        )
    if report.warnings:
        errors.print(f"{path}: {report}", style="yellow", markup=False)


def _state(conditions: Conditions, plan: dict[str, Any]) -> RunState:
    """Give the state to go on from, or a new one; never one that would bury a run which can be resumed."""
    known = RunState.read(conditions.run_dir)
    fetches = conditions.download is not None and conditions.keeps_checkpoints(known)
    if known is not None and known.finished and known.can_fetch and fetches and not conditions.overwrite:
        _require_same(known, conditions, plan)
        errors.print(f"{conditions.run_dir} is gone on with: its weights are fetched", style="dim", markup=False)
        return known
    if known is not None and known.finished and not (conditions.overwrite or conditions.resume):
        raise click.UsageError(
            f"{conditions.run_dir} holds a finished run: take another --run-dir, or --overwrite to begin anew"
        )
    if known is None or not known.is_resumable:
        if conditions.resume:
            why = "no run" if known is None else "a finished run" if known.finished else "a run without a checkpoint"
            raise click.UsageError(f"--resume: {conditions.run_dir} holds {why}: start anew without --resume")
        return RunState(plan, base_url=conditions.base_url)
    _require_same(known, conditions, plan)
    return known


def _require_same(known: RunState, conditions: Conditions, plan: dict[str, Any]) -> None:
    """Refuse to go on with a run under other settings, or on a service that knows nothing of it."""
    known.require_plan(plan)
    if known.base_url != conditions.base_url:
        where = known.base_url or "a local one of its own"
        raise click.UsageError(f"{conditions.run_dir} can go on, its service was {where}: or take another --run-dir")


def _announce(client: Client, settings: Settings, plan: Plan) -> None:
    """Say what will happen, and what it costs where the service names a price."""
    lines = f"{number_of(plan.num_samples, 'sample')}, {number_of(len(plan.steps), 'step')} on {client.base_url}"
    with contextlib.suppress(StatusError):
        cost = client.estimate_cost(base_model=settings.model, lora_rank=settings.lora_rank, num_generators=0)
        lines += f", {cost.price_per_hour:g} {cost.currency} an hour" if cost.price_per_hour else ""
    errors.print(lines, style="dim")
    if (warmup := settings.warmup_of(len(plan.steps))) >= len(plan.steps) > 1:
        errors.print(
            f"warning: --warmup {settings.warmup:g} lasts {number_of(warmup, 'step')}, the whole run: the learning "
            f"rate comes to {settings.rate_at(len(plan.steps) - 1, len(plan.steps)):.3g} at most",
            style="yellow",
        )


def _cadence(conditions: Conditions, plan: Plan) -> Cadence:
    """Score as often as asked, else after every epoch."""
    ends = {step.epoch: step.index + 1 for step in plan.steps}  # the last of each
    return Cadence(conditions.evaluate_every, conditions.save_every, frozenset(ends.values()))


def _logs(stack: contextlib.ExitStack, settings: Settings, conditions: Conditions, state: RunState) -> Logs:
    """Open the other places that metrics go to."""
    places: list[Place] = []
    if conditions.wandb is not None:
        places.append(wandb_log(conditions.wandb, asdict(settings), conditions.run_dir, state.id))
    if conditions.tensorboard:
        places.append(tensorboard_log(conditions.run_dir))
    for place in places:
        stack.callback(place.close)
    logs = Logs([place.log for place in places])
    stack.callback(logs.give)  # what an interrupt left: after the session has stopped, for their code takes its time
    return logs
