"""Progress: told to a listener while something is waited for; a line in a terminal and nothing in a pipe."""

from __future__ import annotations

import io
import sys

import httpx
import pytest
from service_double import OPERATIONS, READY, of_its_own, operation

import samplekit as sk
from samplekit.client import Transferred, Waiting, as_completed
from samplekit.client.progress import TerminalLine

SUBMIT = f"POST {OPERATIONS}/.*"
POLL = f"GET {OPERATIONS}/.*"
DONE = operation("COMPLETED", {"step": 1})


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def seen(side):
    events = []
    side.time.listener = events.append
    return events


def test_waiting_for_an_operation_is_told_with_status_and_elapsed_time(side, seen):
    side.double.answer(SUBMIT, operation("PENDING"))
    side.double.answer(POLL, operation("PENDING"), operation("RUNNING"), operation("RUNNING"), DONE)
    side.session().optim_step(learning_rate=1.0).result()
    assert [(event.status, event.elapsed, event.ended) for event in seen] == [
        ("PENDING", 0.0, False), ("RUNNING", 0.5, False), ("RUNNING", 1.0, False), ("RUNNING", 1.5, True),
    ]  # fmt: skip
    assert {event.what for event in seen} == {"optim-step operation op-1"}


def test_nothing_is_told_of_what_was_not_waited_for(side, seen):
    side.double.answer(SUBMIT, operation("PENDING"))
    side.double.answer(POLL, DONE)
    side.session().optim_step(learning_rate=1.0).result()
    assert seen == []


@pytest.mark.parametrize("end", [httpx.Response(403), operation("FAILED", error={})])
def test_the_end_is_told_however_it_comes(side, seen, end):
    side.double.answer(SUBMIT, operation("PENDING"))
    side.double.answer(POLL, operation("RUNNING"), end)
    with pytest.raises(sk.ServiceError):
        side.session().optim_step(learning_rate=1.0).result()
    assert [event.ended for event in seen] == [False, True]


def test_a_place_in_the_queue_is_told(side, seen):
    waiting = {**READY, "status": "MODEL_RESOURCES_STATUS_PENDING", "status_details": {"queue_position": "3"}}
    side.double.answer("POST .*/model-resources", waiting)
    side.double.answer("GET .*/res-1", waiting, READY)
    side.client().session(base_model="m").detach()
    assert str(seen[0]) == "model resources res-1: PENDING, place 3 in the queue, 0 s"


def test_as_completed_tells_how_many_are_waited_for(side, seen):
    side.double.answer(SUBMIT, of_its_own(operation("PENDING")))
    running = of_its_own(operation("RUNNING"))
    side.double.answer(f"GET {OPERATIONS}/.*", running, running, of_its_own(DONE))
    session = side.session()
    steps = [session.optim_step(learning_rate=1.0) for _ in range(2)]
    if side.kind == "blocking":
        assert len(list(as_completed(steps))) == 2
        assert seen[0].what == "2 operations"
        assert seen[-1].ended


def test_a_terminal_sees_one_line_that_is_wiped(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "__stderr__", terminal)
    show = TerminalLine()
    show(Waiting("optim-step operation op-1", "RUNNING", 0.5))
    assert terminal.getvalue() == ""  # too short a wait to speak of
    show(Waiting("optim-step operation op-1", "RUNNING", 12.4))
    show(Waiting("optim-step operation op-1", "RUNNING", 13.0, ended=True))
    show(Waiting("another", "RUNNING", 1.0, ended=True))
    assert terminal.getvalue() == "\r\x1b[2Koptim-step operation op-1: RUNNING, 12 s\r\x1b[2K"
    show(Transferred("a.safetensors", 1_000_000, 2_000_000))
    assert terminal.getvalue().endswith("a.safetensors: 1.0 of 2.0 MB")
    show(Waiting("x" * 200, "RUNNING", 9.0))
    assert len(terminal.getvalue().rpartition("\x1b[2K")[2]) == 79


@pytest.mark.parametrize("case", ["pipe", "taken over", "closed"])
def test_a_pipe_and_a_terminal_that_is_taken_see_nothing(monkeypatch, case):
    stream = io.StringIO() if case == "pipe" else Terminal()
    monkeypatch.setattr(sys, "__stderr__", stream if case != "closed" else None)
    monkeypatch.setattr(sys, "stderr", {"pipe": stream, "taken over": Terminal(), "closed": None}[case])
    show = TerminalLine()
    show(Waiting("a", "RUNNING", 30.0))
    show(Waiting("a", "RUNNING", 31.0, ended=True))
    assert stream.getvalue() == ""
