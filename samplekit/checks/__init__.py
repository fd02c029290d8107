"""Every fault in a batch of samples, not only the first, before a batch costs money."""

from samplekit.checks.check import check
from samplekit.checks.report import CODES, Finding, Report

__all__ = ["CODES", "Finding", "Report", "check"]
