"""Conversations -> prompt tokens, completion tokens and the mask of what trains.

The path, each step a module: ``messages`` (normalise a copy) -> ``plan`` (render each reply without and with it;
``ladder``, ``accounting`` and ``closings`` decide on text) -> ``encode`` (each distinct piece once) -> ``turn`` (tokens
and mask) -> ``samples`` (merge, length, build_sample). ``report`` asks a template what it does with all of this.
"""

from samplekit.chat.builder import BuildResult, SampleBuilder, Skipped
from samplekit.chat.report import TemplateReport
from samplekit.chat.template import ChatTemplate, build_chat_samples
from samplekit.chat.turn import Turn

__all__ = ["BuildResult", "ChatTemplate", "SampleBuilder", "Skipped", "TemplateReport", "Turn", "build_chat_samples"]
