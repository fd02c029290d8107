"""Row "submit-rollouts": rollouts, as a sampler gives them, become a batch that goes to the service."""

from __future__ import annotations

from benchmarks.forms import FORMS, SDK_DICTS
from benchmarks.meters import cpu_time
from benchmarks.rollouts import rollouts
from benchmarks.row import OURS, Case, Gate, Reading, Row, Size, Work, offer
from benchmarks.submitting import Ours, Sdk, Sink, Submitter
from benchmarks.works.submit import SDK, normal


def _prepare(size: Size) -> Case:
    sink = Sink()
    contenders, skipped = offer(
        {OURS: lambda: _work(OURS, size, Ours, sink), SDK: lambda: _work(SDK_DICTS, size, Sdk, sink)}
    )
    return Case(contenders, normal, skipped)


def _work(form: str, size: Size, client: type[Submitter], sink: Sink) -> Work:
    build, submitter, given = FORMS[form](), client(sink.url), list(rollouts(size))

    def work() -> Sink:
        submitter.submit([build(rollout) for rollout in given])
        return sink

    return work


ROW = Row(
    key="submit-rollouts",
    work="submit end to end, from rollouts",
    prepare=_prepare,
    readings=[Reading("CPU time", cpu_time, (Gate(SDK, 10),))],
)
