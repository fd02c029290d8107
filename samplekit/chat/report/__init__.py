"""What a chat template does with every kind of conversation, found by asking it: the report a user reads first.

``trials`` builds sample conversations and tries remedies, ``probes`` asks with sentinels, ``marks`` compares
``{% generation %}`` blocks with what trains here, ``examine`` puts the answers together, ``facts`` holds and prints
them.
"""

from samplekit.chat.report.examine import examine
from samplekit.chat.report.facts import TemplateReport

__all__ = ["TemplateReport", "examine"]
