"""A task that needs a tool: what does a thing cost? Its price is drawn anew for every question."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import samplekit as sk

THINGS = ("lamp", "book", "car", "bed", "key")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "price",
            "parameters": {"type": "object", "properties": {"thing": {"type": "string"}}, "required": ["thing"]},
        },
    }
]
_CALL = re.compile(r"<tool_call>\s*(\{.*\})\s*</tool_call>", re.DOTALL)


@dataclass(frozen=True)
class PriceTask:
    """One question: a thing, and what it costs today."""

    thing: str
    cost: int

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What is asked."""
        return [{"role": "user", "content": f"What does a {self.thing} cost? Reply with the number."}]

    def price(self, thing: str) -> str:
        """Look a price up: the tool that the model calls."""
        return str(self.cost) if thing == self.thing else "unknown"

    def after_call(self, call: dict[str, Any]) -> list[dict[str, Any]]:
        """Give the conversation with a call and what the tool answers."""
        return [
            *self.messages,
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"type": "function", "function": call, "id": "call_1"}],
            },
            {
                "role": "tool",
                "tool_call_id": "call_1",
                "name": call["name"],
                "content": self.price(**call["arguments"]),
            },
        ]

    def score(self, reply: str) -> float:
        """Give 1 where the reply is the price and nothing else, else 0."""
        return float(reply.strip() == str(self.cost))


def price_tasks(chooser: random.Random, count: int) -> list[PriceTask]:
    """Draw questions."""
    return [PriceTask(chooser.choice(THINGS), chooser.randint(1, 9)) for _ in range(count)]


def price_call(thing: str) -> dict[str, Any]:
    """Spell a call of the tool."""
    return {"name": "price", "arguments": {"thing": thing}}


def read_call(text: str) -> dict[str, Any] | None:
    """Read the one call that a completion makes, or give None where it makes none that can be run."""
    found = _CALL.fullmatch(text.strip())
    if found is None:
        return None
    try:
        call = json.loads(found[1])
    except json.JSONDecodeError:
        return None
    arguments = call.get("arguments")
    runs = call.get("name") == "price" and isinstance(arguments, dict) and set(arguments) == {"thing"}
    return price_call(arguments["thing"]) if runs and isinstance(arguments["thing"], str) else None


def demonstrations(template: sk.ChatTemplate, tasks: Sequence[PriceTask], chooser: random.Random) -> list[sk.Sample]:
    """Build samples of which two in three call the tool and repeat its answer, and the third guesses."""
    samples: list[sk.Sample] = []
    for index, task in enumerate(tasks):
        called = [*task.after_call(price_call(task.thing)), {"role": "assistant", "content": str(task.cost)}]
        guessed = [*task.messages, {"role": "assistant", "content": str(chooser.randint(1, 9))}]
        samples += template.samples(called if index % 3 else guessed, TOOLS, merge=True)
    return samples
