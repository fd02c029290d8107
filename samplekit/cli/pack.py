"""`samplekit pack`: samples or conversations to packed rows, in a file that numpy or Parquet readers open."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# (pyarrow annotates only part of what is used here)

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from samplekit.cli.pack_read import read_documents, refuse_longer
from samplekit.cli.screen import errors, load_template, print_json, results
from samplekit.cli.template_options import read_settings, template_options
from samplekit.errors import MissingExtraError, SampleError
from samplekit.files import write_whole
from samplekit.packing import STRATEGIES, UNTRAINED, PackedRows, Record, pack
from samplekit.packing.lengths import OVERSIZE, WIDEST_ROW

_BARS = 10
_NAMED = 3
_LARGEST_ID = 2**63 - 1


@click.command(name="pack", short_help="Pack samples into rows for your own trainer.")
@click.argument("samples", type=click.Path(path_type=Path))
@click.option("--model", "-m", help="SAMPLES are conversations: build them with this tokenizer and chat template.")
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="The rows: .npz or .parquet.")
@click.option("--max-length", required=True, type=click.IntRange(2, WIDEST_ROW), help="Tokens of a row.")
@click.option("--pad-id", required=True, type=click.IntRange(0, _LARGEST_ID),
              help="The token that fills rows up; any id the model knows, for it never trains.")  # fmt: skip
@click.option("--strategy", type=click.Choice(STRATEGIES), default="best", show_default=True,
              help="How rows are filled; first_fit keeps to the order of the samples.")  # fmt: skip
@click.option(
    "--oversize",
    type=click.Choice(OVERSIZE),
    default="error",
    show_default=True,
    help="What happens to samples longer than a row.",
)
@click.option(
    "--untrained",
    type=click.Choice(UNTRAINED),
    default="keep",
    show_default=True,
    help="What happens to samples of which no token trains once they are cut.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Shuffles the rows.")
@click.option(
    "--turns", type=click.Choice(["all", "last"]), default="all", show_default=True, help="Which replies train."
)
@template_options
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def pack_command(
    samples: Path, model: str | None, output: Path, max_length: int, pad_id: int, strategy: Any, oversize: Any,  # noqa: ANN401
    untrained: Any, seed: int, turns: str, thinking: str, template_kwargs: Sequence[str], as_json: bool,  # noqa: ANN401
) -> None:  # fmt: skip
    """Pack SAMPLES into rows for a trainer of your own. Never send packed rows to a service.

    Token ids are packed as they are: samplekit validate --model first holds them to the vocabulary.

    With --model, conversations are built and packed at once; samplekit build first, for more than --turns and
    --thinking.

    \b
    Example:
      samplekit pack samples.jsonl -o rows.npz --max-length 4097 --pad-id 0
      samplekit pack chats.jsonl --model samplekit/tiny -o rows.parquet --max-length 1025 --pad-id 0
    """
    if output.suffix not in (".npz", ".parquet"):
        raise click.BadParameter(f"{output} ends in neither .npz nor .parquet", param_hint="--output")
    if model is None and (turns, thinking, tuple(template_kwargs)) != ("all", "as_rendered", ()):
        raise click.UsageError("--turns, --thinking and --template-kwarg are about conversations: pass --model too")
    template = None if model is None else load_template(model, **read_settings(thinking, template_kwargs))
    records = read_documents(samples, template, turns)
    if oversize == "error":
        refuse_longer(records, max_length)
    rows = pack(
        records, max_length, pad_id=pad_id, strategy=strategy, oversize=oversize, seed=seed, untrained=untrained
    )
    if not rows:
        why = "every sample was dropped: raise --max-length" if records else "there is no sample in it"
        raise SampleError(f"{samples} gave no row to write: {why}")
    _write(rows, output)
    report = _report(records, rows, output)
    _warn(rows, untrained)
    if as_json:
        print_json(report)
    else:
        _print(report)


def _columns(rows: PackedRows) -> dict[str, list[Any]]:
    names = ["loss_mask", *rows[0].per_token]
    columns: dict[str, list[Any]] = {"input_ids": [row.tokens for row in rows]}
    for name in names:
        columns[name] = [row.loss_mask if name == "loss_mask" else row.per_token[name] for row in rows]
    columns["document_ids"] = [row.document_ids for row in rows]
    return columns


def _write(rows: PackedRows, output: Path) -> None:
    """Write the rows whole or not at all: an interrupted run leaves what stood there before."""
    if output.suffix == ".npz":
        _write_npz(rows, output)
    else:
        _write_parquet(rows, output)


def _write_npz(rows: PackedRows, output: Path) -> None:
    arrays: dict[str, Any] = {name: np.stack(values) for name, values in _columns(rows).items()}
    with write_whole(output) as stream:
        np.savez_compressed(stream, **arrays)


def _write_parquet(rows: PackedRows, output: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            'Parquet files need pyarrow, which is not installed: pip install "samplekit[parquet]", or write .npz',
            extra="parquet",
        ) from error
    columns = {**_columns(rows), "seq_lengths": [row.seq_lens for row in rows]}
    table = pa.table({name: [values.tolist() for values in found] for name, found in columns.items()})
    with write_whole(output) as stream:
        pq.write_table(table, stream)


def _report(records: list[Record], rows: PackedRows, output: Path) -> dict[str, Any]:
    plan = rows.plan
    lengths = [record.length for record in records]
    return {
        "output": str(output),
        "num_rows": plan.num_rows,
        "lower_bound": plan.lower_bound,
        "utilization": plan.utilization,
        "num_tokens_in": sum(lengths),
        "num_tokens_out": plan.num_tokens,
        "num_dropped": plan.num_dropped,
        "num_truncated": plan.num_truncated,
        "num_dropped_samples": plan.num_dropped_items,
        "num_truncated_samples": plan.num_truncated_items,
        "num_trained_in": rows.num_trained + rows.num_trained_lost,
        "num_trained_out": rows.num_trained,
        "num_untrained_samples": len(rows.untrained),
        "untrained": [str(name) for name in rows.untrained],
        "histogram": _histogram(lengths),
    }


def _histogram(lengths: list[int]) -> list[dict[str, int]]:
    """Count samples by length, in at most ten steps up to the longest."""
    longest = max(lengths)
    step = math.ceil(longest / _BARS)
    starts = range(1, longest + 1, step)
    found = [{"from": start, "to": min(start + step - 1, longest), "count": 0} for start in starts]
    for length in lengths:
        found[(length - 1) // step]["count"] += 1
    return found


def _warn(rows: PackedRows, untrained: str) -> None:
    """Say which samples train nothing: a trainer that builds samples of documents fails at them."""
    if rows.untrained:
        more = ", ..." if len(rows.untrained) > _NAMED else ""
        names = ", ".join(map(str, rows.untrained[:_NAMED])) + more
        done = "they were dropped" if untrained == "drop" else "say --untrained drop to leave them out"
        errors.print(
            f"warning: {len(rows.untrained)} samples train nothing once cut ({names}): {done}",
            style="yellow",
            markup=False,
        )


def _print(report: dict[str, Any]) -> None:
    table = Table(show_header=False, box=None)
    table.add_row("rows", f"{report['num_rows']:,} (at least {report['lower_bound']:,} needed)")
    table.add_row("utilisation", f"{report['utilization']:.2%}")
    for name in ("in", "out"):
        table.add_row(f"tokens {name}", f"{report[f'num_tokens_{name}']:,}")
    for name in ("dropped", "truncated"):
        table.add_row(name, f"{report[f'num_{name}']:,} tokens of {report[f'num_{name}_samples']:,} samples")
    trained, given = report["num_trained_out"], report["num_trained_in"]
    table.add_row("tokens that train", f"{trained:,} of {given:,}")
    table.add_row("written to", report["output"])
    results.print(table)
    most = max(item["count"] for item in report["histogram"])
    for item in report["histogram"]:
        bar = "#" * math.ceil(30 * item["count"] / most)
        results.print(f"{item['from']:>7,} to {item['to']:>7,}  {item['count']:>7,} {bar}", markup=False)
