"""Completions that a policy sampled, scored, compared within their group and built into samples."""

from samplekit.rollouts.advantages import group_advantages
from samplekit.rollouts.completion import Completion
from samplekit.rollouts.drift import EncodingDrift, encoding_drift
from samplekit.rollouts.episodes import build_trajectory_samples
from samplekit.rollouts.group import Group
from samplekit.rollouts.grpo import build_grpo_samples
from samplekit.rollouts.metrics import group_metrics, rollout_metrics
from samplekit.rollouts.readers import group_from_openai, group_from_vllm, groups_from_openai, groups_from_together
from samplekit.rollouts.sample_list import Drop, SampleList
from samplekit.rollouts.trajectory import Step, Trajectory

__all__ = [
    "Completion",
    "Drop",
    "EncodingDrift",
    "Group",
    "SampleList",
    "Step",
    "Trajectory",
    "build_grpo_samples",
    "build_trajectory_samples",
    "encoding_drift",
    "group_advantages",
    "group_from_openai",
    "group_from_vllm",
    "group_metrics",
    "groups_from_openai",
    "groups_from_together",
    "rollout_metrics",
]
