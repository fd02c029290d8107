"""A service made of prepared answers over httpx.MockTransport, and a clock that only moves when slept on."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from samplekit.client import AsyncClient, AsyncOperation, AsyncResources, AsyncSession, Client, Runtime

URL = "https://service.example"
KEY = "sk-secret-0123456789"
SESSION = "sess-1"
OPERATIONS = f"/v1/rl/training-sessions/{SESSION}/operations"
RUNNING = {"id": SESSION, "status": "TRAINING_SESSION_STATUS_RUNNING", "base_model": "m", "model_resources_id": "res-1"}
READY = {"id": "res-1", "status": "MODEL_RESOURCES_STATUS_READY", "base_model": "m"}
MODELS = {
    "data": [
        {
            "base_model": "m",
            "default_gpu_type": "B200-SXM",
            "compute_configs": [
                {
                    "gpu_type": "B200-SXM",
                    "trainer_config": {
                        "lora": {"max_batch_size": 512, "max_seq_length": 300_000, "max_rank": 64},
                        "full": {"max_batch_size": 256, "max_seq_length": 300_000},
                    },
                    "generator_config": {"context_length": 32_768},
                }
            ],
        }
    ]
}
STATUS = "TRAINING_OPERATION_STATUS_"
_ASYNC = (AsyncClient, AsyncSession, AsyncOperation, AsyncResources)


@dataclass
class FakeTime:
    """A clock that moves when somebody sleeps, and remembers for how long they did."""

    now: float = 1000.0
    wall: float = 1_800_000_000.0
    pauses: list[float] = field(default_factory=list)
    chance: float = 0.0
    listener: Callable[[Any], None] = lambda _: None

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        self.wall += seconds

    async def async_sleep(self, seconds: float) -> None:
        self.sleep(seconds)

    def runtime(self) -> Runtime:
        return Runtime(
            clock=lambda: self.now,
            wall_clock=lambda: self.wall,
            sleep=self.sleep,
            async_sleep=self.async_sleep,
            random=lambda: self.chance,
            listener=self.listener,
        )


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    content: bytes
    url: str

    @property
    def body(self) -> Any:
        return json.loads(self.content) if self.content else None


class Double:
    """Answers by "METHOD path-pattern"; a list is worked off and its last item repeated."""

    def __init__(self, **_: Any) -> None:
        self.seen: list[Seen] = []
        self.answers: list[tuple[str, list[Any]]] = []
        self.answer("GET .*/supported-models", MODELS)
        self.answer("POST .*/model-resources", READY)
        self.answer("GET .*/model-resources/res-1", READY)
        self.answer("POST .*/model-resources/res-1/stop", {**READY, "status": "MODEL_RESOURCES_STATUS_STOPPED"})
        self.answer("POST .*/training-sessions", RUNNING)
        self.answer(f"GET .*/training-sessions/{SESSION}", RUNNING)
        self.answer(
            f"POST .*/training-sessions/{SESSION}/stop", {**RUNNING, "status": "TRAINING_SESSION_STATUS_STOPPED"}
        )

    def answer(self, pattern: str, *answers: Any) -> None:
        self.answers.insert(0, (pattern, list(answers)))

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        seen = Seen(
            request.method, request.url.raw_path.decode(), dict(request.headers), request.content, str(request.url)
        )
        self.seen.append(seen)
        for pattern, answers in self.answers:
            if re.fullmatch(pattern, f"{request.method} {path}"):
                found = answers.pop(0) if len(answers) > 1 else answers[0]
                return self.respond(found, request)
        return httpx.Response(404, json={"error": {"message": f"no {request.method} {path}"}})

    @staticmethod
    def respond(found: Any, request: httpx.Request) -> httpx.Response:
        if callable(found):
            found = found(request)
            if isinstance(found, httpx.Response):
                return found
        if isinstance(found, Exception):
            raise found
        if isinstance(found, httpx.Response):  # a fresh one, for it may be given again
            return httpx.Response(found.status_code, headers=found.headers, content=found.content)
        return httpx.Response(200, json=found)

    def calls(self, pattern: str) -> list[Seen]:
        return [item for item in self.seen if re.fullmatch(pattern, f"{item.method} {item.path}")]


def operation(status: str, output: Any = None, **more: Any) -> dict[str, Any]:
    answer = {"id": "op-1", "status": STATUS + status, **more}
    return answer if output is None else {**answer, "output": output}


def of_its_own(answer: dict[str, Any]) -> Callable[[httpx.Request], dict[str, Any]]:
    """Give every submission an operation of its own, and every poll the one that it asks for."""
    numbers = itertools.count(1)

    def give(request: httpx.Request) -> dict[str, Any]:
        asked = request.url.path.rpartition("/")[2]
        return {**answer, "id": asked if request.method == "GET" else f"op-{next(numbers)}"}

    return give


class Side:
    """The blocking or the async client, behind one blocking face, so that one test runs on both."""

    def __init__(self, kind: str, loop: asyncio.AbstractEventLoop | None) -> None:
        self.kind, self.loop = kind, loop
        self.time = FakeTime()
        self.double = Double()

    def client(self, **options: Any) -> Any:
        options = {"base_url": URL, "api_key": KEY, "transport": httpx.MockTransport(self.double), **options}
        cls = Client if self.loop is None else AsyncClient
        return self.wrap(cls.with_runtime(self.time.runtime(), **options))

    def session(self, **options: Any) -> Any:
        """A session that runs already; asked for nothing yet."""
        session = self.client(**options).attach(SESSION)
        self.double.seen.clear()
        return session

    def wrap(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.wrap(item) for item in value]
        return Face(value, self) if isinstance(value, _ASYNC) else value


class Face:
    """An async object whose methods block."""

    def __init__(self, inner: Any, side: Side) -> None:
        object.__setattr__(self, "_inner", inner)
        object.__setattr__(self, "_side", side)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._calling(found) if inspect.ismethod(found) else self._side.wrap(found)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inner, name, value)

    def __repr__(self) -> str:
        return repr(self._inner)

    def _calling(self, method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            if hasattr(result, "__await__") and not isinstance(result, AsyncOperation):
                result = self._side.loop.run_until_complete(self._await(result))
            return self._side.wrap(result)

        return call

    @staticmethod
    async def _await(value: Any) -> Any:
        return await value

    def __enter__(self) -> Any:
        self._calling(self._inner.__aenter__)()
        return self

    def __exit__(self, *error: object) -> None:
        self._calling(self._inner.__aexit__)(*error)


__all__ = [
    "KEY",
    "OPERATIONS",
    "SESSION",
    "STATUS",
    "URL",
    "Double",
    "FakeTime",
    "Side",
    "of_its_own",
    "operation",
    "replace",
]
