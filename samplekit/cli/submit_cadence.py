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
    """What happens beside training, in steps; None for never.

    Attributes:
        evaluate_every: held-out samples are scored.
        save_every: a training checkpoint is saved.
    """

    evaluate_every: int | None = None
    save_every: int | None = None

    def evaluates(self, done: int) -> bool:
        """Whether to score after so many steps."""
        return self.evaluate_every is not None and done % self.evaluate_every == 0

    def saves(self, done: int) -> bool:
        """Whether to save after so many steps."""
        return self.save_every is not None and done % self.save_every == 0
