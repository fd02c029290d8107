"""A deadline holds for all that a result takes: the operation, where its payload is, and the payload itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from service_double import OPERATIONS, operation

import samplekit as sk

SUBMIT = f"POST {OPERATIONS}/.*"
POLL = f"GET {OPERATIONS}/.*"
ASK, GET = "POST .*/payloads/out/download-url", "GET /out"
DONE = operation("COMPLETED", {"loss": 1.0, "payload_id": "out"})
PLACE = {"download_url": "https://store.example/out?sig=1"}


@dataclass
class Trickle(httpx.SyncByteStream, httpx.AsyncByteStream):
    """An answer that comes steadily, a byte of white space four times a second, and for minutes."""

    time: Any

    def __iter__(self):
        for _ in range(2400):
            self.time.sleep(0.25)
            yield b" "

    async def __aiter__(self):
        for piece in self:
            yield piece


def fault_of(side, name):
    """Something that keeps a request from being answered before a deadline."""

    def slow(request):
        side.time.sleep(request.extensions["timeout"]["read"])
        raise httpx.ReadTimeout("slow", request=request)

    def away(request):
        raise httpx.ConnectError("away", request=request)

    return {
        "slow": slow,
        "away": away,
        "failing": httpx.Response(503),
        "busy": httpx.Response(429, headers={"retry-after": "50"}),
        "garbled": httpx.Response(200, text="<html>"),
        "trickling": lambda _: httpx.Response(200, stream=Trickle(side.time)),
    }[name]


def taken(side, timeout, ask):
    """Seconds until it is said that the time is over."""
    began = side.time.now
    with pytest.raises(sk.OperationTimeoutError, match=f"after {timeout:g} s.*ask again") as caught:
        ask(timeout)
    assert caught.value.operation_id == "op-1"
    return side.time.now - began


@pytest.mark.parametrize("name", ["slow", "away", "failing", "busy", "garbled", "trickling"])
@pytest.mark.parametrize("where", [POLL, ASK, GET])
@pytest.mark.parametrize("timeout", [0.5, 5.0])
def test_no_fault_anywhere_outlasts_a_deadline_and_asking_again_gives_the_result(side, sample, name, where, timeout):
    right = {POLL: DONE, ASK: PLACE, GET: {"loss": 2.0}}
    side.double.answer(SUBMIT, operation("PENDING"))
    for pattern, answer in right.items():
        side.double.answer(pattern, answer)
    side.double.answer(where, fault_of(side, name))
    train = side.session().forward_backward([sample], sk.CrossEntropy())
    assert taken(side, timeout, train.result) <= timeout + 1.01
    side.double.answer(where, right[where])
    assert train.result(timeout).loss == 2.0
    assert len(side.double.calls(SUBMIT)) == 1


@pytest.mark.parametrize("retries", [0, 7])
def test_a_request_that_the_deadline_cuts_short_is_no_failed_connection(side, sample, retries):
    side.double.answer(SUBMIT, DONE)
    side.double.answer(ASK, fault_of(side, "slow"))
    train = side.session(max_retries=retries).forward_backward([sample], sk.CrossEntropy())
    assert taken(side, 5.0, train.result) <= 6.01


def test_a_result_that_is_there_is_given_however_short_the_time(side, sample):
    side.double.answer(SUBMIT, DONE)
    side.double.answer(ASK, PLACE)
    side.double.answer(GET, {"loss": 2.0})
    assert side.session().forward_backward([sample], sk.CrossEntropy()).result(timeout=0).loss == 2.0


def test_no_deadline_waits_for_a_payload_as_long_as_it_takes(side, sample):
    side.double.answer(SUBMIT, DONE)
    side.double.answer(ASK, PLACE)
    side.double.answer(GET, *[httpx.Response(429, headers={"retry-after": "50"})] * 5, {"loss": 2.0})
    train = side.session().forward_backward([sample], sk.CrossEntropy())
    assert train.result(timeout=None).loss == 2.0
    assert sum(side.time.pauses) == 250.0


def test_a_service_that_refuses_a_payload_says_so_before_the_deadline(side, sample):
    side.double.answer(SUBMIT, DONE)
    side.double.answer(ASK, httpx.Response(400, text="no such payload"))
    with pytest.raises(sk.StatusError, match="no such payload"):
        side.session().forward_backward([sample], sk.CrossEntropy()).result(timeout=5)
    assert side.time.pauses == []


def test_the_parts_of_a_call_share_one_deadline_with_their_payloads(side):
    samples = [sk.build_sample(range(100, 141), [1] * 41) for _ in range(2)]
    ids = iter(["op-1", "op-2"])
    side.double.answer(SUBMIT, httpx.Response(413), *({**DONE, "id": name} for name in ids))
    side.double.answer(ASK, PLACE)
    side.double.answer(GET, {"loss": 2.0}, fault_of(side, "slow"))
    train = side.session().forward_backward(samples, sk.CrossEntropy())
    began = side.time.now
    with pytest.raises(sk.OperationTimeoutError, match=r"after 5 s.*part 2 of 2"):
        train.result(timeout=5)
    assert side.time.now - began <= 6.01
    side.double.answer(GET, {"loss": 2.0})
    assert train.result(timeout=5).loss == 4.0
    assert len(side.double.calls("GET /out.*")) == 3  # what the first part gave was kept


def test_an_answer_that_trickles_without_a_deadline_is_read_to_its_end(side):
    side.double.answer("GET .*/supported-models", lambda _: httpx.Response(200, stream=Trickle(side.time)))
    with pytest.raises(sk.ConnectionFailedError, match="no JSON"):
        side.client(max_retries=0).supported_models()
    assert side.time.now >= 1600.0
