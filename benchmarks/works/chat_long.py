"""Row "chat -> samples" at about 26,000 tokens a conversation, 52 turns."""

from benchmarks.chat_forms import keeping_row
from benchmarks.chats import LONG

ROW = keeping_row("chat-26k", "26k", LONG, 25, 2.2, bound=False)
