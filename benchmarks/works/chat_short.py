"""Row "chat -> samples" at about 225 tokens a conversation, three turns."""

from benchmarks.chat_forms import keeping_row
from benchmarks.chats import SHORT

ROW = keeping_row("chat-225", "225", SHORT, 2.3, 2.3, bound=True)
