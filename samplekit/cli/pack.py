"""`samplekit pack`: samples to packed rows, in a file that numpy or Parquet readers open."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# (pyarrow annotates only part of what is used here)

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from samplekit.cli.screen import counted, print_json, results
from samplekit.errors import MissingExtraError, SampleError
from samplekit.files import read_samples, write_whole
from samplekit.packing import STRATEGIES, PackedRows, Record, pack

_BARS = 10


@click.command(name="pack")
@click.argument("samples", type=click.Path(path_type=Path))
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="The rows: .npz or .parquet.")
@click.option("--max-length", required=True, type=click.IntRange(min=2), help="Tokens of a row.")
@click.option("--pad-id", required=True, type=click.IntRange(min=0), help="The token that fills rows up.")
@click.option("--strategy", type=click.Choice(STRATEGIES), default="best", show_default=True)
@click.option(
    "--oversize",
    type=click.Choice(["error", "drop", "truncate", "truncate_left"]),
    default="error",
    show_default=True,
    help="What happens to samples longer than a row.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Shuffles the rows.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def pack_command(
    samples: Path, output: Path, max_length: int, pad_id: int, strategy: Any, oversize: Any, seed: int,  # noqa: ANN401
    as_json: bool,
) -> None:  # fmt: skip
    """Pack SAMPLES into rows for a trainer of your own. Never send packed rows to a service.

    \b
    Example:
      samplekit pack samples.jsonl -o rows.npz --max-length 4097 --pad-id 0
    """
    if output.suffix not in (".npz", ".parquet"):
        raise click.BadParameter(f"{output} ends in neither .npz nor .parquet", param_hint="--output")
    records = [Record.from_sample(sample) for sample in counted(read_samples(samples), "reading")]
    rows = pack(records, max_length, pad_id=pad_id, strategy=strategy, oversize=oversize, seed=seed)
    if not rows:
        why = "every sample was dropped: raise --max-length" if records else "there is no sample in it"
        raise SampleError(f"{samples} gave no row to write: {why}")
    _write(rows, output)
    report = _report(records, rows, output)
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
        "histogram": _histogram(lengths),
    }


def _histogram(lengths: list[int]) -> list[dict[str, int]]:
    """Count samples by length, in ten steps up to the longest."""
    step = math.ceil(max(lengths, default=0) / _BARS)
    found = [{"from": place * step + 1, "to": (place + 1) * step, "count": 0} for place in range(_BARS)]
    for length in lengths:
        found[(length - 1) // step]["count"] += 1
    return found


def _print(report: dict[str, Any]) -> None:
    table = Table(show_header=False, box=None)
    table.add_row("rows", f"{report['num_rows']:,} (at least {report['lower_bound']:,} needed)")
    table.add_row("utilisation", f"{report['utilization']:.2%}")
    for name in ("in", "out"):
        table.add_row(f"tokens {name}", f"{report[f'num_tokens_{name}']:,}")
    table.add_row("dropped", f"{report['num_dropped']:,} tokens")
    table.add_row("truncated", f"{report['num_truncated']:,} tokens")
    table.add_row("written to", report["output"])
    results.print(table)
    most = max((item["count"] for item in report["histogram"]), default=0)
    for item in report["histogram"]:
        bar = "#" * math.ceil(30 * item["count"] / most) if most else ""
        results.print(f"{item['from']:>7,} to {item['to']:>7,}  {item['count']:>7,} {bar}", markup=False)
