"""The conversations of the cookbook are real, varied and enough."""

import json
import unicodedata
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "cookbook" / "data"
ROWS = [json.loads(line) for path in sorted(DATA.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
SCRIPTS = ("LATIN", "CYRILLIC", "GREEK", "ARABIC", "HEBREW", "DEVANAGARI", "CJK", "HIRAGANA", "HANGUL", "THAI")


def of_role(row, role):
    return [message for message in row["messages"] if message["role"] == role]


def replies():
    return [message["content"] for row in ROWS for message in of_role(row, "assistant") if message["content"]]


def test_at_least_three_hundred_first_questions_differ():
    first = [of_role(row, "user")[0]["content"].casefold().strip() for row in ROWS]
    assert len(set(first)) == len(first) >= 300


def test_no_reply_stands_twice():
    assert len({reply.casefold().strip() for reply in replies()}) == len(replies())


def test_sources_are_unique():
    assert len({row["source"] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_script_is_there(script):
    assert sum(any(script in unicodedata.name(char, "") for char in reply) for reply in replies()) >= 2


@pytest.mark.parametrize(
    ("what", "holds", "at_least"),
    [
        ("tool flows", lambda row: any(message.get("tool_calls") for message in row["messages"]), 20),
        ("several turns", lambda row: len(of_role(row, "user")) > 1, 60),
        ("a system prompt", lambda row: bool(of_role(row, "system")), 20),
        ("code", lambda row: any("```" in message["content"] for message in row["messages"]), 20),
        (
            "emoji",
            lambda row: any(ord(char) >= 0x1F300 for message in row["messages"] for char in message["content"]),
            5,
        ),
        ("arguments as text", lambda row: '\\"arguments\\": \\"' in json.dumps(json.dumps(row)), 10),
    ],
)
def test_there_are_enough_rows_with(what, holds, at_least):
    assert sum(map(holds, ROWS)) >= at_least, what


def test_every_call_is_answered_by_its_id():
    for row in ROWS:
        calls = [call["id"] for message in row["messages"] for call in message.get("tool_calls") or []]
        answers = [message["tool_call_id"] for message in of_role(row, "tool")]
        assert calls == answers, row["source"]
