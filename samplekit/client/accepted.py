"""An operation that the service accepted: which it is, what was heard of it, and the flows that ask for more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from samplekit.client.faults import call_error, silence_of
from samplekit.client.flows import Terms, operation_request
from samplekit.client.polling import Inquiry
from samplekit.client.steps import Reply
from samplekit.errors import StatusError
from samplekit.wire.answers import OperationAnswer, parse_operation
from samplekit.wire.names import NOT_FOUND_GRACE

if TYPE_CHECKING:
    from samplekit.client.steps import Flow, Outcome
    from samplekit.errors import ServiceError

_PICKED_UP_GRACE = 2.0  # seconds that a 404 is borne for an operation that was submitted elsewhere, perhaps just now


class Accepted:
    """An accepted operation. It is light: nothing here keeps what was sent, nor the result once that was read.

    Attributes:
        answer: what the service said last.
        collected: whether its outcome was told to somebody who asked.
    """

    def __init__(self, terms: Terms, session_id: str, kind: str, key: str | None, answer: OperationAnswer) -> None:
        self.terms, self.session_id, self.kind, self.key = terms, session_id, kind, key
        self.answer = answer
        self.collected = False
        clock = terms.runtime.clock
        known_for = 0.0 if key is not None else NOT_FOUND_GRACE - _PICKED_UP_GRACE
        self._inquiry = Inquiry(
            operation_request(session_id, kind, answer.id),
            parse_operation,
            lambda found: found.finished,
            terms.runtime,
            since=clock() - known_for,
            retries=terms.retries,
        )

    @property
    def settled(self) -> bool:
        """Whether nobody needs to be told of it any more."""
        return self.collected or (self.answer.finished and not self.answer.failed)

    @property
    def rests(self) -> bool:
        """Whether a fault lets it be asked for later only."""
        return self._inquiry.again_at > self.terms.runtime.clock()

    @property
    def answers(self) -> bool:
        """Whether the service said something of it when it was asked for last."""
        silence = self._inquiry.silence
        return silence is None or _is_missing(silence)

    def finish(self, deadline: float | None) -> Flow[OperationAnswer | None]:
        """Wait until it is finished; None where the deadline, on the runtime's clock, comes first.

        Raises:
            StatusError: 404, the service does not know it; another, as `Inquiry` says.
            ConnectionFailedError: too many faults in a row.
        """
        if not self.answer.finished and (yield from self._heard(self._inquiry.poll(deadline))) is None:
            silence = self._inquiry.silence
            if self.key is None and silence is not None and _is_missing(silence):  # nobody here knows that it exists
                raise self._unknown(call_error(self._inquiry.request, silence, tries=1))
            return None
        return self.answer

    def look(self) -> Flow[bool]:
        """Ask once whether it is finished; errors as in `finish`."""
        if not self.answer.finished:
            yield from self._heard(self._inquiry.look())
        return self.answer.finished

    def _heard(self, asking: Flow[OperationAnswer | None]) -> Flow[OperationAnswer | None]:
        try:
            answer = yield from asking
        except StatusError as error:
            if error.status != 404:
                raise
            raise self._unknown(error) from error
        if answer is not None and not self.answer.finished:  # else another thread or task has heard the last of it
            self.answer = answer
        return answer

    def last_heard(self, seconds: float) -> str:
        """Say what is known of one that was not finished within so many seconds."""
        silence = self._inquiry.silence
        if silence is None or _is_missing(silence):
            return f"still runs after {seconds:g} s"
        return (
            f"was not known to be finished after {seconds:g} s: {silence_of(silence)}; whether it still runs is not "
            "known"
        )

    def forget_output(self) -> None:
        """Let go of an output that was read."""
        self.answer = replace(self.answer, output={})

    def _unknown(self, error: ServiceError) -> ServiceError:
        return error.reworded(
            f"the service knows no {self.kind} operation {self.answer.id} in session {self.session_id}: "
            "check id, kind and session"
        )

    def __repr__(self) -> str:
        return f"{self.kind} operation {self.answer.id}"


def _is_missing(outcome: Outcome) -> bool:
    """Tell whether the service answered that it knows no such thing."""
    return isinstance(outcome, Reply) and outcome.status == 404
