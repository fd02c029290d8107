"""What a blocking and an async session share: identity, checks, and the flows of submitting and leaving."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from samplekit.client import calls, splitting
from samplekit.client.accepted import Accepted
from samplekit.client.batches import Batch, make_batches
from samplekit.client.calls import Checks, Submission
from samplekit.client.generation import model_inputs
from samplekit.client.handles import SEPARATOR, Handle, Part
from samplekit.client.plans import OpenSession
from samplekit.client.registry import LEAVE_SECONDS, Leftovers, Uncollected
from samplekit.client.settings import idempotency_key, shown, text
from samplekit.client.steps import FREE, cut_short
from samplekit.client.stopping import stop_all, stop_session
from samplekit.errors import ConnectionFailedError, SampleError, ServiceError, StatusError
from samplekit.sample import Sample
from samplekit.wire.answers import OperationAnswer

if TYPE_CHECKING:
    from samplekit.client.flows import Terms
    from samplekit.client.ownership import Reminders
    from samplekit.client.steps import Flow
    from samplekit.wire.offers import Limits

T = TypeVar("T")
Samples: TypeAlias = Iterable[Sample | Mapping[str, Any]]


class SessionState:
    """What a blocking and an async session share.

    Attributes:
        allow: codes of findings that samples may have and still be sent, see `samplekit.check`.
    """

    def __init__(self, opened: OpenSession, terms: Terms, reminders: Reminders) -> None:
        self._opened, self._terms, self._reminders = opened, terms, reminders
        self._uncollected = Uncollected()
        self._left = False
        self._stops = opened.owned
        self._reminder = reminders.watch(self, opened)
        self.allow: Collection[str] = ()

    @property
    def id(self) -> str:
        """The service's id, for ``client.attach``."""
        return self._opened.id

    @property
    def base_model(self) -> str:
        """The model it trains."""
        return self._opened.base_model

    @property
    def limits(self) -> Limits | None:
        """How many and how long samples may be; None where the service does not say."""
        return self._opened.limits

    def batches(
        self,
        samples: Sequence[Sample],
        *,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        epochs: int = 1,
        seed: int = 0,
    ) -> Iterator[Batch]:
        """Give samples in batches that the model takes, shuffled anew in every epoch and about equal in tokens.

        Args:
            samples: what to train on.
            batch_size: samples in a batch at most; None means 32, or the model's max_batch_size where that is less.
                Batches are equal in samples to within one, and then trade samples until their tokens are alike.
            max_tokens: positions in a batch at most; None for no limit.
            epochs: passes over the data.
            seed: of the order; equal seeds give equal batches.

        Returns:
            An iterator of lists of Samples, each with ``.num_trained``.

        Raises:
            SampleError: a sample is longer than the model takes, or a setting is out of range.
        """
        return make_batches(
            samples, self.limits, batch_size=batch_size, max_tokens=max_tokens, epochs=epochs, seed=seed
        )

    @property
    def resources_id(self) -> str:
        """The model resources it runs on, for ``client.attach_resources``."""
        return self._opened.resources_id

    def adopt(self) -> None:
        """Answer for a session that was attached to: stopping or leaving it stops it and the resources it runs on."""
        self._opened = replace(self._opened, owned=True)
        self._stops = True

    def _about(self) -> dict[str, Any]:
        return {"base_model": self.base_model, "session_id": self.id, "lora_rank": self._opened.lora_rank}

    def _checks(self) -> Checks:
        return Checks(self.limits, self.allow)

    def _mark_left(self) -> None:
        """Take no more operations; what follows stops the session, or says why it could not."""
        self._left = True
        self._forget_reminder()

    def _let_run_on(self) -> None:
        """Leave it running when it is left."""
        self._stops = False
        self._forget_reminder()

    def _forget_reminder(self) -> None:
        if self._reminder is not None:
            self._reminder.cancel()

    def _require_open(self) -> None:
        if self._left:
            raise ServiceError(f"session {self.id} was left: open a new one, or attach to it if it still runs")

    def _submit_flow(self, submission: Submission[T], given: str | None) -> Flow[Handle[T]]:
        """Submit a call, under the key of an earlier try where one is given; what goes wrong names the key."""
        self._require_open()
        key = self._terms.runtime.new_key() if given is None else idempotency_key(given)
        yield from self._uncollected.review()
        accepted = list[Accepted]()

        def accept(operation: Accepted) -> None:
            accepted.append(operation)
            self._uncollected.add(operation)

        with cut_short(lambda: _told_of(accepted)):
            try:
                handle = yield from splitting.submit(self._terms, self.id, submission, key, accept)
            except (ConnectionFailedError, StatusError) as error:
                error.idempotency_key = key
                raise
            yield FREE
        return handle

    def _pick_up(self, operation_id: str, kind: str, prompts: Sequence[Any] | None) -> Handle[Any]:
        inputs = None if prompts is None else model_inputs(prompts)
        parse = calls.parser_of(kind, inputs, self._about())
        ids = text("id", operation_id).split(SEPARATOR)
        if not all(ids):
            raise SampleError(f"id is {shown(operation_id)}, expected an Operation's .id: ids joined by single commas")
        found = [Accepted(self._terms, self.id, kind, None, OperationAnswer(item, "")) for item in ids]
        return Handle([Part(item, parse) for item in found], calls.joiner_of(kind) if len(found) > 1 else None)

    def _stop_flow(self) -> Flow[None]:
        """Stop the session, and the resources if we made them, even where the session cannot be stopped."""
        if self._opened.owned and self._opened.stops_resources:
            yield from stop_all(self._terms, self.id, self.resources_id)
            self._reminders.forget(self.resources_id)
        else:
            yield from stop_session(self._terms, self.id)

    def _end_flow(self) -> Flow[Leftovers]:
        """Stop it at once; give what failed and was not collected, after each was asked for once."""
        leftovers = Leftovers()
        try:
            leftovers = yield from self._uncollected.settle(None)
        finally:
            yield from self._stop_flow()
        return leftovers

    def _leave_flow(self, *, orderly: bool) -> Flow[Leftovers]:
        """Stop what was created, after what was submitted has finished; at once where an error ends the block."""
        leftovers = Leftovers()
        try:
            if orderly:
                leftovers = yield from self._uncollected.settle(LEAVE_SECONDS if self._stops else None)
        finally:
            if self._stops:
                yield from self._stop_flow()
        return leftovers

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            f"a session is neither pickled nor copied: keep its id, and client.attach({self.id!r}) elsewhere"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.base_model}>"


def _told_of(accepted: Sequence[Accepted]) -> str:
    """Say which operations a call that was cut short left at the service, and how to take them up."""
    if not accepted:
        return ""
    named = "; ".join(f"session.operation('{item.answer.id}', '{item.kind}'), key {item.key}" for item in accepted)
    return f"the service had accepted it by then: do not make the same call again, but pick up {named}"
