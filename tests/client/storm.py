"""A service that fails at random before or after it has worked, and remembers what it applied."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import httpx
from service_double import MODELS, READY, RUNNING, SESSION, STATUS

STORE = "https://store.example"
OUTAGE = range(8, 13)  # faults in a row: a call gives up after 8 tries, one for payloads after 6
OUTAGE_RATE = 0.012
FAILED_EVERY, GONE_EVERY = 20, 61  # operations
REFUSALS = tuple(f"{code}{asked}" for code in (408, 409, 429) for asked in ("", " asked", " dated", " ms"))
FAULTS = (
    "refused", "lost before", "late before", "reset mid-body", "lost after", "late after", "reset mid-answer",
    "cut after", "odd after", "list after", "empty after", "twice",
    *REFUSALS, "500", "502", "503", "503 asked", "504 after", "529",
)  # fmt: skip
KINDS = (
    "forward-backward", "custom-forward-backward", "optim-step", "sample", "weights-sync", "inference-checkpoint",
    "training-checkpoint",
)  # fmt: skip
STORMY = re.compile(r".*/(operations/(?P<kind>[^/]+).*|upload-url|up\d+|download-url|down/.*)")


@dataclass
class Accepted:
    """An operation: what it gives, and how long it stays unseen and unfinished."""

    id: str
    final: dict[str, Any]
    visible_at: float
    done_at: float


@dataclass
class Storm:
    """Answers a session's operations through faults.

    Attributes:
        time: the clock that requests and pauses move.
        seed: of the faults.
        rate: share of requests that meet one.
        applied: kind and tag of what was carried out, in order.
        failed: ids of operations that end FAILED.
        gone: ids of operations whose result is lost for good.
        met: how often each fault was met, by the kind of operation asked about.
    """

    time: Any
    seed: int
    rate: float = 0.35
    applied: list[tuple[str, int]] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    met: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.accepted: dict[str, tuple[bytes, Accepted]] = {}
        self.by_id: dict[str, Accepted] = {}
        self.uploaded: dict[str, bytes] = {}
        self.results: dict[str, dict[str, Any]] = {}
        self.missing: set[str] = set()
        self.outages: Counter[str] = Counter()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        line = f"{request.method} {request.url.path}"
        stormy = STORMY.fullmatch(line)
        if stormy is None or not self.is_struck(line):
            return self.answer(line, request)
        fault = self.random.choice(FAULTS)
        self.met[stormy["kind"] or "payload", fault] += 1
        return self.fail(fault, line, request)

    def is_struck(self, line: str) -> bool:
        if self.outages[line]:
            self.outages[line] -= 1
            return True
        if self.random.random() < OUTAGE_RATE:
            self.outages[line] = self.random.choice(OUTAGE)
        return self.random.random() < self.rate

    def fail(self, fault: str, line: str, request: httpx.Request) -> httpx.Response:
        before = {"refused": httpx.ConnectError, "lost before": httpx.RemoteProtocolError}
        before |= {"reset mid-body": httpx.WriteError, "late before": httpx.ReadTimeout}
        if fault.startswith("late"):
            self.time.sleep(min(request.extensions["timeout"]["read"], 30.0))
        if fault in before:
            raise before[fault](fault, request=request)
        if fault[0].isdigit() and not fault.endswith("after"):
            return httpx.Response(int(fault[:3]), headers=self.headers(fault), text="not now")
        answer = self.answer(line, request)
        if fault == "twice":
            return self.answer(line, request)
        if fault == "504 after":
            return httpx.Response(504, text="gateway")
        if fault in {"lost after", "late after"}:
            raise (httpx.ReadError if fault == "lost after" else httpx.ReadTimeout)(fault, request=request)
        half = answer.content[: len(answer.content) // 2]
        if fault == "reset mid-answer":
            return httpx.Response(200, stream=BreakingOff(half))
        bodies = {"cut after": half or b"{", "odd after": b"<html>", "list after": b"[1]", "empty after": b""}
        return httpx.Response(200, content=bodies[fault])

    def headers(self, fault: str) -> dict[str, str]:
        asked = {"asked": {"retry-after": "3"}, "dated": {"retry-after": formatdate(self.time.wall + 5, usegmt=True)}}
        return {**asked, "ms": {"retry-after-ms": "250"}}.get(fault.partition(" ")[2], {})

    def answer(self, line: str, request: httpx.Request) -> httpx.Response:
        if line.startswith("PUT "):
            self.uploaded[request.url.path] = request.content
            return httpx.Response(200)
        if line.startswith("GET /down"):
            return self.give_result(request.url.path.rpartition("/")[2])
        found = self.found(line, request)
        if found is None:
            return httpx.Response(404, json={"error": {"message": "not yet"}})
        return httpx.Response(200, json=found)

    def found(self, line: str, request: httpx.Request) -> dict[str, Any] | None:
        if line.endswith("/supported-models"):
            return MODELS
        if line.endswith("/upload-url"):
            number = len(self.uploaded)
            return {"payload_id": f"up{number}", "upload_url": f"{STORE}/up{number}"}
        if line.endswith("/download-url"):
            return {"download_url": f"{STORE}/down/{line.split('/')[-2]}"}
        if submitted := re.fullmatch(r"POST .*/operations/([^/]+)", line):
            return self.submit(submitted[1], request)
        if polled := re.fullmatch(r"GET .*/operations/[^/]+/(.+)", line):
            operation = self.by_id[polled[1]]
            return self.show(operation) if self.time.now >= operation.visible_at else None
        return READY if "model-resources" in line else RUNNING if SESSION in line else None

    def submit(self, kind: str, request: httpx.Request) -> dict[str, Any]:
        key = request.headers["idempotency-key"]
        if key not in self.accepted:
            body = json.loads(request.content or b"{}")
            number = len(self.applied)
            self.applied.append((kind, tag_of(kind, body, self.applied)))
            now = self.time.now
            waits = self.random.choice([0.0, 0.0, 1.0, 4.0]), self.random.choice([0.0, 0.0, 2.0, 40.0])
            operation = Accepted(f"op-{number}", self.outcome(kind, number), now + waits[0], now + sum(waits))
            self.accepted[key], self.by_id[operation.id] = (request.content, operation), operation
        before, operation = self.accepted[key]
        assert before == request.content, "one key, two bodies"
        return self.show(operation)

    def outcome(self, kind: str, number: int) -> dict[str, Any]:
        if number % FAILED_EVERY == FAILED_EVERY - 1:
            self.failed.add(f"op-{number}")
            return {"status": STATUS + "FAILED", "error": {"code": "TRAINING_OPERATION_ERROR_CODE_TIMEOUT"}}
        output = output_of(kind, self.applied[-1][1])
        if kind in {"forward-backward", "sample"} and self.random.random() < 0.3:
            self.results[f"r{number}"] = output
            output = {"payload_id": f"r{number}"}
            if number % GONE_EVERY < GONE_EVERY // 10:
                self.gone.add(f"op-{number}")
        return {"status": STATUS + "COMPLETED", "output": output}

    def show(self, operation: Accepted) -> dict[str, Any]:
        if self.time.now < operation.done_at:
            return {"id": operation.id, "status": STATUS + self.random.choice(["PENDING", "RUNNING"])}
        return {"id": operation.id, **operation.final}

    def give_result(self, name: str) -> httpx.Response:
        first = name not in self.missing
        self.missing.add(name)
        if f"op-{name[1:]}" in self.gone or (first and self.random.random() < 0.3):
            return httpx.Response(404, text="no such key")
        return httpx.Response(200, json=self.results[name])


class BreakingOff(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that is reset after its first part."""

    def __init__(self, part: bytes) -> None:
        self.part = part

    def __iter__(self) -> Iterator[bytes]:
        yield self.part
        raise httpx.ReadError("reset mid-answer")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.part
        raise httpx.ReadError("reset mid-answer")


def tag_of(kind: str, body: dict[str, Any], applied: list[tuple[str, int]]) -> int:
    """Which call it was; those without a body are counted."""
    if kind in {"forward-backward", "custom-forward-backward"}:
        return body["samples"][0]["model_input"]["chunks"][0]["encoded_text"]["tokens"][0]
    if kind == "sample":
        return body["model_inputs"][0]["chunks"][0]["encoded_text"]["tokens"][0]
    if kind == "optim-step":
        return int(body["adam_params"]["learning_rate"])
    return 1 + sum(name == kind for name, _ in applied)


def output_of(kind: str, tag: int) -> dict[str, Any]:
    """An output that tells the call it is of."""
    sequence = {"tokens": [str(tag)], "logprobs": [-0.5], "stop_reason": "STOP_REASON_STOP"}
    return {
        "forward-backward": {"loss": float(tag)},
        "custom-forward-backward": {},
        "optim-step": {"step": str(tag)},
        "sample": {"results": [{"sequences": [sequence]}]},
        "weights-sync": {"weights_version": tag},
        "inference-checkpoint": {"checkpoint": {"id": f"ckpt-{tag}", "step": tag}},
        "training-checkpoint": {"checkpoint": {"id": f"ckpt-{tag}", "step": tag}},
    }[kind]
