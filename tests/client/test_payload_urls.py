"""URLs of payloads that have run out are asked for anew, once; a call stays one call under one key."""

from __future__ import annotations

import itertools
from dataclasses import replace

import httpx
import pytest
from service_double import OPERATIONS, operation

import samplekit as sk

SUBMIT = f"POST {OPERATIONS}/.*"
ASK_UP, ASK_DOWN = "POST .*/upload-url", "POST .*/payloads/out/download-url"
EXPIRED = [401, 403, 404, 410]


@pytest.fixture
def session(side, monkeypatch):
    """A session whose bodies are all uploaded, each to a URL and under an id of its own."""
    monkeypatch.setattr("samplekit.wire.requests.INLINE_LIMIT_BYTES", 10)
    numbers = itertools.count(1)

    def place(_):
        number = next(numbers)
        url = f"https://store.example/up{number}?sig={number}"
        return httpx.Response(200, json={"payload_id": f"p{number}", "upload_url": url})

    side.double.answer(ASK_UP, place)
    side.double.answer("PUT /up.*", {})
    side.double.answer(SUBMIT, operation("COMPLETED", {"loss": 1.0}))
    return side.session()


def train(session, sample):
    return session.forward_backward([sample], sk.CrossEntropy())


@pytest.mark.parametrize("status", EXPIRED)
@pytest.mark.parametrize("before", [[], [httpx.Response(503)], [httpx.ReadError("reset")] * 3])
def test_an_upload_url_that_has_run_out_is_asked_for_anew(side, session, sample, status, before):
    side.double.answer("PUT /up1", *before, httpx.Response(status, text="Request has expired"))
    assert train(session, sample).result().loss == 1.0
    puts = [item.path for item in side.double.calls("PUT .*")]
    assert puts == ["/up1?sig=1"] * (len(before) + 1) + ["/up2?sig=2"]
    (sent,) = side.double.calls(SUBMIT)
    assert sent.body["payload_id"] == "p2"


def test_each_upload_puts_the_same_bytes_and_the_last_id_is_the_one_that_is_kept(side, sample, session):
    kept = {}
    runtime = replace(side.time.runtime(), uploads=kept, new_key=lambda: "KEY")
    side.time.runtime = lambda: runtime
    side.double.answer("PUT /up1", httpx.Response(403))
    train(side.session(), sample)
    first, second = side.double.calls("PUT .*")
    assert first.content == second.content
    assert kept == {"KEY": "p2"}
    (sent,) = side.double.calls(SUBMIT)
    assert (sent.body["payload_id"], sent.headers["idempotency-key"]) == ("p2", "KEY")


@pytest.mark.parametrize("status", EXPIRED)
def test_an_upload_that_is_refused_twice_is_a_named_error_and_nothing_is_submitted(side, session, sample, status):
    side.double.answer("PUT /up.*", httpx.Response(status, text="no"))
    with pytest.raises(sk.StatusError, match=f"upload payload p2.*answered {status}") as caught:
        train(session, sample)
    assert "sig" not in str(caught.value)
    assert len(side.double.calls(ASK_UP)) == 2
    assert not side.double.calls(SUBMIT)


def test_an_upload_that_is_refused_for_another_reason_is_not_tried_at_another_url(side, session, sample):
    side.double.answer("PUT /up.*", httpx.Response(400, text="no"))
    with pytest.raises(sk.StatusError):
        train(session, sample)
    assert len(side.double.calls(ASK_UP)) == 1


def complete_with_payload(side, *answers):
    places = ({"download_url": f"https://store.example/down{n}?sig={n}"} for n in (1, 2, 3))
    side.double.answer(SUBMIT, operation("COMPLETED", {"loss": 1.0, "payload_id": "out"}))
    side.double.answer(ASK_DOWN, *places)
    side.double.answer("GET /down.*", *answers)


@pytest.mark.parametrize("status", EXPIRED)
@pytest.mark.parametrize("before", [[], [httpx.Response(503)], [httpx.ReadError("reset")] * 3])
def test_a_download_url_that_has_run_out_is_asked_for_anew(side, sample, status, before):
    complete_with_payload(side, *before, httpx.Response(status), {"loss": 2.0})
    assert train(side.session(), sample).result().loss == 2.0
    gets = [item.path for item in side.double.calls("GET /down.*")]
    assert gets == ["/down1?sig=1"] * (len(before) + 1) + ["/down2?sig=2"]


@pytest.mark.parametrize("status", EXPIRED)
def test_a_payload_that_stays_away_is_a_named_error_and_may_be_asked_for_again(side, sample, status):
    complete_with_payload(side, httpx.Response(status), httpx.Response(status), {"loss": 2.0})
    step = train(side.session(), sample)
    with pytest.raises(sk.StatusError, match=f"download payload out.*answered {status}") as caught:
        step.result()
    assert "sig" not in str(caught.value)
    assert step.result().loss == 2.0
