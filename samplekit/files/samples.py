"""Samples as JSON lines: the wire form of each, with its info beside it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from samplekit.errors import FileFormatError, SampleError
from samplekit.files.lines import read_objects, write_whole
from samplekit.files.lock import lock_path
from samplekit.sample import Sample
from samplekit.sample.kinds import describe_kind


def read_samples(path: str | os.PathLike[str]) -> Iterator[Sample]:
    """Stream the samples of a file that `write_samples` made (.jsonl, also .gz and .zst).

    Raises:
        FileFormatError: a line is no sample, named path:line.
    """
    name = os.fspath(path)
    for number, found in read_sample_rows(name):
        try:
            yield Sample.from_wire(found)
        except SampleError as error:
            raise FileFormatError(f"{name}:{number} {error}", path=name, line=number) from error


def read_sample_rows(
    path: str | os.PathLike[str], *, on_fault: Callable[[FileFormatError], None] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Stream a file's samples as mappings with their line numbers, unchecked: what `samplekit.check` takes.

    Args:
        path: the file.
        on_fault: called with each line's fault instead of raising it; the line is left out.

    Raises:
        FileFormatError: a line is no JSON object (unless on_fault takes it), or the file cannot be read.
    """
    for number, found in read_objects(path):
        if not isinstance(found, FileFormatError):
            yield number, found
        elif on_fault is None:
            raise found
        else:
            on_fault(found)


def write_samples(
    path: str | os.PathLike[str], samples: Iterable[Sample], *, lock: Mapping[str, Any] | None = None
) -> int:
    """Write samples as JSON lines, whole or not at all, and say how many there were.

    Args:
        path: the file; a name in .gz or .zst is compressed.
        samples: what to write, streamed.
        lock: what they were built with (`samplekit.files.make_lock`); stands beside the file with its digest, so that
            `check_lock` sees when one was changed without the other. None removes the lock of an older file of this
            name.

    Raises:
        SampleError: path is no path, an item is no Sample, or its info cannot be written as JSON; nothing is written
            then.
    """
    if not isinstance(path, str | os.PathLike):
        raise SampleError(f"path is {describe_kind(path)}, expected a file's name: call write_samples(path, samples)")
    if lock is not None:
        _info_json(lock, "lock")  # refused before anything is written
    count = 0
    digest = hashlib.sha256()
    with write_whole(path) as stream:
        for sample in samples:
            line = _line(sample, count)
            digest.update(line)
            stream.write(line)
            count += 1
    if lock is None:
        lock_path(path).unlink(missing_ok=True)  # one that was left is of the file that is no more
    else:
        contents = {"file": Path(path).name, "num_samples": count, "sha256": digest.hexdigest()}
        with write_whole(lock_path(path)) as stream:
            stream.write(
                orjson.dumps({**lock, "samples": contents}, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
            )
    return count


def _line(sample: object, index: int) -> bytes:
    if not isinstance(sample, Sample):
        raise SampleError(
            f"samples[{index}] is a {type(sample).__name__}, expected a Sample: make it with build_sample"
        )
    text = sample.to_json()
    if sample.info:
        text = b'%s,"info":%s}' % (text.removesuffix(b"}"), _info_json(sample.info, f"samples[{index}].info"))
    return text + b"\n"


def _info_json(info: Mapping[str, Any], name: str) -> bytes:
    """Print plain values as JSON; NaN, which orjson would print as null, is refused."""
    if name_of_nan := _find_nan(info, name):
        raise SampleError(f"{name_of_nan} is not finite, which JSON cannot say: leave it out or write it as text")
    try:
        return orjson.dumps(info, option=orjson.OPT_SERIALIZE_NUMPY)
    except (TypeError, orjson.JSONEncodeError) as error:
        raise SampleError(f"{name} cannot be written as JSON ({error}): keep plain values in it") from error


def _find_nan(value: object, name: str) -> str | None:
    """Give the place of the first float that is not finite, or None."""
    if isinstance(value, float | np.floating):
        return None if np.isfinite(value) else name  # pyright: ignore[reportUnknownArgumentType]
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.items()  # pyright: ignore[reportUnknownVariableType]
    elif isinstance(value, list | tuple):
        items = enumerate(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return next((place for key, item in items if (place := _find_nan(item, f"{name}[{key!r}]"))), None)
