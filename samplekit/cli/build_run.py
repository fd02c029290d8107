"""One run of `samplekit build`: rows in, samples out in the rows' order, and what was counted and refused."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import orjson

from samplekit.build import build_sample
from samplekit.chat import BuildResult, ChatTemplate, SampleBuilder, Skipped
from samplekit.chat.formats import Format
from samplekit.cli.screen import counted
from samplekit.errors import FileFormatError, SampleError, TemplateError
from samplekit.files import Row, read_lines, read_rows, write_whole
from samplekit.sample import Sample

_CHUNK = 1024  # rows encoded together
_EXAMPLES = 3


def refused_path(output: Path) -> Path:
    """Give the path of the rows that were refused while `output` was built."""
    return output.with_name(f"{output.name}.refused.jsonl")


@dataclass(frozen=True)
class BuildOptions:
    """What a run was asked for; the lock keeps it."""

    turns: Any
    merge: bool
    max_length: int | None
    truncation: Any
    format: Format


class BuildRun:
    """A run, and what it has counted so far.

    Args:
        template: of the conversations; None where there are only rows of tokens.
        options: how samples are made.
        skip_errors: whether rows at fault are left out, counted and kept for `write_refused`.
        workers: processes that build chunks of rows side by side.
    """

    def __init__(
        self, template: ChatTemplate | None, options: BuildOptions, *, skip_errors: bool, workers: int = 1
    ) -> None:
        self.options = options
        self.skip_errors = skip_errors
        self.workers = workers
        self.builder = None if template is None else _builder(template, options, skip_errors=skip_errors)
        self.refused: list[tuple[Skipped, Row | None]] = []
        self.num_rows = 0
        self.num_samples = 0
        self.num_tokens = 0
        self.num_trained = 0

    def samples(self, paths: Sequence[Path]) -> Iterator[Sample]:
        """Stream the samples of every row, a chunk of rows at a time.

        Raises:
            SampleError: a row is at fault (unless rows are skipped), or there is no sample at the end: nothing is
                renamed then, and an older file stays.
        """
        on_fault = self._refuse_line if self.skip_errors else None
        rows = read_rows(paths, format=self.options.format, on_fault=on_fault)
        try:
            for chunk, result in self._results(_chunks(counted(rows, "building samples"))):
                self.num_rows += len(chunk)
                self._refuse(chunk, result.skipped)
                for sample in result.samples:
                    self.num_samples += 1
                    self.num_tokens += sample.length
                    self.num_trained += sample.num_trained
                    yield sample
        except SampleError as error:
            of_the_file = isinstance(error, FileFormatError) and not error.line
            if not self.skip_errors and not of_the_file:
                error.add_note("to leave such rows out: samplekit build --skip-errors")
            raise
        if not self.num_samples:
            raise SampleError(f"{', '.join(map(str, paths))} gave no sample: {self._why_none()}")

    def write_refused(self, path: Path) -> Path | None:
        """Write the refused rows with their reasons as JSON lines; where none was, remove an older such file."""
        if not self.refused:
            path.unlink(missing_ok=True)
            return None
        texts = _texts_of([item.source for item, row in self.refused if row is None])
        with write_whole(path) as stream:
            for item, row in self.refused:
                reason = {"source": item.source, "code": item.code, "message": item.message}
                kept = {"text": texts.get(item.source, "")} if row is None else {"row": row}
                stream.write(orjson.dumps({**reason, **kept}, option=orjson.OPT_APPEND_NEWLINE))
        return path

    def summary(self) -> dict[str, Any]:
        """Say what was read, built and skipped."""
        return {
            "num_rows": self.num_rows,
            "num_samples": self.num_samples,
            "num_tokens": self.num_tokens,
            "num_trained": self.num_trained,
            "trained_share": self.num_trained / self.num_tokens,
            "skipped": [{"source": i.source, "code": i.code, "message": i.message} for i, _ in self.refused],
        }

    def _results(self, chunks: Iterator[list[Row]]) -> Iterator[tuple[list[Row], BuildResult]]:
        """Build chunks, in this process or in several, and give each with its result in order."""
        if self.workers == 1:
            yield from ((chunk, _build_chunk(self.builder, self.options, chunk, self.skip_errors)) for chunk in chunks)
            return
        # spawn: a fork would copy locks that tokenizers' and the display's threads hold
        with ProcessPoolExecutor(self.workers, get_context("spawn")) as pool:
            waiting: deque[tuple[list[Row], Future[BuildResult]]] = deque()
            for chunk in chunks:
                task = pool.submit(_build_chunk, self.builder, self.options, chunk, self.skip_errors)
                waiting.append((chunk, task))
                if len(waiting) > 2 * self.workers:
                    first, done = waiting.popleft()
                    yield first, done.result()
            yield from ((chunk, task.result()) for chunk, task in waiting)

    def _refuse_line(self, fault: FileFormatError) -> None:
        self.num_rows += 1
        place = f"{fault.path}:{fault.line}" if fault.path and fault.line else fault.message.split(" ", 1)[0]
        self.refused.append((Skipped(place, "file_format", str(fault)), None))

    def _refuse(self, chunk: list[Row], skipped: Sequence[Skipped]) -> None:
        rows = {row["source"]: row for row in reversed(chunk)}
        self.refused += [(item, rows.get(item.source)) for item in skipped]

    def _why_none(self) -> str:
        if not self.num_rows:
            return "there is no row in it"
        found = "; ".join(f"{item.source}: {item.message}" for item, _ in self.refused[:_EXAMPLES])
        return found or "no row holds a reply to train"


def _builder(template: ChatTemplate, options: BuildOptions, *, skip_errors: bool) -> SampleBuilder:
    return SampleBuilder(
        template,
        on_error="skip" if skip_errors else "raise",
        train_on=options.turns,
        merge=options.merge,
        max_length=options.max_length,
        truncation=options.truncation,
    )


def _build_chunk(
    builder: SampleBuilder | None,
    options: BuildOptions,
    rows: Sequence[Row],
    skip_errors: bool,
) -> BuildResult:
    """Build rows of either kind in their order."""
    samples: list[Sample] = []
    skipped: list[Skipped] = []
    for is_chat, group in groupby(rows, lambda row: "tokens" not in row):
        if not is_chat:
            _build_token_rows(list(group), options, samples, skipped if skip_errors else None)
        elif builder is None:
            raise TemplateError(
                "conversations need a chat template: name it, such as samplekit/tiny", code="no_template"
            )
        else:
            built = builder.build(group)
            samples += built.samples
            skipped += built.skipped
    return BuildResult(samples, skipped, {})


def _build_token_rows(
    rows: Sequence[Row], options: BuildOptions, samples: list[Sample], skipped: list[Skipped] | None
) -> None:
    """Append the sample of each row of tokens, or its fault to `skipped` where that is wanted."""
    for row in rows:
        try:
            samples.append(_token_sample(row, options))
        except SampleError as error:
            if skipped is None:
                raise error.reworded(f"{row['source']}: {error.message}") from error
            skipped.append(Skipped(row["source"], "sample", str(error)))


def _token_sample(row: Row, options: BuildOptions) -> Sample:
    arrays = {name: value for name, value in row.items() if name not in ("tokens", "loss_mask", "source", "info")}
    info: dict[str, Any] = {**(row.get("info") or {}), "source": row["source"]}
    limit, length = options.max_length, len(row["tokens"])
    if limit is not None and length > limit and options.truncation not in ("left", "right"):
        raise SampleError(
            f"tokens holds {length} values, the most is {limit}: raise --max-length or cut with --truncation"
        )
    side: Any = options.truncation if options.truncation in ("left", "right") else "right"
    return build_sample(row["tokens"], row["loss_mask"], **arrays, max_length=limit, truncation=side, info=info)


def _texts_of(places: Sequence[str]) -> dict[str, str]:
    """Read the lines that could not be parsed once more, as they stand."""
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for place in places:
        path, _, number = place.rpartition(":")
        if number.isdigit():
            numbers[path].add(int(number))
    return {
        f"{path}:{number}": line.rstrip(b"\r\n").decode("utf-8", "replace")
        for path, wanted in numbers.items()
        for number, line in read_lines(path)
        if number in wanted
    }


def _chunks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
