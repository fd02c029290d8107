"""What takes long is done once, and by the async client off the event loop: bodies made, large answers read."""

from __future__ import annotations

import json
import threading

import httpx
import pytest
from service_double import OPERATIONS, operation

import samplekit as sk
from samplekit.client import accepted, calls, flows

SUBMIT = f"POST {OPERATIONS}/.*"
SHORT = sk.build_sample([1, 2, 3, 4], [0, 1, 1, 1])
LONG = sk.build_sample(range(100_001), [1] * 100_001)
CALLS = {
    "forward_backward_body": lambda session, sample: session.forward_backward([sample], sk.CrossEntropy()),
    "custom_body": lambda session, sample: session.custom_forward_backward([sample], [[0.5] * sample.length]),
    "sample_body": lambda session, sample: session.generate([sample.tokens]),
}
BUSY = httpx.Response(503)


@pytest.fixture
def threads(monkeypatch):
    """Which threads did what, by name."""
    found = list[tuple[str, int]]()

    def watch(owner, name):
        plain = getattr(owner, name)

        def watched(*args, **kwargs):
            found.append((name, threading.get_ident()))
            return plain(*args, **kwargs)

        monkeypatch.setattr(owner, name, watched)

    for name in CALLS:
        watch(calls, name)
    watch(calls, "check")
    watch(flows, "parse_operation")
    watch(accepted, "parse_operation")
    watch(flows, "parse_object")
    return found


def by(threads, name):
    return [thread for found, thread in threads if found == name]


def is_right(side, thread):
    """Whether it is the caller's thread, or with an event loop another one than the loop's, which is the caller's."""
    return (thread == threading.get_ident()) == (side.kind == "blocking")


@pytest.mark.parametrize("sample", [SHORT, LONG], ids=["inline", "uploaded"])
@pytest.mark.parametrize("name", CALLS)
def test_a_body_is_made_once_and_off_the_loop_however_often_it_is_sent(side, threads, name, sample):
    side.double.answer("POST .*/upload-url", BUSY, {"payload_id": "p1", "upload_url": "https://store.example/up"})
    side.double.answer("PUT /up", BUSY, {})
    side.double.answer(SUBMIT, BUSY, httpx.ReadError("reset"), BUSY, operation("PENDING"))
    CALLS[name](side.session(), sample)
    assert len(side.double.calls(SUBMIT)) == 4
    assert len(side.double.calls("PUT .*")) == (2 if sample is LONG else 0)
    (thread,) = by(threads, name)
    assert is_right(side, thread)
    checks = by(threads, "check")
    assert len(checks) == (0 if name == "sample_body" else 1)
    assert all(is_right(side, thread) for thread in checks)


def test_a_large_answer_is_read_off_the_loop_and_a_small_one_on_it(side, threads):
    large = {"loss": 1.0, "metrics": {f"m{n}": 0.5 for n in range(30_000)}}
    side.double.answer(SUBMIT, operation("PENDING"))
    side.double.answer(f"GET {OPERATIONS}/.*", operation("RUNNING"), operation("COMPLETED", large))
    side.session().forward_backward([SHORT], sk.CrossEntropy()).result()
    *small, last = by(threads, "parse_operation")
    assert len(small) == 2
    assert small[1] == threading.get_ident()
    assert is_right(side, last)


def test_a_large_payload_is_read_off_the_loop(side, threads):
    side.double.answer(SUBMIT, operation("COMPLETED", {"payload_id": "out"}))
    side.double.answer("POST .*/payloads/out/download-url", {"download_url": "https://store.example/out"})
    body = json.dumps({"loss": 1.0, "metrics": {f"m{n}": 0.5 for n in range(30_000)}}).encode()
    side.double.answer("GET /out", httpx.Response(200, content=body))
    assert side.session().forward_backward([SHORT], sk.CrossEntropy()).result().loss == 1.0
    assert is_right(side, by(threads, "parse_object")[-1])
