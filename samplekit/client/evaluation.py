"""How well a session's model predicts samples it did not train on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samplekit.losses import CrossEntropy

if TYPE_CHECKING:
    from samplekit.client.session import Session
    from samplekit.sample import Sample


def held_out_loss(session: Session, samples: Sequence[Sample]) -> float:
    """Give the mean cross-entropy of the trained tokens, in nats, over as many batches as the model's limits ask for.

    Sums are divided once by the count of all trained tokens: a mean of batch means would weigh batches, not tokens.

    Args:
        session: scores the samples; its gradients stay as they are.
        samples: as many as there are.

    Raises:
        SampleError: a sample is at fault; nothing is sent.
    """
    batches = list(session.batches(samples))
    steps = [session.forward(batch, CrossEntropy()) for batch in batches]
    return sum(step.result().loss for step in steps) / sum(batch.num_trained for batch in batches)
