"""An operation that the service accepted: which it is, what was heard of it, and the flows that ask for more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from samplekit.client.flows import Terms, operation_request, wait
from samplekit.errors import StatusError
from samplekit.wire.answers import OperationAnswer, parse_operation
from samplekit.wire.names import NOT_FOUND_GRACE

if TYPE_CHECKING:
    from samplekit.client.steps import Flow


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
        self._since = terms.runtime.clock()

    @property
    def settled(self) -> bool:
        """Whether nobody needs to be told of it any more."""
        return self.collected or (self.answer.finished and not self.answer.failed)

    def finish(self, deadline: float | None) -> Flow[OperationAnswer | None]:
        """Wait until it is finished; None where the deadline, on the runtime's clock, comes first."""
        if self.answer.finished:
            return self.answer
        where = (self.terms, self.session_id, self.kind, self.answer.id)
        try:
            answer = yield from wait(*where, since=self._since, deadline=deadline)
        except StatusError as error:
            if error.status != 404:
                raise
            if self.key is None or not self._is_fresh():
                raise self._unknown(error) from error
            return None  # it was accepted, and may only not be visible yet
        if answer is not None:
            self.answer = answer
        return answer

    def look(self, *, retries: int | None = None) -> Flow[bool]:
        """Ask once whether it is finished; again after a fault, as often as the caller's terms or ``retries`` say."""
        if self.answer.finished:
            return True
        request = operation_request(self.session_id, self.kind, self.answer.id)
        try:
            self.answer = yield from self.terms.call(request, parse_operation, retries=retries)
        except StatusError as error:
            if error.status != 404:
                raise
            if not self._is_fresh():
                raise self._unknown(error) from error
        return self.answer.finished

    def forget_output(self) -> None:
        """Let go of an output that was read."""
        self.answer = replace(self.answer, output={})

    def _is_fresh(self) -> bool:
        """Tell whether a 404 may only mean that it is not visible yet."""
        return self.terms.runtime.clock() - self._since < NOT_FOUND_GRACE

    def _unknown(self, error: StatusError) -> StatusError:
        return error.reworded(
            f"the service knows no {self.kind} operation {self.answer.id} in session {self.session_id}: "
            f"check id, kind and session ({error.message})"
        )

    def __repr__(self) -> str:
        return f"{self.kind} operation {self.answer.id}"
