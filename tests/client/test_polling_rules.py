"""One set of rules for asking, however an operation is asked for: result(), done() in a loop, as_completed."""

from __future__ import annotations

import httpx
import pytest
from service_double import OPERATIONS, FakeTime, operation, replace

import samplekit as sk
from samplekit.client import as_completed

SUBMIT = f"POST {OPERATIONS}/.*"
POLL = f"GET {OPERATIONS}/.*"
PENDING = operation("PENDING")
DONE = operation("COMPLETED", {"step": "7"})
AWAY, SLOW, CLOSED = httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("closed")
BUSY, MISSING = httpx.Response(503, text="busy"), httpx.Response(404)


def asked_again(status, **headers):
    return httpx.Response(status, headers={name.replace("_", "-"): value for name, value in headers.items()})


BORNE = {
    "nothing": [],
    "slow for long": [SLOW] * 40,
    "slow to take the question": [httpx.WriteTimeout("slow")] * 20,
    "out of reach": [AWAY] * 7,
    "out of reach, and again": [*[AWAY] * 7, PENDING, *[AWAY] * 7],
    "slow and out of reach": [SLOW, AWAY] * 7,
    "closed": [CLOSED] * 7,
    "busy": [BUSY] * 7,
    "not to be seen yet": [MISSING] * 5,
    "asked to wait": [asked_again(429, retry_after="7")] * 3,
    "told to try again": [asked_again(400, x_should_retry="true")],
    "cut short": [httpx.Response(200, content=b'{"id": "op-')] * 3,
    "about another": [{**DONE, "id": "op-2"}] * 3,
}
FINAL = {
    "out of reach": ([AWAY] * 8, sk.ConnectionFailedError, "get optim-step operation op-1 after 8 tries"),
    "closed": ([CLOSED] * 8, sk.ConnectionFailedError, "after 8 tries"),
    "busy": ([BUSY] * 8, sk.StatusError, "after 8 tries.* 503: busy"),
    "not allowed": ([httpx.Response(403)], sk.StatusError, "get optim-step operation op-1: .* 403"),
    "told not to": ([asked_again(503, x_should_retry="false")], sk.StatusError, "op-1: .* 503"),
    "never to be seen": ([MISSING] * 300, sk.StatusError, "the service knows no optim-step operation op-1"),
}


def by_result(side, step):
    assert step.result(None) == 7


def by_done(side, step):
    while not step.done():
        side.time.sleep(0.5)


def by_as_completed(side, step):
    if side.kind == "blocking":
        assert list(as_completed([step])) == [step]
        return

    async def collect():
        return [item async for item in as_completed([step._inner])]

    assert side.loop.run_until_complete(collect()) == [step._inner]


WAYS = [by_result, by_done, by_as_completed]


def submitted(side, *polls, **options):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, *polls)
    return side.session(**options).optim_step(learning_rate=1.0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BORNE)
def test_what_is_borne_is_borne_however_it_is_asked(side, way, name):
    step = submitted(side, *BORNE[name], DONE)
    way(side, step)
    assert step.result(timeout=0) == 7
    assert len(side.double.calls(POLL)) == len(BORNE[name]) + 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FINAL)
def test_what_is_final_is_the_same_error_however_it_is_asked_and_the_operation_stays_usable(side, way, name):
    answers, error, words = FINAL[name]
    step = submitted(side, *answers, DONE)
    with pytest.raises(error, match=words):
        way(side, step)
    if name != "never to be seen":
        assert len(side.double.calls(POLL)) == len(answers)
        way(side, step)
        assert step.result(timeout=0) == 7


@pytest.mark.parametrize("way", WAYS)
def test_without_retries_the_first_fault_is_final_however_it_is_asked(side, way):
    step = submitted(side, AWAY, DONE, max_retries=0)
    with pytest.raises(sk.ConnectionFailedError, match="get optim-step operation op-1: "):
        way(side, step)


class TickingTime(FakeTime):
    """Every look at the clock takes 10 ms, and nobody sleeps for less than no time, as of the standard library."""

    def tick(self):
        self.now += 0.01
        return self.now

    def sleep(self, seconds):
        assert seconds >= 0
        super().sleep(seconds)

    def runtime(self):
        return replace(super().runtime(), clock=self.tick)


@pytest.mark.parametrize("way", WAYS)
def test_a_wait_that_is_over_before_it_begins_is_none(side, way):
    side.time = TickingTime()
    step = submitted(side, asked_again(503, retry_after_ms="1"), DONE)
    way(side, step)
    assert step.result(timeout=0) == 7


@pytest.mark.parametrize("way", [by_result, by_as_completed])
@pytest.mark.parametrize(("answer", "least"), [(asked_again(429, retry_after="7"), 7), (BUSY, 1), (PENDING, 0.5)])
def test_nobody_asks_again_without_a_pause(side, way, answer, least):
    asked = []

    def note(request):
        asked.append(side.time.now)
        return side.double.respond(answer, request)

    way(side, submitted(side, note, note, note, DONE))
    assert len(asked) == 3
    assert asked[1] - asked[0] >= least
    assert asked[2] - asked[1] >= least
    assert sum(side.time.pauses) >= 3 * least


def test_as_completed_waits_longer_for_what_takes_longer(side):
    by_as_completed(side, submitted(side, *[PENDING] * 60, DONE))
    pauses = side.time.pauses
    assert len(pauses) == 60
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.5, 5.0)


def test_as_completed_asks_the_others_while_one_rests_after_a_fault(side):
    side.double.answer(f"GET {OPERATIONS}/optim-step/a", asked_again(429, retry_after="30"), {**DONE, "id": "a"})
    side.double.answer(f"GET {OPERATIONS}/optim-step/b", *[{**PENDING, "id": "b"}] * 4, {**DONE, "id": "b"})
    side.double.answer(SUBMIT, {**PENDING, "id": "a"}, {**PENDING, "id": "b"})
    session = side.session()
    steps = [session.optim_step(learning_rate=1.0) for _ in range(2)]
    if side.kind == "blocking":
        finished = [(item.id, side.time.now) for item in as_completed(steps)]
    else:

        async def collect():
            return [(item.id, side.time.now) async for item in as_completed([step._inner for step in steps])]

        finished = side.loop.run_until_complete(collect())
    assert finished[0] == ("b", 1002.0)
    assert finished[1][0] == "a"
    assert 1030 <= finished[1][1] <= 1036


# http-06: a 404 just after creation is transient, a lasting one is not.
@pytest.mark.parametrize("misses", [1, 2, 10])
def test_a_404_just_after_submitting_is_waited_out(side, misses):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, *[httpx.Response(404)] * misses, DONE)
    assert side.session().optim_step(learning_rate=1.0).result() == 7


def test_a_404_that_lasts_names_the_operation_after_ten_seconds(side):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, httpx.Response(404))
    began = side.time.now
    with pytest.raises(sk.StatusError, match="op-1") as caught:
        side.session().optim_step(learning_rate=1.0).result()
    assert caught.value.status == 404
    assert 10.0 <= side.time.now - began <= 11.0


def test_a_404_long_after_submitting_is_an_error_at_once(side):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, httpx.Response(404))
    step = side.session().optim_step(learning_rate=1.0)
    side.time.now += 60
    with pytest.raises(sk.StatusError):
        step.result()
    assert len(side.double.calls(POLL)) == 1


def test_done_asks_once_and_does_not_wait(side):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, httpx.Response(404), PENDING, DONE)
    step = side.session().optim_step(learning_rate=1.0)
    assert [step.done() for _ in range(4)] == [False, False, True, True]
    assert len(side.double.calls(POLL)) == 3
    assert side.time.pauses == []


def test_an_operation_that_was_accepted_and_is_not_visible_yet_still_runs(side):
    side.double.answer(SUBMIT, PENDING)
    side.double.answer(POLL, httpx.Response(404))
    with pytest.raises(sk.OperationTimeoutError, match="still runs after 3 s"):
        side.session().optim_step(learning_rate=1.0).result(timeout=3)


FAULTS = {"slow": SLOW, "busy": BUSY, "away": AWAY, "asked to wait": asked_again(429, retry_after="50")}


@pytest.mark.parametrize("name", FAULTS)
def test_done_asks_one_short_question_and_does_not_wait(side, name):
    waited = []

    def late(request):
        seconds = request.extensions["timeout"]["read"]
        waited.append(seconds)
        return side.double.respond(FAULTS[name], request)

    step = submitted(side, late)
    assert not step.done()
    assert waited == [5.0]
    assert side.time.pauses == []


def test_done_grows_patient_with_a_service_that_takes_longer_to_answer(side):
    def late(request):
        if request.extensions["timeout"]["read"] < 30.0:
            raise SLOW
        return httpx.Response(200, json=DONE)

    step = submitted(side, late)
    assert [step.done() for _ in range(4)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (AWAY, "the service did not answer: the connection failed .*refused.*; whether it still runs is not known"),
        (SLOW, "the service did not answer: no answer came in time .*; whether it still runs is not known"),
        (BUSY, "the service answered 503: busy; whether it still runs is not known"),
        (PENDING, "still runs after 2 s: keep it and ask again$"),
        (MISSING, "still runs after 2 s: keep it and ask again$"),
    ],
)
def test_a_deadline_says_what_was_heard_last(side, last, words):
    step = submitted(side, PENDING, last)
    with pytest.raises(sk.OperationTimeoutError, match=f"optim-step operation op-1 .*{words}") as caught:
        step.result(timeout=2)
    assert caught.value.operation_id == "op-1"
    assert "keep it and ask again" in str(caught.value)


@pytest.mark.parametrize(("timeout", "waited"), [(1, 1), (300, 2), (None, 2)])
def test_a_wrong_id_that_was_picked_up_is_said_soon_and_once(side, timeout, waited):
    side.double.answer(POLL, httpx.Response(404, json={"error": {"message": "no operation op-1 in this session"}}))
    began = side.time.now
    with pytest.raises(sk.StatusError) as caught:
        side.session().operation("op-1", "optim-step").result(timeout=timeout)
    assert caught.value.status == 404
    assert str(caught.value) == (
        "the service knows no optim-step operation op-1 in session sess-1: check id, kind and session"
    )
    assert side.time.now - began == waited


def test_an_operation_of_another_process_that_is_not_to_be_seen_yet_is_found(side):
    side.double.answer(POLL, MISSING, MISSING, DONE)
    assert side.session().operation("op-1", "optim-step").result() == 7
