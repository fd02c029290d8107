"""One fixture gives every test of the client both its sides."""

from __future__ import annotations

import asyncio
import signal

import pytest
from service_double import Side

import samplekit as sk


@pytest.fixture(params=["blocking", "async"])
def side(request, monkeypatch):
    monkeypatch.delenv("TOGETHER_API_KEY", raising=False)
    monkeypatch.delenv("TOGETHER_BASE_URL", raising=False)
    if request.param == "blocking":
        yield Side("blocking", None)
        return
    loop = asyncio.new_event_loop()
    yield Side("async", loop)
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.fixture
def sample():
    return sk.build_sample([100, 101, 102, 103, 104, 105], [0, 0, 0, 1, 1, 1])


@pytest.fixture
def ctrl_c():
    """Let SIGINT be heard as in a terminal, also where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
