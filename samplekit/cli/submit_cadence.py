"""When a run scores and saves, and under which keys its operations are sent."""

from __future__ import annotations

from dataclasses import dataclass

from samplekit.client.runtime import new_key


class Keys:
    """Makes the idempotency keys of a client: those of a run's steps follow from its state, any other is new."""

    def __init__(self) -> None:
        self.next: str | None = None

    def __call__(self) -> str:
        """Give the key that was laid out, once, or a new one."""
        key, self.next = self.next, None
        return key or new_key()


@dataclass(frozen=True)
class Cadence:
    """What happens beside training.

    Attributes:
        evaluate_every: steps after which held-out samples are scored; None scores after each epoch.
        save_every: steps after which a training checkpoint is saved; None saves none.
        epoch_ends: the steps done when an epoch ends.
    """

    evaluate_every: int | None
    save_every: int | None
    epoch_ends: frozenset[int]

    def evaluates(self, done: int) -> bool:
        """Whether to score after so many steps."""
        if self.evaluate_every is None:
            return done == 0 or done in self.epoch_ends
        return done % self.evaluate_every == 0

    def saves(self, done: int) -> bool:
        """Whether to save after so many steps."""
        return self.save_every is not None and done % self.save_every == 0
