"""Thousands of operations through faults: each applied exactly once and in order, none lost, deadlines obeyed."""

from __future__ import annotations

import httpx
import pytest
from service_double import SESSION
from storm import FAULTS, Storm

import samplekit as sk

LONG = 60_000  # tokens of a sample whose body is uploaded


def sample_of(number):
    tokens = [number, *range(1, LONG)] if number % 500 == 250 else [number, 1, 2, 3]
    return sk.build_sample(tokens, [0] + [1] * (len(tokens) - 1))


def collect(side, operation):
    """Ask for a result until it is there, with deadlines of all lengths, each of them obeyed."""
    for timeout in [3.0, 0.5, 20.0, 7.0] * 10:
        began = side.time.now
        try:
            return operation.result(timeout)
        except sk.OperationTimeoutError as error:
            late = error
        finally:
            assert side.time.now - began <= timeout + 1.01  # a request at the deadline gets a second
        assert late.operation_id == operation.id
    raise AssertionError(f"{operation} was asked for 40 times")


def run(side, num_operations, seed):
    """Submit pairs of a gradient and a step, three pairs ahead of what is collected; give the service."""
    storm = Storm(side.time, seed)
    session = side.client(transport=httpx.MockTransport(storm), max_retries=7).attach(SESSION)
    waiting = []
    for number in range(1, num_operations // 2 + 1):
        gradient = session.forward_backward([sample_of(number)], sk.CrossEntropy())
        waiting.append((number, gradient, session.optim_step(learning_rate=number)))
        if len(waiting) == 3:
            check(side, *waiting.pop(0))
    for item in waiting:
        check(side, *item)
    return storm


def check(side, number, gradient, step):
    result = collect(side, gradient)
    assert result.loss == number
    assert result.metrics in ({}, {"from_payload": 1.0})
    assert collect(side, step) == number


def check_applied(storm, num_operations):
    expected = [(kind, n) for n in range(1, num_operations // 2 + 1) for kind in ("forward-backward", "optim-step")]
    assert storm.applied == expected


@pytest.mark.parametrize("seed", [1, 2])
def test_every_operation_is_applied_once_and_in_order_through_faults(side, seed):
    storm = run(side, 300, seed)
    check_applied(storm, 300)
    assert set(storm.met) == set(FAULTS)


def test_two_thousand_operations_are_applied_once_and_in_order_through_faults(side):
    storm = run(side, 2000, seed=3)
    check_applied(storm, 2000)
    assert min(storm.met[fault] for fault in FAULTS) > 30
    assert storm.missing


def test_the_storm_notices_a_key_that_is_made_anew(side):
    """The proof can fail: a client that takes another key for each try applies steps twice."""
    storm = Storm(side.time, seed=1)

    def with_other_keys(request):
        request.headers["idempotency-key"] = f"key-{len(storm.met)}-{sum(storm.met.values())}-{len(storm.accepted)}"
        return storm(request)

    session = side.client(transport=httpx.MockTransport(with_other_keys), max_retries=7).attach(SESSION)
    for number in range(1, 60):
        session.optim_step(learning_rate=number)
    assert len(storm.applied) > 59
