"""A service that counts what it accepts, and what a call that was cut short tells of it."""

from __future__ import annotations

import itertools
import re

import httpx
from service_double import OPERATIONS, STATUS, Double, operation

import samplekit as sk

LIMIT = 1000  # bytes of a body, where bodies are refused for their size
SAMPLES = [sk.build_sample(range(100 + n, 141 + n), [1] * 41) for n in range(4)]
PICK_UP = re.compile(r"session\.operation\('([^']+)', '([^']+)'\), key (\S+?)(?:;|$)")


class Service:
    """Accepts one operation a key, each under an id of its own; stores what is uploaded."""

    def __init__(self, *, limit=10**9, first=()):
        self.limit, self.first = limit, list(first)
        self.keys = dict[str, str]()
        self.numbers = itertools.count()
        self.double = Double()
        self.double.answer(f"POST {OPERATIONS}/.*", self.submit)
        self.double.answer(f"GET {OPERATIONS}/.*", self.look)
        self.double.answer("POST .*/upload-url", {"payload_id": "p1", "upload_url": "https://store.example/up"})
        self.double.answer("PUT /up", {})

    def submit(self, request):
        if len(request.content) > self.limit:
            return httpx.Response(413, text="too large")
        key = request.headers["idempotency-key"]
        if key not in self.keys:
            self.keys[key] = f"op-{next(self.numbers)}"
        if self.first:
            return self.first.pop(0)
        return httpx.Response(200, json={"id": self.keys[key], "status": STATUS + "PENDING"})

    def look(self, request):
        return {**operation("COMPLETED", {"loss": 1.0}), "id": request.url.path.rpartition("/")[2]}


def submit(session):
    return session.forward_backward(SAMPLES, sk.CrossEntropy())


def told(error):
    """What the notes of an error, and of what it was raised from, say was accepted: {key: (id, kind)}."""
    found = dict[str, tuple[str, str]]()
    while error is not None:
        for note in getattr(error, "__notes__", ()):
            found |= {key: (identity, kind) for identity, kind, key in PICK_UP.findall(note)}
        error = error.__cause__
    return found


def tracked(session):
    return [item.key for item in session._uncollected._accepted.values()]
