"""What `samplekit pack` packs: a file's samples or conversations as records, each named by where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from samplekit.chat import ChatTemplate
from samplekit.cli.build_run import BuildOptions, BuildRun
from samplekit.cli.screen import counted
from samplekit.errors import FileFormatError, PackingError, SampleError
from samplekit.files import check_lock, read_chats, read_sample_rows
from samplekit.packing import Record
from samplekit.packing.packed import refuse_unlike
from samplekit.sample import Sample

_ARRAYS = {b"PK\x03\x04": "a .npz file", b"\x93NUM": "a .npy file"}
_PARQUET = b"PAR1"


def read_documents(path: Path, template: ChatTemplate | None, turns: str) -> list[Record]:
    """Read the records of a file, whose ids say where in it they stand.

    Args:
        path: samples; or, with a template, conversations.
        template: builds samples of conversations.
        turns: which replies train.

    Raises:
        FileFormatError: a line is at fault, named path:line, or the file is of another kind.
        PackingError: records have unlike arrays, named path:line.
        click.UsageError: it holds conversations, and there is no template.
    """
    _refuse_arrays(path, with_model=template is not None)
    found = _samples(path) if template is None else _built(path, template, turns)
    records: list[Record] = []
    for place, sample in found:
        try:
            records.append(Record.from_sample(sample, id=place))
            refuse_unlike(records[0], records[-1], len(records) - 1)
        except SampleError as error:
            raise FileFormatError(f"{place} {error}", path=str(path)) from error
        except PackingError as error:
            raise PackingError(f"{place} {error}") from error
    return records


def refuse_longer(records: Sequence[Record], max_length: int) -> None:
    """Refuse records that are longer than a row.

    Raises:
        PackingError: naming the first one.
    """
    longer = [record for record in records if record.length > max_length]
    if longer:
        raise PackingError(
            f"{longer[0].id} holds {longer[0].length} tokens, a row holds --max-length {max_length} ({len(longer)} of "
            f"{len(records)} are too long): samples are never split, so raise --max-length or say --oversize drop or "
            "truncate"
        )


def _refuse_arrays(path: Path, *, with_model: bool) -> None:
    """Refuse files by whose first bytes it shows that they hold no samples, such as rows that are packed already."""
    if not path.is_file():
        return  # whoever reads it says why it cannot be read
    with path.open("rb") as stream:
        start = stream.read(4)
    kind = _ARRAYS.get(start) or ("" if start != _PARQUET or with_model or _holds_chats(path) else "a Parquet file")
    if kind:
        raise FileFormatError(
            f"{path} is {kind}, maybe of rows that are packed already, expected samples as JSON lines, which "
            "samplekit build writes, or conversations together with --model",
            path=str(path),
        )


def _samples(path: Path) -> Iterator[tuple[str, Sample]]:
    """Read samples, which are those of the lock, if there is one; a file of conversations needs a model."""
    check_lock(path)
    try:
        for number, found in counted(read_sample_rows(path), "reading"):
            try:
                sample = Sample.from_wire(found)
            except SampleError as error:
                raise FileFormatError(f"{path}:{number} {error}", path=str(path), line=number) from error
            yield f"{path}:{number}", sample
    except FileFormatError as error:
        if _holds_chats(path):
            raise click.UsageError(
                f"{path} holds conversations, which need a chat template: pass --model, such as --model samplekit/tiny"
            ) from error
        raise


def _holds_chats(path: Path) -> bool:
    try:
        return next(read_chats(path), None) is not None
    except SampleError:
        return False


def _built(path: Path, template: ChatTemplate, turns: str) -> Iterator[tuple[str, Sample]]:
    options = BuildOptions(turns, merge=False, max_length=None, truncation="error", format="auto")
    for sample in BuildRun(template, options, skip_errors=False).samples([path]):
        yield str(sample.info.get("source", path)), sample
