"""One file a row: each defines ROW. A new file here is a new row; nothing else has to change."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from benchmarks.row import Row


def all_rows() -> dict[str, Row]:
    """Find every row by its key, in the order of the files."""
    found = sorted(item.name for item in iter_modules(__path__))
    rows: list[Row] = [import_module(f"{__name__}.{name}").ROW for name in found]
    return {row.key: row for row in rows}
