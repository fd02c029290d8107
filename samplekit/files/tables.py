"""Rows of tables: JSON documents, Parquet files and data sets, each with the place it came from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, cast

import orjson

from samplekit.chat.columns import is_list, without_filled_nulls
from samplekit.chat.formats import is_row
from samplekit.errors import FileFormatError, MissingExtraError, SampleError
from samplekit.files.lines import read_lines, read_objects

_Row: TypeAlias = dict[str, Any]
Source: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Iterable[Mapping[str, Any]]

_COMPRESSED = (".gz", ".zst", ".zstd")
_BATCH_ROWS = 256
_BOM = b"\xef\xbb\xbf"


class Place(NamedTuple):
    """Where a row stands: what errors call it, its file and its number there, from 1 (0: not in a file)."""

    name: str
    path: str
    number: int

    def fault(self, what: str) -> FileFormatError:
        """Make the error of this row."""
        return FileFormatError(f"{self.name} {what}", path=self.path, line=self.number)


Found: TypeAlias = tuple[Place, Mapping[str, Any] | FileFormatError]


def find_rows(source: Source) -> Iterator[Found]:
    """Yield every row of paths, or of a data set, with its place; or the fault that stands where a row should.

    Raises:
        FileFormatError: a file cannot be read.
        MissingExtraError: a .parquet or .zst file and no package that reads it.
    """
    if isinstance(source, str | os.PathLike):
        yield from _file_rows(os.fspath(source))
        return
    features = getattr(source, "features", None)  # a datasets.Dataset: its table fills absent keys with null
    for number, item in enumerate(cast("Iterable[object]", source)):
        place = Place(f"rows[{number}]", f"rows[{number}]", 0)
        if isinstance(item, str | os.PathLike):
            yield from _file_rows(os.fspath(item))
        elif not isinstance(item, Mapping):
            yield place, place.fault(f"is a {type(item).__name__}, expected a mapping or a path")
        else:
            row = cast("_Row", item)
            yield place, row if features is None else without_filled_nulls(dict(row), features)


def check_source(source: object) -> None:
    """Refuse what is neither a path nor rows.

    Raises:
        SampleError: it is a mapping, such as a data set of several splits, or nothing that can be read row by row.
    """
    if isinstance(source, str | os.PathLike):
        return
    kind = type(source).__name__
    if isinstance(source, Mapping):
        raise SampleError(f"source is a {kind}, expected a path or rows: pass one split of it, or a list of rows")
    if hasattr(source, "columns") and not hasattr(source, "features"):
        raise SampleError(f"source is a {kind}, expected a path or rows: pass its rows as mappings, or a Parquet file")
    if isinstance(source, bytes) or not isinstance(source, Iterable):
        raise SampleError(f"source is a {kind}, expected a path, several, a data set or rows")


def _file_rows(name: str) -> Iterator[Found]:
    plain = name
    while plain.endswith(_COMPRESSED):
        plain = plain.rpartition(".")[0]
    if name.endswith(".parquet"):
        yield from _parquet_rows(name)
    elif plain.endswith(".json") and not _holds_lines(name):
        yield from _document_rows(name)
    else:
        for number, found in read_objects(name):
            yield Place(f"{name}:{number}", name, number), found


def _holds_lines(name: str) -> bool:
    """Say whether a .json file holds JSON lines, as many do: an object on its first line, and more lines."""
    first = list(islice((line for _, line in read_lines(name) if line.removeprefix(_BOM).strip()), 2))
    if len(first) < 2:
        return False
    try:
        return isinstance(orjson.loads(first[0].removeprefix(_BOM)), dict)
    except orjson.JSONDecodeError:
        return False


def _document_rows(name: str) -> Iterator[Found]:
    """Yield the rows of a JSON document, which is read whole."""
    text = b"".join(line for _, line in read_lines(name)).removeprefix(_BOM)
    if not text.strip():
        return
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        where = f"{name}:{error.lineno}"
        raise FileFormatError(
            f"{where} is not JSON: {error.msg} at character {error.colno}", path=name, line=error.lineno
        ) from error
    for number, found in enumerate(_rows_of(document, name), start=1):
        place = Place(f"{name}:row {number}", name, number)
        if isinstance(found, dict):
            yield place, cast("_Row", found)
        else:
            yield place, place.fault(f"is a JSON {type(found).__name__}, expected an object")


def _rows_of(document: object, name: str) -> list[Any]:
    if is_list(document):
        return document
    if not isinstance(document, dict):
        raise FileFormatError(f"{name} is a JSON {type(document).__name__}, expected a list of rows", path=name)
    known = cast("_Row", document)
    lists = {key: value for key, value in known.items() if is_list(value)}
    if len(lists) == 1:
        rows = next(iter(lists.values()))
        first = rows[0] if rows else None
        if not _is_any_row(known) or (isinstance(first, dict) and _is_any_row(cast("_Row", first))):
            return rows
    if _is_any_row(known):
        return [known]
    raise FileFormatError(
        f"{name} is an object with the lists {', '.join(sorted(lists)) or '(none)'}, expected one list of rows",
        path=name,
    )


def _is_any_row(mapping: _Row) -> bool:
    return "tokens" in mapping or is_row(mapping)


def _parquet_rows(name: str) -> Iterator[Found]:
    """Yield the rows of a Parquet file, a batch in memory at a time."""
    if not Path(name).is_file():
        what = "is a folder, expected a file" if Path(name).is_dir() else "does not exist: check the path"
        raise FileFormatError(f"{name} {what}", path=name)
    rows = _parquet_batches(name, _pyarrow(name))
    for number, row in enumerate(rows, start=1):
        yield Place(f"{name}:row {number}", name, number), without_filled_nulls(row)


def _parquet_batches(name: str, parquet: ModuleType) -> Iterator[_Row]:
    number = 0
    try:
        with parquet.ParquetFile(name) as table:
            for batch in table.iter_batches(batch_size=_BATCH_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield row
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's own errors are kinds of these
        raise FileFormatError(
            f"{name}:row {number + 1} cannot be read ({error}): the file is damaged or no Parquet file",
            path=name,
            line=number + 1,
        ) from error


def _pyarrow(name: str) -> ModuleType:
    try:
        return import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingExtraError(f'{name} needs pyarrow: pip install "samplekit[parquet]"', extra="parquet") from error
