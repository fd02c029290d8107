"""What other clients and engines sampled -> groups: their ids and logprobs as they are, nothing encoded again."""

from samplekit.rollouts.readers.openai import group_from_openai, groups_from_openai
from samplekit.rollouts.readers.together import groups_from_together
from samplekit.rollouts.readers.vllm import group_from_vllm

__all__ = ["group_from_openai", "group_from_vllm", "groups_from_openai", "groups_from_together"]
