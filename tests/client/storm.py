"""A service that fails at random before or after it has worked, and remembers what it applied."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import httpx
from service_double import MODELS, READY, RUNNING, SESSION, STATUS

STORE = "https://store.example"
BURST = 6  # faults in a row for one call at most: the client tries seven times more
PAYLOAD_BURST = 4  # and five times for payloads
FAULTS = (
    "refused", "lost before", "lost after", "cut after", "late after", "odd after", "list after", "twice", "408", "409",
    "429", "429 asked", "429 dated", "429 ms", "500", "502", "503 asked", "504 after", "529",
)  # fmt: skip
QUIET = re.compile(r".*/(upload-url|up|download-url|down).*")


@dataclass
class Accepted:
    """An operation: what it does, and how long it stays unseen and unfinished."""

    id: str
    output: dict[str, Any]
    visible_at: float
    done_at: float


@dataclass
class Storm:
    """Answers a session's operations through faults.

    Attributes:
        time: the clock that requests and pauses move.
        seed: of the faults.
        rate: share of requests that meet one.
        applied: what was carried out, in order.
        met: how often each fault was met.
    """

    time: Any
    seed: int
    rate: float = 0.35
    applied: list[tuple[str, Any]] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.accepted: dict[str, tuple[bytes, Accepted]] = {}
        self.payloads: dict[str, bytes] = {}
        self.missing: set[str] = set()
        self.in_a_row: Counter[str] = Counter()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        line = f"{request.method} {request.url.path}"
        fault = self.draw(line)
        if fault is None:
            return self.answer(line, request)
        self.met[fault] += 1
        return self.fail(fault, line, request)

    def draw(self, line: str) -> str | None:
        burst = PAYLOAD_BURST if QUIET.fullmatch(line) else BURST
        if self.in_a_row[line] >= burst or self.random.random() >= self.rate:
            self.in_a_row[line] = 0
            return None
        self.in_a_row[line] += 1
        return self.random.choice(FAULTS)

    def fail(self, fault: str, line: str, request: httpx.Request) -> httpx.Response:
        if fault == "refused":
            raise httpx.ConnectError("refused", request=request)
        if fault == "lost before":
            raise httpx.RemoteProtocolError("disconnected", request=request)
        if fault[0].isdigit() and not fault.endswith("after"):
            return httpx.Response(int(fault[:3]), headers=self.headers(fault), text="not now")
        answer = self.answer(line, request)
        if fault == "twice":
            return self.answer(line, request)
        if fault == "lost after":
            raise httpx.ReadError("reset", request=request)
        if fault == "late after":
            seconds = min(request.extensions["timeout"]["read"], 30.0)
            self.time.sleep(seconds)
            raise httpx.ReadTimeout("late", request=request)
        bodies = {"cut after": answer.content[: len(answer.content) // 2], "odd after": b"<html>", "list after": b"[1]"}
        return (
            httpx.Response(504, text="gateway") if fault == "504 after" else httpx.Response(200, content=bodies[fault])
        )

    def headers(self, fault: str) -> dict[str, str]:
        asked = {"asked": {"retry-after": "3"}, "dated": {"retry-after": formatdate(self.time.wall + 5, usegmt=True)}}
        return {**asked, "ms": {"retry-after-ms": "250"}}.get(fault.partition(" ")[2], {})

    def answer(self, line: str, request: httpx.Request) -> httpx.Response:
        if line.startswith("PUT "):
            self.payloads[request.url.path] = request.content
            return httpx.Response(200)
        if line.startswith("GET /down"):
            return self.give_payload(request.url.path)
        found = self.found(line, request)
        if found is None:
            return httpx.Response(404, json={"error": {"message": "not yet"}})
        return httpx.Response(200, json=found)

    def found(self, line: str, request: httpx.Request) -> dict[str, Any] | None:
        if line.endswith("/supported-models"):
            return MODELS
        if line.endswith("/upload-url"):
            number = len(self.payloads)
            return {"payload_id": f"up{number}", "upload_url": f"{STORE}/up{number}"}
        if line.endswith("/download-url"):
            name = line.split("/")[-2]
            return {"download_url": f"{STORE}/down/{name}"}
        submitted = re.fullmatch(r"POST .*/operations/([^/]+)", line)
        if submitted:
            return self.submit(submitted[1], request)
        polled = re.fullmatch(r"GET .*/operations/[^/]+/(.+)", line)
        if polled:
            return self.poll(polled[1])
        return READY if "model-resources" in line else RUNNING if SESSION in line else None

    def submit(self, kind: str, request: httpx.Request) -> dict[str, Any]:
        key = request.headers["idempotency-key"]
        if key not in self.accepted:
            body = json.loads(request.content)
            tag = body.get("adam_params", {}).get("learning_rate")
            output: dict[str, Any] = {"step": str(sum(name == "optim-step" for name, _ in self.applied) + 1)}
            if kind == "forward-backward":
                tag = body["samples"][0]["model_input"]["chunks"][0]["encoded_text"]["tokens"][0]
                output = {"loss": float(tag)}
                if self.random.random() < 0.3:
                    output["payload_id"] = f"p{tag}"
            self.applied.append((kind, tag))
            now = self.time.now
            waits = self.random.choice([0.0, 0.0, 1.0, 4.0]), self.random.choice([0.0, 0.0, 2.0, 40.0])
            self.accepted[key] = (
                request.content,
                Accepted(f"op-{len(self.accepted)}", output, now + waits[0], now + sum(waits)),
            )
        before, operation = self.accepted[key]
        assert before == request.content, "one key, two bodies"
        return self.show(operation)

    def poll(self, operation_id: str) -> dict[str, Any] | None:
        found = next(item for _, item in reversed(self.accepted.values()) if item.id == operation_id)
        return self.show(found) if self.time.now >= found.visible_at else None

    def show(self, operation: Accepted) -> dict[str, Any]:
        if self.time.now < operation.done_at:
            return {"id": operation.id, "status": STATUS + self.random.choice(["PENDING", "RUNNING"])}
        return {"id": operation.id, "status": STATUS + "COMPLETED", "output": operation.output}

    def give_payload(self, path: str) -> httpx.Response:
        if path not in self.missing and self.random.random() < 0.1:
            self.missing.add(path)
            return httpx.Response(404, text="no such key")
        return httpx.Response(200, json={"metrics": {"from_payload": 1.0}})
