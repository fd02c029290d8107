"""One optimizer step on samples of the current policy: the same for single completions and for whole episodes."""

from __future__ import annotations

from rich.text import Text

import samplekit as sk
from samplekit.cli.screen import results
from samplekit.client import Session
from samplekit.files import RunFolder
from samplekit.training import diagnose_first_step, policy_diagnostics


def has_trained(run: RunFolder) -> bool:
    """Tell whether any step so far had samples to train on; where all rewards of every group are equal, none has."""
    return any("loss" in row for row in run.metrics)


def policy_step(
    session: Session, samples: sk.SampleList, loss: sk.GRPO, learning_rate: float, *, diagnose: bool
) -> dict[str, float]:
    """Take one step, give the generators the new weights, and tell how far the policy was from the one that sampled.

    The logprobs come back with the gradient, from before the step: every ratio must be 1.

    Args:
        session: trains them.
        samples: what to train on, one or more.
        loss: which loss; its bounds are those that clip fractions are counted by.
        learning_rate: of Adam.
        diagnose: print whether the ratios are 1, and why not.

    Returns:
        The loss and its metrics; where both tell one, the service's value stands.
    """
    operation = session.forward_backward(samples, loss, return_logprobs=True)
    session.optim_step(learning_rate=learning_rate).result()
    session.weights_sync().result()  # the next completions come from the new weights
    result = operation.result()
    if result.logprobs is None:
        return {"loss": result.loss, **result.metrics}
    if diagnose:
        found = diagnose_first_step(result.logprobs, samples)
        results.print(Text(found.message, style="green" if found.ok else "bold red"))
    told = policy_diagnostics(result.logprobs, samples, clip_low=loss.clip_low, clip_high=loss.clip_high)
    return {"loss": result.loss, **told, **result.metrics}
