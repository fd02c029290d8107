"""Conversations small enough to read."""

CHATS = [
    {"messages": [{"role": "user", "content": f"question {n}"}, {"role": "assistant", "content": f"answer {n}"}]}
    for n in range(5)
]
