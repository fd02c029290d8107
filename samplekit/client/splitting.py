"""A batch too large for one body: sent in parts where that changes nothing, else an error that says why not.

Gradients accumulate by addition, so that parts give the same gradient only where the loss is a sum over the batch. The
protocol has no field for a normaliser of one's own, so that a mean can never be split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from samplekit.client import flows
from samplekit.client.accepted import Accepted
from samplekit.client.handles import Handle, Part
from samplekit.client.steps import Work
from samplekit.errors import SampleError, SamplekitError, StatusError
from samplekit.losses import GRPO, CrossEntropy, Loss
from samplekit.wire import names

if TYPE_CHECKING:
    from samplekit.client.calls import Prepared, Submission
    from samplekit.client.flows import Terms
    from samplekit.client.steps import Flow

T = TypeVar("T")
_TOO_LARGE = 413
_ADVICE = (
    "send fewer or shorter samples at a time, such as session.batches(max_tokens=...) gives, and decide there how "
    "batches weigh against each other"
)
_GRPO_MEANS = {
    "token_mean": "takes the mean over the tokens of the batch",
    "sequence_mean": "takes the mean over the sequences of the batch",
    "fixed_horizon": "divides by the number of samples of the batch",
}


@dataclass(frozen=True)
class Division(Generic[T]):
    """How a call over samples is sent in parts.

    Attributes:
        sizes: bytes of JSON of each sample, with what goes beside it.
        part: prepares the call over the samples of a range.
        join: makes one result of those of the parts, which come in the order of the samples.
        obstacle: why it must not be split; empty where it may.
    """

    sizes: Sequence[int]
    part: Callable[[range], Prepared[T]]
    join: Callable[[Sequence[T]], T]
    obstacle: str = ""

    def num_bytes(self, part: range) -> int:
        """Give the size of the samples of a range."""
        return sum(self.sizes[part.start : part.stop])

    def halves(self, part: range, refusal: StatusError | None) -> tuple[range, range]:
        """Cut a range near the middle of its bytes.

        Args:
            part: what is too large.
            refusal: of the service; None where the protocol's limit says so.

        Raises:
            SampleError: one sample alone is too large, or what is over the limit must stay whole.
            StatusError: what the service refused must stay whole.
        """
        said = f"at most {names.PAYLOAD_LIMIT_BYTES:,}" if refusal is None else f"less: {refusal.message}"
        if len(part) == 1:
            raise SampleError(
                f"samples[{part.start}] takes {self.num_bytes(part):,} bytes as JSON, and the service takes {said}; "
                "cut it with build_sample(max_length=...) or leave it out"
            ) from refusal
        if self.obstacle:
            message = (
                f"the batch takes {self.num_bytes(part):,} bytes as JSON, and the service takes {said}; it is not "
                f"split, for {self.obstacle}: {_ADVICE}"
            )
            raise SampleError(message) if refusal is None else refusal.reworded(message)
        middle = self.num_bytes(part) / 2
        reached, cut = self.sizes[part.start], part.start + 1
        while cut < part.stop - 1 and reached < middle:
            reached, cut = reached + self.sizes[cut], cut + 1
        return range(part.start, cut), range(cut, part.stop)


def obstacle_of(loss: Loss) -> str:
    """Say why a batch of this loss must not be split; empty for a loss that the service documents as a sum."""
    if isinstance(loss, CrossEntropy):
        return ""
    if isinstance(loss, GRPO):
        return f"GRPO with aggregation={loss.aggregation!r} {_GRPO_MEANS[loss.aggregation]}"
    return f"the service does not document how {type(loss).__name__} is reduced over a batch"


def submit(
    terms: Terms, session_id: str, submission: Submission[T], key: str, accept: Callable[[Accepted], None]
) -> Flow[Handle[T]]:
    """Submit a call, in parts where it is too large for one body and a sum.

    Nothing but this flow may keep what the call prepares: it is let go before parts of the same size are made.

    Args:
        terms: clock, chance, retries.
        session_id: the session.
        submission: the whole call.
        key: its idempotency key; those of parts begin with it.
        accept: is told of every operation as soon as the service has accepted it.

    Raises:
        SampleError: it is over the protocol's limit and must stay whole, or one sample alone is too large.
        StatusError: the service refused it: for its size, where it must stay whole, or for another reason.
    """
    sender = _Sender(terms, session_id, submission.kind, accept)
    prepared: Prepared[T] = yield Work(submission.prepare)
    divide, refusal = prepared.divide, None
    if divide is None or prepared.num_bytes <= names.PAYLOAD_LIMIT_BYTES:
        try:
            return Handle([(yield from sender.send(prepared, key))])
        except StatusError as error:
            if divide is None or error.status != _TOO_LARGE:
                raise
            refusal = error.with_traceback(None)  # it holds the body
    del prepared
    division: Division[T] = yield Work(divide)
    pending = [*division.halves(range(len(division.sizes)), refusal)]
    return (yield from _submit_parts(sender, division, pending, key))


@dataclass(frozen=True)
class _Sender:
    """Submits operations of one kind to a session, and tells of each as soon as the service has accepted it."""

    terms: Terms
    session_id: str
    kind: str
    accept: Callable[[Accepted], None]

    def send(self, prepared: Prepared[T], key: str) -> Flow[Part[T]]:
        answer = yield from flows.submit(self.terms, self.session_id, self.kind, prepared.body, key)
        accepted = Accepted(self.terms, self.session_id, self.kind, key, answer)
        self.accept(accepted)
        return Part(accepted, prepared.parse)


def _submit_parts(sender: _Sender, division: Division[T], pending: list[range], key: str) -> Flow[Handle[T]]:
    """Submit parts, the largest first: what is refused for its size is refused before anything is accepted."""
    parts = dict[int, Part[T]]()
    while pending:
        pending.sort(key=division.num_bytes)
        part = pending.pop()
        try:
            found = yield from _submit_or_halve(sender, division, part, key)
        except SamplekitError as error:
            raise _with_accepted(error, parts) from error
        if isinstance(found, Part):
            parts[part.start] = found
        else:
            pending += found
    return Handle([parts[start] for start in sorted(parts)], division.join)


def _submit_or_halve(
    sender: _Sender, division: Division[T], part: range, key: str
) -> Flow[Part[T] | tuple[range, range]]:
    """Submit one part under a key of its own; where it is still too large, give its halves."""
    prepared: Prepared[T] = yield Work(lambda: division.part(part))
    if prepared.num_bytes > names.PAYLOAD_LIMIT_BYTES:
        return division.halves(part, None)
    try:
        return (yield from sender.send(prepared, f"{key}-{part.start}-{part.stop}"))
    except StatusError as error:
        if error.status != _TOO_LARGE:
            raise
        return division.halves(part, error)


def _with_accepted(error: SamplekitError, parts: Mapping[int, Part[Any]]) -> SamplekitError:
    """Name the parts that were accepted before the error."""
    if not parts:
        return error
    accepted = ", ".join(parts[start].accepted.answer.id for start in sorted(parts))
    return error.reworded(
        f"{error.message} (the batch was sent in parts, and operations {accepted} were accepted before: what they add "
        "to the gradient stands, so do not step on it)"
    )
