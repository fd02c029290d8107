"""Lines of plain, gzip or zstd files: read as a stream, written beside the target and renamed when whole."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import secrets
import zlib
from collections.abc import Generator, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import IO, Any, cast

import orjson

from samplekit.errors import FileFormatError, MissingExtraError

_BOM = b"\xef\xbb\xbf"
_ZSTD = (".zst", ".zstd")
_KINDS = {b"\x1f\x8b": ("gzip", ".gz"), b"\x28\xb5\x2f\xfd": ("zstd", ".zst"), b"PAR1": ("Parquet", ".parquet")}
_NO_NUMBER = re.compile("NaN|Infinity")  # what Python's json writes; orjson stops behind a sign


def read_objects(path: str | os.PathLike[str]) -> Iterator[tuple[int, dict[str, Any] | FileFormatError]]:
    """Yield each line's number, from 1, and its JSON object, or the fault that stands in its place.

    Blank lines are passed over. Faults of the file itself (missing, truncated archive) are raised, for nothing more can
    be read; a fault of one line is yielded, for the next line may be fine.

    Raises:
        FileFormatError: the file cannot be read.
        MissingExtraError: a .zst file and no zstd package.
    """
    name = os.fspath(path)
    for number, line in read_lines(name):
        text = line.removeprefix(_BOM) if number == 1 else line
        if not text.strip():
            continue
        try:
            found = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            yield number, FileFormatError(f"{name}:{number} {_why(text, error)}", path=name, line=number)
            continue
        if isinstance(found, dict):
            yield number, cast("dict[str, Any]", found)
        else:
            kind = type(found).__name__
            yield (
                number,
                FileFormatError(f"{name}:{number} is a JSON {kind}, expected an object", path=name, line=number),
            )


def _why(line: bytes, error: orjson.JSONDecodeError) -> str:
    """Say what keeps a line from being JSON, in terms of its bytes where it is no text."""
    for opening, (kind, ending) in _KINDS.items():
        if line.startswith(opening):
            return f"is {kind} data, expected JSON lines: give the file a name that ends in {ending}"
    try:
        line.decode()
    except UnicodeDecodeError as fault:
        return f"is not JSON: byte {line[fault.start]:#04x} at {fault.start} is not UTF-8; convert the file to UTF-8"
    if word := _NO_NUMBER.match(error.doc, error.pos):
        return (
            f"is not JSON: {word[0]} at character {error.pos}, for which JSON has no number; mend what made it, or "
            "leave the row out"
        )
    return f"is not JSON: {error.msg} at character {error.pos}; one JSON object a line is expected"


def read_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes]]:
    """Yield each line, decompressed and with its end, and its number from 1.

    Raises:
        FileFormatError: the file is missing, damaged or cut short.
        MissingExtraError: a .zst file and no zstd package.
    """
    name = os.fspath(path)
    number = 0
    try:
        with _open_to_read(name) as stream:
            for line in stream:
                number += 1
                yield number, line
    except FileNotFoundError as error:
        raise FileFormatError(f"{name} does not exist: check the path", path=name) from error
    except IsADirectoryError as error:
        raise FileFormatError(f"{name} is a folder, expected a file of JSON lines", path=name) from error
    except PermissionError as error:
        raise FileFormatError(f"{name} may not be read: check its permissions", path=name) from error
    except _damage(name) as error:
        raise FileFormatError(
            f"{name}:{number + 1} cannot be read ({error}): the file is damaged or cut short",
            path=name,
            line=number + 1,
        ) from error


def _open_to_read(name: str) -> IO[bytes]:
    if name.endswith(".gz"):
        return cast("IO[bytes]", gzip.open(name, "rb"))
    if name.endswith(_ZSTD) and Path(name).stat().st_size:  # of an empty file, zstd asks for an end that is not there
        return cast("IO[bytes]", _zstd(name).open(name, "rb"))
    return Path(name).open("rb")


def _damage(name: str) -> tuple[type[Exception], ...]:
    """Name the exceptions by which a damaged file shows itself."""
    found: tuple[type[Exception], ...] = (EOFError, zlib.error, OSError)
    return (*found, _zstd(name).ZstdError) if name.endswith(_ZSTD) else found


def _zstd(name: str) -> ModuleType:
    for module in ("compression.zstd", "backports.zstd"):  # the standard library's from Python 3.14 on
        with contextlib.suppress(ImportError):
            return import_module(module)
    raise MissingExtraError(f'{name} needs a zstd package: pip install "samplekit[zstd]"', extra="zstd")


@contextlib.contextmanager
def write_whole(path: str | os.PathLike[str]) -> Generator[IO[bytes]]:
    """Open a file for bytes that appears under its name only when the block ends without an error.

    It is written beside the target and renamed; .gz and .zst names are compressed, with the same bytes for the same
    content. Whatever stood there before stays until then.

    Raises:
        FileFormatError: the folder does not exist or cannot be written to.
        MissingExtraError: a .zst name and no zstd package.
    """
    target = Path(path).resolve()
    if target.is_dir():
        raise FileFormatError(f"{target} is a folder, expected the name of a file to write", path=str(target))
    if target.exists() and not target.is_file():  # renaming over it would put a plain file in its place
        raise FileFormatError(f"{target} is a device or a pipe, expected the name of a file to write", path=str(target))
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        raw = beside.open("xb")
    except OSError as error:
        raise FileFormatError(
            f"{target} cannot be written ({error.strerror}): create its folder or choose another", path=str(target)
        ) from error
    try:
        with raw, _compressing(raw, target.name) as stream:
            yield stream
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _compressing(raw: IO[bytes], name: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    if name.endswith(".gz"):
        return cast("contextlib.AbstractContextManager[IO[bytes]]", gzip.GzipFile("", "wb", fileobj=raw, mtime=0))
    if name.endswith(_ZSTD):
        return cast("contextlib.AbstractContextManager[IO[bytes]]", _zstd(name).ZstdFile(raw, "wb"))
    return contextlib.nullcontext(raw)
