"""A training service in memory, behind respx: it counts what is applied, keeps checkpoints, and breaks off as told."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import httpx

import samplekit as sk

URL = "https://service.example"
DONE = "TRAINING_OPERATION_STATUS_COMPLETED"
LIMITS = {"max_batch_size": 16, "max_seq_length": 4096, "max_rank": 64}
MODEL = {
    "base_model": "samplekit/tiny",
    "default_gpu_type": "G",
    "compute_configs": [{"gpu_type": "G", "trainer_config": {"lora": LIMITS, "full": LIMITS}}],
}
FILE = b"weights"
SAMPLES = [
    sk.build_sample(range(10 + n, 20 + n + n % 4), [0] * 4 + [1] * (6 + n % 4), info={"n": n}) for n in range(20)
]


@dataclass
class Session:
    """One session: its operations by key, and what its optimizer steps applied."""

    id: str
    resumed: str | None
    steps: list[dict[str, Any]]
    gradients: list[Any] = field(default_factory=list)
    operations: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    status: str = "RUNNING"

    def show(self) -> dict[str, Any]:
        return {"id": self.id, "status": f"TRAINING_SESSION_STATUS_{self.status}", "base_model": MODEL["base_model"],
                "model_resources_id": "res-1", "step": str(len(self.steps))}  # fmt: skip


class TrainingDouble:
    """Answers every call; ``trouble`` is asked about each request before and after it is answered."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.checkpoints: dict[str, list[dict[str, Any]]] = {}
        self.created_resources = self.stopped_resources = 0
        self.seen: list[tuple[str, str, Any, httpx.Headers]] = []
        self.trouble = lambda _line, _when: None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        line = f"{request.method} {request.url.path.removeprefix('/v1/rl/')}"
        body = json.loads(request.content) if request.content else None
        self.seen.append((line, str(request.url), body, request.headers))
        self.trouble(line, "before")
        answer = self.answer(line, body, request.headers)
        self.trouble(line, "after")
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)

    def answer(self, line: str, body: Any, headers: httpx.Headers) -> Any:
        self.created_resources += line == "POST model-resources"
        named = re.match(r"(?:GET|POST) model-resources/([^/]+)", line)
        name = named[1] if named else f"res-{self.created_resources}"
        ready = {"id": name, "status": "MODEL_RESOURCES_STATUS_READY", "base_model": MODEL["base_model"]}
        if line == "GET supported-models":
            return {"data": [MODEL]}
        if line == "POST model-resources/estimate-cost":
            return {"currency": "USD", "price_per_hour": 12.5}
        if line.endswith("/stop"):
            return self.stop(line, ready)
        if "model-resources" in line:
            return ready
        if line == "POST training-sessions":
            made = body.get("resume_from_checkpoint_id")
            session = Session(f"ts-{len(self.sessions)}", made, list(self.checkpoints.get(made, [])))
            self.sessions[session.id] = session
            return session.show()
        if "checkpoints/" in line:
            return self.checkpoint(line)
        if line == "GET /file":
            return httpx.Response(200, content=FILE)
        found = re.fullmatch(r"(?:GET|POST) training-sessions/([^/]+)(?:/operations/([^/]+)(?:/([^/]+))?)?", line)
        session = self.sessions.get(found[1]) if found else None
        if session is None:
            return httpx.Response(404, json={"error": {"message": f"no {line}"}})
        if found[3]:
            return next(answer for _, answer in session.operations.values() if answer["id"] == found[3])
        return self.submit(session, found[2], body, headers) if found[2] else session.show()

    def stop(self, line: str, ready: dict[str, Any]) -> dict[str, Any]:
        if "model-resources" in line:
            self.stopped_resources += 1
            return {**ready, "status": "MODEL_RESOURCES_STATUS_STOPPED"}
        session = self.sessions[line.split("/")[1]]
        session.status = "STOPPED"
        return session.show()

    def checkpoint(self, line: str) -> dict[str, Any]:
        if line.endswith("/download"):
            return {"data": [{"filename": "model.safetensors", "size": len(FILE), "url": f"{URL}/file"}]}
        return {"id": line.rpartition("/")[2], "base_model": MODEL["base_model"], "type": "CHECKPOINT_TYPE_TRAINING"}

    def submit(self, session: Session, kind: str, body: Any, headers: httpx.Headers) -> Any:
        key, said = headers["idempotency-key"], json.dumps([kind, body])
        if key in session.operations:
            before, answer = session.operations[key]
            return answer if before == said else httpx.Response(409, headers={"x-should-retry": "false"})
        answer = {"id": f"op-{len(session.operations)}", "status": DONE, "output": self.output(session, kind, body)}
        session.operations[key] = said, answer
        return answer

    def output(self, session: Session, kind: str, body: Any) -> dict[str, Any]:
        if kind == "forward-backward":
            if not body.get("forward_only"):
                session.gradients.append(body["samples"])
            return {"loss": float(sum(sum(item["loss_fn_inputs"]["weights"]["data"]) for item in body["samples"]))}
        if kind == "optim-step":
            session.steps.append({"gradients": session.gradients, **body["adam_params"]})
            session.gradients = []
            return {"step": str(len(session.steps))}
        name = f"{kind}-{len(session.steps)}"
        self.checkpoints[name] = list(session.steps)
        return {"checkpoint": {"id": name, "step": len(session.steps), "created_at": "now"}}


def metrics(tmp_path):
    return [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]


def numbers(steps):
    """What each step applied: first tokens of its samples, in order, and its settings."""
    return [
        (
            [[item["model_input"]["chunks"][0]["encoded_text"]["tokens"][0] for item in batch] for batch in step["gradients"]],
            step["learning_rate"],
            step["grad_clip_norm"],
        )
        for step in steps
    ]  # fmt: skip
