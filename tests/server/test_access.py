"""Who is let in: this machine by its own names, or whoever knows the token."""

import asyncio

import httpx
import pytest

from samplekit.server import LocalService, create_app
from samplekit.wire import names as wire

FOREIGN = [
    "evil.example",
    "evil.example:8000",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "[::2]:80",
    "[",
    "",
    "a b",
]


@pytest.fixture(scope="module")
def app(loaded):
    return create_app(loaded)


def ask(app, path, host):
    """Ask the application itself, without a socket."""

    async def get():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            return await client.get(path, headers={"Host": host})

    return asyncio.run(get())


@pytest.mark.parametrize("path", [wire.SUPPORTED_MODELS.path(), "/healthz", "/payloads/pl-1"])
@pytest.mark.parametrize("host", FOREIGN)
def test_a_name_that_was_bent_to_this_machine_is_refused(app, host, path):
    answer = ask(app, path, host)
    assert answer.status_code == 400
    assert repr(host) in answer.json()["error"]["message"]
    assert "token" in answer.json()["error"]["message"]
    assert answer.headers[wire.REQUEST_ID]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]", "[::1]:8000", "testserver"]
)
def test_this_machine_is_let_in_by_its_own_names(app, host):
    assert ask(app, "/healthz", host).status_code == 200


def test_with_a_token_any_name_will_do(loaded):
    with LocalService(model=loaded, token="s3cret") as service:
        headers = {"Host": "trainer.internal", "Authorization": "Bearer s3cret"}
        assert httpx.get(f"{service.url}{wire.SUPPORTED_MODELS.path()}", headers=headers).status_code == 200
