"""Row "one sample a turn under a template that rewrites history" at about 4,000 tokens a conversation."""

from benchmarks.chat_forms import rewriting_row
from benchmarks.chats import MEDIUM

ROW = rewriting_row("rewritten-4k", "4k", MEDIUM, 6, 2.2, libraries=True)
