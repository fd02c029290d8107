"""A short supervised start: it teaches how a reply looks, and leaves the choice of the reply to what follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice

import samplekit as sk
from samplekit.cli.screen import progress, results
from samplekit.client import Batch, Session

LOSS = sk.CrossEntropy()


def supervised_start(
    session: Session,
    samples: Sequence[sk.Sample],
    *,
    steps: int,
    seed: int,
    batch_size: int = 36,
    learning_rate: float = 1e-3,
) -> None:
    """Train on demonstrations and give the weights to the generators.

    Args:
        session: trains them.
        samples: the demonstrations.
        steps: optimizer steps; 0 does nothing.
        seed: of the batches.
        batch_size: demonstrations a step.
        learning_rate: of Adam. The tiny model starts from random weights: at 4e-3 it takes three times as long to find
            out that the reply stands in the prompt.
    """
    if not steps:
        return
    sk.check(samples, loss=LOSS).raise_for_errors()
    losses: list[float] = []
    with progress(transient=False) as display:
        task = display.add_task("supervised start", total=steps, note="")
        for batch in islice(_endless(session, samples, batch_size, seed), steps):
            step = session.forward_backward(batch, LOSS)
            session.optim_step(learning_rate=learning_rate).result()
            losses.append(step.result().mean_loss)
            display.update(task, advance=1, note=f"loss {losses[-1]:.3f}")
    session.weights_sync().result()  # generators keep the weights they started with until they are given new ones
    results.print(f"supervised start: loss per token {losses[0]:.3f} -> {losses[-1]:.3f} in {steps} steps")


def _endless(session: Session, samples: Sequence[sk.Sample], size: int, seed: int) -> Iterator[Batch]:
    for epoch in count():
        yield from session.batches(samples, batch_size=size, seed=1000 * seed + epoch)
