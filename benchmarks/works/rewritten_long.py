"""Row "one sample a turn under a template that rewrites history" at about 26,000 tokens a conversation."""

from benchmarks.chat_forms import rewriting_row
from benchmarks.chats import LONG

ROW = rewriting_row("rewritten-26k", "26k", LONG, 18, 3, libraries=False)
