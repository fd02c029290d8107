"""Row "chat -> samples" at about 4,000 tokens a conversation, twelve turns."""

from benchmarks.chat_forms import keeping_row
from benchmarks.chats import MEDIUM

ROW = keeping_row("chat-4k", "4k", MEDIUM, 7, 1.8, bound=True)
