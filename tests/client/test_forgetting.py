"""A session that nobody stops is warned of, once, with what stops it; any other is not."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest
from service_double import SESSION, URL

WORDS = (
    rf"session {SESSION} on model resources res-1 was never stopped.*session\.stop\(\).*"
    rf"POST {URL}/v1/rl/model-resources/res-1/stop\?force=true"
)


@pytest.fixture(autouse=True)
def no_warning_left(recwarn):
    warnings.simplefilter("always")
    gc.collect()
    recwarn.clear()
    yield
    gc.collect()
    assert [item.message for item in recwarn if issubclass(item.category, ResourceWarning)] == []


def open_and_drop(client):
    client.session(base_model="m")
    gc.collect()


def test_a_client_that_closes_over_a_running_session_warns_once(side, caplog):
    client = side.client()
    with pytest.warns(ResourceWarning, match=WORDS) as caught, caplog.at_level(logging.WARNING), client:
        session = client.session(base_model="m")
    assert len(caught) == 1
    assert SESSION in caplog.text
    del session


def test_a_session_that_is_dropped_warns(side):
    client = side.client()
    with pytest.warns(ResourceWarning, match=WORDS):
        open_and_drop(client)
    client.close()


@pytest.mark.parametrize("how", ["left", "stopped", "detached", "attached", "not had"])
def test_a_session_that_does_not_run_on_by_mistake_is_not_warned_of(side, how):
    with side.client() as client:
        if how == "left":
            with client.session(base_model="m"):
                pass
        elif how == "stopped":
            client.session(base_model="m").stop()
        elif how == "detached":
            client.session(base_model="m").detach()
        elif how == "attached":
            client.attach(SESSION)


def test_a_process_that_ends_over_a_running_session_warns():
    code = """
        import httpx
        from service_double import KEY, URL, Double
        from samplekit.client import Client
        session = Client(base_url=URL, api_key=KEY, transport=httpx.MockTransport(Double())).session(base_model="m")
    """
    ran = [
        subprocess.run(
            [sys.executable, *options, "-c", textwrap.dedent(code)],
            cwd=Path(__file__).parent, capture_output=True, text=True, check=True,
        ).stderr
        for options in ([], ["-W", "default"])
    ]  # fmt: skip
    assert all(f"session {SESSION} on model resources res-1" in text for text in ran)
    assert "ResourceWarning" in ran[1]
