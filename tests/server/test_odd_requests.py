"""Odd text or JSON wherever a request is parsed: in paths, queries, headers and bodies. It is refused, never a 500."""

import asyncio
import copy
import re
from urllib.parse import quote

import httpx
import pytest

from samplekit import build_sample
from samplekit.server import create_app
from samplekit.wire import names as wire

DIGITS = "9" * 5000  # Python refuses to make a number of them
TEXTS = ["", " ", "\x00", "é", "😀", "\u0661", "²", "-1", "+5", "1e3", "0x10", "[", "a,b", DIGITS, f"-{DIGITS}"]
ROUTES = [route for route in vars(wire).values() if isinstance(route, wire.Route)]
QUERY = ["after", "base_model", "created_by", "force", "limit", "model_resources_id", "session_id", "status", "type",
         "variant"]  # fmt: skip
HEADERS = ["authorization", "content-length", "content-type", "host", "idempotency-key", "if-range", "range"]
RANGES = [
    "bytes=0-1",
    f"bytes={DIGITS}-",
    f"bytes=0-{DIGITS}",
    f"bytes=-{DIGITS}",
    "bytes=5-2",
    "bytes=\u0661-",
    "bytes=,",
    "x=0-1",
]

SAMPLE = build_sample([5, 6, 7, 8], [0, 1, 1, 1]).to_wire()
BODIES = {
    wire.CREATE_RESOURCES: {
        "base_model": "samplekit/tiny",
        "compute_config": {"gpu_type": "B200-SXM", "num_generator_replicas": 1},
        "lora_enabled": True,
        "optimizer_config": {"adam": {"learning_rate": 0.1}},
        "inactive_timeout": 300,
    },
    wire.EXTEND_EXPIRY: {"seconds": 60},
    wire.CREATE_SESSION: {
        "model_resources_id": "mr-none",
        "display_name": "one",
        "lora_config": {"rank": 2, "alpha": 4, "dropout": 0.0, "seed": "7", "train_unembed": True},
        "metadata": {"a": 1},
        "resume_from_checkpoint_id": "ckpt-none",
        "load_optimizer": True,
    },
    wire.UPDATE_SESSION: {"display_name": "two", "metadata": {}},
    "forward-backward": {
        "loss": {"type": "LOSS_TYPE_GRPO", "grpo_params": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}},
        "samples": [SAMPLE],
        "forward_only": True,
        "return_loss_fn_outputs": True,
    },
    "custom-forward-backward": {"samples": [SAMPLE], "gradients": [{"data": [0, 0, 0.1], "dtype": "D_TYPE_FLOAT32"}]},
    "optim-step": {"adam_params": {"learning_rate": 0.1, "beta1": 0.9, "eps": 1e-8, "grad_clip_norm": 1.0}},
    "weights-sync": {"weight_sync_type": "WEIGHT_SYNC_TYPE_SYNCHRONOUS"},
    "sample": {
        "model_inputs": [{"chunks": [{"encoded_text": {"tokens": [5, 6]}}]}],
        "num_samples": 1,
        "sampling_params": {"max_tokens": 1, "temperature": 1, "top_p": 1, "top_k": 1, "stop": ["a"], "seed": "1"},
        "topk_prompt_logprobs": 1,
        "payload_id": "pl-none",
    },
    "training-checkpoint": {"a": 1},
}
VALUES = [None, True, -1, 2**64 - 1, 1e300, "", "²", "\ud7ff", DIGITS, [], [[]], {}, {"data": []}, ["a"], [None]]


def changed(body, value):
    """Give a body once for each of its members and items, that one replaced."""
    for key in body if isinstance(body, dict) else range(len(body)):
        replaced = copy.deepcopy(body)
        replaced[key] = value
        yield replaced
        if isinstance(body[key], dict | list):
            for inner in changed(body[key], value):
                yield {**body, key: inner} if isinstance(body, dict) else [*body[:key], inner, *body[key + 1 :]]


class Asker:
    """Asks an application in this process, and keeps what it answered 500 to, or raised."""

    def __init__(self, http):
        self.http, self.faults, self.statuses = http, [], set()

    async def __call__(self, method, url, **options):
        try:
            answer = await self.http.request(method, url, **options)
        except Exception as error:  # noqa: BLE001 - whatever the application raises is a fault
            self.faults.append((method, url[:80], repr(options)[:120], repr(error)[:80]))
            return
        self.statuses.add(answer.status_code)
        if answer.status_code >= 500:
            self.faults.append((method, url[:80], repr(options)[:120], answer.text[:80]))


def asked(loaded, ask):
    """Run ``ask(asker, ids, urls)`` against a service with a session, an upload and a checkpoint."""

    async def run():
        app = create_app(loaded)
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
        ):
            body = {"base_model": "samplekit/tiny", "optimizer_config": {"adam": {"learning_rate": 0.0}}}
            resources = (await http.post(wire.CREATE_RESOURCES.path(), json=body)).json()["id"]
            opened = await http.post(wire.CREATE_SESSION.path(), json={"model_resources_id": resources})
            ids = {"session_id": opened.json()["id"], "resources_id": resources, "kind": "inference-checkpoint"}
            made = await http.post(wire.SUBMIT_OPERATION.path(**part(ids)), headers={"Idempotency-Key": "k"})
            ids["operation_id"] = made.json()["id"]
            while "output" not in (shown := (await http.get(wire.GET_OPERATION.path(**part(ids)))).json()):
                pass
            ids["checkpoint_id"] = shown["output"]["checkpoint"]["id"]
            upload = (await http.post(wire.UPLOAD_URL.path(session_id=ids["session_id"]))).json()
            ids["payload_id"] = upload["payload_id"]
            await http.put(upload["upload_url"], content=b"{}")
            path = wire.DOWNLOAD_CHECKPOINT.path(checkpoint_id=ids["checkpoint_id"])
            listed = await http.get(path, params={"variant": "CHECKPOINT_VARIANT_ADAPTER"})
            asker = Asker(http)
            await ask(asker, ids, [upload["upload_url"], listed.json()["data"][0]["url"]])
            return asker

    return asyncio.run(run())


def part(ids):
    return {name: ids[name] for name in ("session_id", "kind", "operation_id") if name in ids}


def filled(route, value):
    return re.sub(r"\{(\w+)\}", lambda found: value(found[1]), route.template)


def test_paths_and_queries(loaded):
    async def ask(asker, ids, urls):
        for text in TEXTS:
            for route in ROUTES:
                await asker(route.method, filled(route, lambda _: quote(text, safe="")))  # noqa: B023 - called here
                if route.method == "GET":
                    for name in QUERY:
                        await asker("GET", filled(route, ids.__getitem__), params={name: text})
            for url in urls:
                bare = url.partition("?")[0]
                await asker("GET", bare, params={"signature": text})
                await asker("PUT", bare, params={"signature": text})
                await asker("GET", url.replace("?", f"{quote(text, safe='')}?"))
        for raw in ("%FF", "%ED%A0%80"):  # no UTF-8
            for url in urls:
                await asker("GET", f"{url.partition('?')[0]}?signature={raw}")

    asker = asked(loaded, ask)
    assert asker.faults == []
    assert {200, 400, 403, 404} <= asker.statuses


def test_headers(loaded):
    async def ask(asker, ids, urls):
        submit = wire.SUBMIT_OPERATION.path(session_id=ids["session_id"], kind="optim-step")
        path = wire.UPLOAD_URL.path(session_id=ids["session_id"])
        requests = [("POST", submit), ("POST", path), ("PUT", urls[0]), *(("GET", url) for url in ("/healthz", *urls))]
        for name in HEADERS:
            for text in [*TEXTS, *RANGES]:
                for method, url in requests:
                    headers = [("idempotency-key", "odd")] * (name != "idempotency-key")
                    headers += [(name, text.encode())]
                    await asker(method, url, headers=headers, content=b"{}" if method != "GET" else None)

    asker = asked(loaded, ask)
    assert asker.faults == []
    assert {200, 206, 400, 416} <= asker.statuses


@pytest.mark.parametrize("which", BODIES, ids=lambda which: getattr(which, "template", which))
def test_bodies(loaded, which):
    async def ask(asker, ids, urls):
        if isinstance(which, str):
            method, url = "POST", wire.SUBMIT_OPERATION.path(session_id=ids["session_id"], kind=which)
        else:
            method, url = which.method, filled(which, ids.__getitem__)
        bodies = [body for value in VALUES for body in changed(BODIES[which], value)]
        for number, body in enumerate(bodies):
            await asker(method, url, json=body, headers={"idempotency-key": f"key-{number}"})

    asker = asked(loaded, ask)
    assert asker.faults == []
    assert 400 in asker.statuses
