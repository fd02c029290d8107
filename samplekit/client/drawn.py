"""Generated groups that also tell which tokens were likeliest along the prompt."""

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


class DrawnGroup(Group):
    """A group whose prompt was scored with alternatives.

    Args:
        group: what it holds besides.
        topk_prompt_logprobs: one for every token of the prompt: what could have stood in its place.
    """

    topk_prompt_logprobs: tuple[Alternatives, ...]

    def __init__(self, group: Group, topk_prompt_logprobs: Sequence[Alternatives]) -> None:
        super().__init__(group.prompt, group.completions, id=group.id, prompt_logprobs=group.prompt_logprobs)
        object.__setattr__(self, "topk_prompt_logprobs", tuple(topk_prompt_logprobs))

    def with_rewards(self, fn_or_sequence: Callable[[Completion], float] | Sequence[float]) -> DrawnGroup:
        """Give the same group with every completion scored; see `Group.with_rewards`."""
        plain = Group(self.prompt, self.completions, id=self.id, prompt_logprobs=self.prompt_logprobs)
        return DrawnGroup(plain.with_rewards(fn_or_sequence), self.topk_prompt_logprobs)
