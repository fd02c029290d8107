"""Thousands of operations through faults: each applied once and in order, none lost, every failure named."""

from __future__ import annotations

from collections import Counter

import httpx
import pytest
from service_double import SESSION
from storm import FAULTS, KINDS, Storm

import samplekit as sk

LONG = 60_000  # tokens of a sample whose body is uploaded


def sample_of(number):
    tokens = [number, *range(1, LONG)] if number % 140 == 50 else [number, 1, 2, 3]
    return sk.build_sample(tokens, [0] + [1] * (len(tokens) - 1))


def gradient_of(number):
    return [0.5] * sample_of(number).length


# kind: (call, what its result must be); the number is the call's among those of its kind, from 1
CALLS = {
    "forward-backward": (
        lambda session, n, **key: session.forward_backward([sample_of(n)], sk.CrossEntropy(), **key),
        lambda result, n: result.loss == n,
    ),
    "custom-forward-backward": (
        lambda session, n, **key: session.custom_forward_backward([sample_of(n)], [gradient_of(n)], **key),
        lambda result, _: result is None,
    ),
    "optim-step": (
        lambda session, n, **key: session.optim_step(learning_rate=n, **key),
        lambda result, n: result == n,
    ),
    "sample": (
        lambda session, n, **key: session.generate([[n, 7]], **key),
        lambda result, n: result[0].completions[0].tokens.tolist() == [n],
    ),
    "weights-sync": (lambda session, _, **key: session.weights_sync(**key), lambda result, n: result == n),
    "inference-checkpoint": (
        lambda session, _, **key: session.save_inference_checkpoint(**key),
        lambda result, n: result.id == f"ckpt-{n}",
    ),
    "training-checkpoint": (
        lambda session, _, **key: session.save_training_checkpoint(**key),
        lambda result, n: result.id == f"ckpt-{n}",
    ),
}


class Run:
    """A client in a storm, and what it met.

    Attributes:
        outcomes: how often each was met: results, failures, results that are gone, and calls that ran out of tries.
    """

    def __init__(self, side, seed):
        self.side, self.storm = side, Storm(side.time, seed)
        self.session = side.client(transport=httpx.MockTransport(self.storm)).attach(SESSION)
        self.outcomes = Counter()

    def submit(self, kind, number):
        """Make a call until it is accepted, going on with it under its key where it ran out of tries."""
        key = {}
        for _ in range(20):
            try:
                return CALLS[kind][0](self.session, number, **key)
            except (sk.ConnectionFailedError, sk.StatusError) as raised:
                error = raised
            assert f"could not submit {kind} to session {SESSION}" in str(error)
            assert "tries" in str(error)
            self.outcomes["no answer to a submission"] += 1
            key = {"idempotency_key": error.idempotency_key}
        raise AssertionError(f"{kind} {number} was submitted 20 times")

    def collect(self, operation):
        """Ask until the outcome is known, with deadlines of all lengths, each of them obeyed."""
        name = f"{operation.kind} operation {operation.id}"
        for timeout in [3.0, 0.5, 20.0, 7.0, 300.0] * 10:
            began = self.side.time.now
            try:
                return operation.result(timeout)
            except (sk.OperationError, sk.ConnectionFailedError, sk.StatusError) as raised:
                error = raised
            finally:
                assert self.side.time.now - began <= timeout + 1.01  # a request at the deadline gets a second
            assert name in str(error)
            gone = operation.id in self.storm.gone and getattr(error, "status", 0) == 404
            if gone or type(error) is sk.OperationFailedError:
                return error
            if isinstance(error, sk.OperationTimeoutError):
                assert (error.operation_id, error.kind) == (operation.id, operation.kind)
            else:
                self.outcomes["no answer to a question"] += 1
        raise AssertionError(f"{operation} was asked for 50 times")

    def check(self, kind, number, operation):
        found = self.collect(operation)
        if operation.id in self.storm.failed:
            assert type(found) is sk.OperationFailedError
            assert (found.operation_id, found.kind) == (operation.id, kind)
            assert f"{kind} operation {operation.id} failed with TIMEOUT" in str(found)
            self.outcomes["failed"] += 1
        elif operation.id in self.storm.gone:
            assert "download payload" in str(found)
            self.outcomes["result gone"] += 1
        else:
            assert CALLS[kind][1](found, number), (kind, number, found)
            self.outcomes["result"] += 1

    def go(self, num_operations):
        """Submit all seven kinds in turn, five operations ahead of what is collected; hold what was applied to it."""
        waiting, expected = [], []
        for index in range(num_operations):
            kind, number = KINDS[index % len(KINDS)], index // len(KINDS) + 1
            expected.append((kind, number))
            waiting.append((kind, number, self.submit(kind, number)))
            if len(waiting) > 5:
                self.check(*waiting.pop(0))
        for item in waiting:
            self.check(*item)
        assert self.storm.applied == expected
        return self


@pytest.mark.parametrize("seed", [1, 2])
def test_every_operation_is_applied_once_and_in_order_through_faults(side, seed):
    run = Run(side, seed).go(301)
    assert {fault for _, fault in run.storm.met} == set(FAULTS)


def test_two_thousand_operations_of_all_kinds_through_every_fault_to_every_outcome(side):
    run = Run(side, seed=3).go(2002)
    met = run.storm.met
    assert {(kind, fault) for kind in (*KINDS, "payload") for fault in FAULTS} == set(met)
    assert sum(run.outcomes[name] for name in ("result", "failed", "result gone")) == 2002
    assert run.outcomes["failed"] == len(run.storm.failed) == 100
    assert min(run.outcomes.values()) >= 5
    assert len(run.outcomes) == 5
    assert run.storm.uploaded


def test_the_storm_notices_a_key_that_is_made_anew(side):
    """The proof can fail: a client that takes another key for each try applies steps twice."""
    storm = Storm(side.time, seed=1)

    def with_other_keys(request):
        request.headers["idempotency-key"] = f"key-{sum(storm.met.values())}-{len(storm.accepted)}"
        return storm(request)

    session = side.client(transport=httpx.MockTransport(with_other_keys), max_retries=30).attach(SESSION)
    for number in range(1, 60):
        session.optim_step(learning_rate=number)
    assert len(storm.applied) > 59
