"""SampleBuilder: many conversations, encoded in batches, each row a sample or a reason."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from samplekit.chat.columns import rows_of, without_filled_nulls
from samplekit.chat.plan import TrainOn
from samplekit.chat.refusals import refuse
from samplekit.chat.samples import Built, Row, SampleOptions, Truncation, assemble, plan_samples, row_of, source_of
from samplekit.chat.template import ChatTemplate
from samplekit.chat.turn import Draft
from samplekit.errors import SampleError, TemplateError
from samplekit.sample import Sample
from samplekit.sample.kinds import shown

OnError: TypeAlias = Literal["raise", "skip"]
_CHUNK_CHARACTERS = 3_000_000
_CHUNK_ROWS = 512
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row, or a turn of it, that became no sample.

    Attributes:
        source: where the row came from.
        code: which outcome, as TemplateError names it; ``too_long`` for length.
        message: the error's text.
    """

    source: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What became of the rows.

    Attributes:
        samples: in the order of the rows.
        skipped: the rows that became none, and the turns dropped for their length.
        stats: num_rows, num_samples, num_skipped (rows), num_dropped (turns), num_cut (turns), num_context_replies
            (leading replies, which have no prompt), num_tokens (positions of the model input), num_trained,
            trained_share (of the positions), modes and codes with their counts.
    """

    samples: list[Sample]
    skipped: list[Skipped]
    stats: dict[str, Any]

    def __repr__(self) -> str:
        """Count samples and skipped rows, for a screen holds no list of all samples."""
        return f"BuildResult({len(self.samples)} samples, {len(self.skipped)} skipped, stats={self.stats})"


@dataclass(slots=True)
class _Tally:
    samples: list[Sample] = field(default_factory=list[Sample])
    skipped: list[Skipped] = field(default_factory=list[Skipped])
    num_rows: int = 0
    num_skipped: int = 0
    num_dropped: int = 0
    num_cut: int = 0
    num_context_replies: int = 0

    def add(self, row: Row, built: Built) -> None:
        source = row.source or ""
        self.samples += built.samples
        self.num_cut += built.num_cut
        self.num_context_replies += built.num_context_replies
        self.num_dropped += len(built.dropped)
        self.skipped += [
            Skipped(source, "too_long", f"{source}: message {index}: the turn is longer than max_length")
            for index in built.dropped
        ]

    def skip(self, source: str, error: SampleError) -> None:
        self.num_skipped += 1
        self.skipped.append(Skipped(source, _code(error), str(error)))

    def result(self) -> BuildResult:
        num_tokens = sum(sample.length for sample in self.samples)
        num_trained = sum(sample.num_trained for sample in self.samples)
        stats = {
            "num_rows": self.num_rows,
            "num_samples": len(self.samples),
            "num_skipped": self.num_skipped,
            "num_dropped": self.num_dropped,
            "num_cut": self.num_cut,
            "num_context_replies": self.num_context_replies,
            "num_tokens": num_tokens,
            "num_trained": num_trained,
            "trained_share": num_trained / num_tokens if num_tokens else 0.0,
            "modes": dict(Counter(sample.info["mode"] for sample in self.samples)),
            "codes": dict(Counter(skipped.code for skipped in self.skipped)),
        }
        return BuildResult(self.samples, self.skipped, stats)


class SampleBuilder:
    """Build the samples of many conversations.

    Rows are encoded in batches and each distinct piece of text once. A row becomes samples, or an entry of ``skipped``,
    or an error: it is never lost.

    Args:
        template: the chat template.
        on_error: ``"raise"`` the first error, or ``"skip"`` the row and say why. Rows of a file that are no
            conversation never come here: `read_chats` takes ``on_fault`` for them.
        train_on: as for ``ChatTemplate.turns``.
        merge: as for ``ChatTemplate.samples``.
        max_length: as for ``ChatTemplate.samples``.
        truncation: as for ``ChatTemplate.samples``.

    Raises:
        TemplateError: code ``invalid_option``.
    """

    def __init__(
        self,
        template: ChatTemplate,
        *,
        on_error: OnError = "raise",
        train_on: TrainOn = "all",
        merge: bool = False,
        max_length: int | None = None,
        truncation: Truncation = "error",
    ) -> None:
        if on_error not in ("raise", "skip"):
            raise refuse("invalid_option", f"on_error is {on_error!r}", hint="pass 'raise' or 'skip'")
        self.template = template
        self.options = SampleOptions(train_on, merge, max_length, truncation)
        self.options.check()
        self.on_error = on_error

    def build(
        self, rows: Iterable[Mapping[str, Any]], *, progress: Callable[[int], object] | None = None
    ) -> BuildResult:
        """Build the samples of rows.

        Args:
            rows: mappings with ``messages`` (or another format of `to_messages`) and optionally ``tools`` and
                ``source``.
            progress: called with the number of rows done.

        Raises:
            TemplateError: with ``on_error="raise"``, naming the row.
            AlignmentError: likewise, for a sample longer than ``max_length``.
        """
        if isinstance(rows, str | bytes | Mapping) or not hasattr(rows, "__iter__"):
            raise refuse("invalid_format", f"rows is {shown(rows)}, expected an iterable of rows", hint="pass a list")
        tally = _Tally()
        for chunk in self._chunks(rows, tally):
            self._finish(chunk, tally)
            if progress is not None:
                progress(tally.num_rows)
        return tally.result()

    def __call__(self, columns: Any) -> dict[str, list[Any]]:  # noqa: ANN401 - any table
        """Build from columns and give columns, for ``datasets.map(batched=True)`` and Ray's ``map_batches``.

        Args:
            columns: those of `build`'s rows, one entry a row; others are left out. A mapping of lists or arrays, a
                DataFrame or an arrow table. Keys that a table fills with null are absent keys.

        Returns:
            ``tokens``, ``loss_mask`` and ``info``, one entry a sample; skipped rows are logged as warnings.

        Raises:
            TemplateError: as ``build``.
        """
        result = self.build(rows_of(columns))
        for skipped in result.skipped:
            _LOG.warning("skipped %s: %s", skipped.source, skipped.message)
        return {
            "tokens": [sample.tokens.tolist() for sample in result.samples],
            "loss_mask": [sample.loss_mask.tolist() for sample in result.samples],
            "info": [sample.info for sample in result.samples],
        }

    def _chunks(self, rows: Iterable[Mapping[str, Any]], tally: _Tally) -> Iterator[list[tuple[Row, list[Draft]]]]:
        """Plan rows until their text is worth one call of the tokenizer."""
        clock = self.template.engine.clock()
        chunk: list[tuple[Row, list[Draft]]] = []
        size = 0
        features = getattr(rows, "features", None)  # a datasets.Dataset: its table fills absent keys with null
        for number, found in enumerate(rows):
            mapping = found if features is None else without_filled_nulls(found, features)
            tally.num_rows += 1
            source = source_of(mapping, f"rows[{number}]")
            try:
                row = row_of(mapping, source, clock)
                drafts = plan_samples(self.template.engine, row, self.options)
            except SampleError as error:
                self._fail(source, error, tally)
                continue
            chunk.append((row, drafts))
            size += sum(map(len, drafts[-1].trained)) if drafts else 0
            if len(chunk) >= _CHUNK_ROWS or size >= _CHUNK_CHARACTERS:
                yield chunk
                chunk, size = [], 0
        yield chunk

    def _finish(self, chunk: list[tuple[Row, list[Draft]]], tally: _Tally) -> None:
        engine = self.template.engine
        engine.prepare(draft for _, drafts in chunk for draft in drafts)
        for row, drafts in chunk:
            try:
                tally.add(row, assemble(engine, row, engine.finish(drafts), self.options))
            except SampleError as error:
                self._fail(row.source or "", error, tally)

    def _fail(self, source: str, error: SampleError, tally: _Tally) -> None:
        named = error.reworded(f"{source}: {error.message}")
        if self.on_error == "raise":
            raise named from error
        tally.skip(source, named)


def _code(error: SampleError) -> str:
    return error.code if isinstance(error, TemplateError) else "too_long"
