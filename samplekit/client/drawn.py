"""Generated groups that also tell how they were drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from samplekit.rollouts import Completion, Group
from samplekit.sample.arrays import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Alternatives:
    """The likeliest tokens at one position.

    Attributes:
        token_ids: int64 (K,), read-only, the likeliest first; empty for a prompt's first position.
        logprobs: nats, float32 (K,), read-only.
    """

    token_ids: IntArray
    logprobs: FloatArray


@dataclass(frozen=True)
class PolicySegment:
    """Tokens that one version of the weights drew.

    Attributes:
        version: of the weights, as ``weights_sync`` gives it.
        start_token: the first one drawn by it; they go on to where the next segment starts.
    """

    version: int
    start_token: int


class DrawnGroup(Group):
    """A group that tells how it was drawn: by which weights, and what was likeliest along the prompt.

    Args:
        group: what it holds besides.
        topk_prompt_logprobs: one for every token of the prompt: what could have stood in its place; empty where it was
            not asked for.
        policy_segments: which versions of the weights drew the completions, more than one where weights were given to
            the generators meanwhile; empty where the service does not say.
    """

    topk_prompt_logprobs: tuple[Alternatives, ...]
    policy_segments: tuple[PolicySegment, ...]

    def __init__(
        self,
        group: Group,
        topk_prompt_logprobs: Sequence[Alternatives] = (),
        policy_segments: Sequence[PolicySegment] = (),
    ) -> None:
        super().__init__(group.prompt, group.completions, id=group.id, prompt_logprobs=group.prompt_logprobs)
        object.__setattr__(self, "topk_prompt_logprobs", tuple(topk_prompt_logprobs))
        object.__setattr__(self, "policy_segments", tuple(policy_segments))

    def with_rewards(self, fn_or_sequence: Callable[[Completion], float] | Sequence[float]) -> DrawnGroup:
        """Give the same group with every completion scored; see `Group.with_rewards`."""
        return DrawnGroup(super().with_rewards(fn_or_sequence), self.topk_prompt_logprobs, self.policy_segments)
