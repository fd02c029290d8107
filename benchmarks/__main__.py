"""The command line: `python -m benchmarks`."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import metadata

import click
from rich.console import Console

from benchmarks.row import FULL, QUICK
from benchmarks.verdicts import Verdict, as_json, as_table, run_row
from benchmarks.works import all_rows

_PEERS = ("together", "tinker", "tinker-cookbook", "trl", "renderers", "transformers", "pydantic", "orjson", "numpy")
_TESTED = {"together": "3.1.1"}
_EPILOG = "Example: python -m benchmarks --row build --row json --rounds 11"


@click.command(epilog=_EPILOG)
@click.option("--row", "keys", multiple=True, metavar="NAME", type=click.Choice(list(all_rows())),
              help=f"Only this row; may be given several times: {', '.join(all_rows())}.")  # fmt: skip
@click.option("--quick", is_flag=True, help="A small batch: seconds instead of minutes, and verdicts only hint.")
@click.option("--rounds", type=click.IntRange(min=5), help="How often every contender runs; at least 5.")
@click.option("--json", "as_records", is_flag=True, help="Print records instead of a table.")
def main(keys: tuple[str, ...], quick: bool, rounds: int | None, as_records: bool) -> None:
    """Measure samplekit beside its peers and print ratios with their gates.

    All contenders run interleaved, on CPU time, and in this one process where a row says nothing else. A gate that is
    missed is shown, not an exit code: a timing is never a test.
    """
    size = QUICK if quick else FULL
    size = replace(size, rounds=rounds or size.rounds)
    errors = Console(stderr=True)
    verdicts: list[Verdict] = []
    for key, row in all_rows().items():
        if not keys or key in keys:
            with errors.status(f"measuring: {row.work}"):
                verdicts += run_row(row, size)
    if as_records:
        click.echo(json.dumps(as_json(verdicts), indent=2))
        return
    batch = f"{size.num_samples} samples of {size.num_tokens} tokens, median of {size.rounds} interleaved rounds"
    Console().print(as_table(verdicts, f"{batch}; {_versions()}{'; quick: verdicts only hint' if quick else ''}"))


def _versions() -> str:
    """Name the peers' versions, and say where one is not the version that the gates were set for."""
    shown: list[str] = []
    for package in _PEERS:
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
        wanted = _TESTED.get(package, version)
        shown.append(f"{package} {version}" + (f" (gates are for {wanted})" if version != wanted else ""))
    return ", ".join(shown)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
