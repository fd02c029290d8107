"""Row "submit": a batch of samples that are there already goes to the service."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from time import process_time
from typing import Any

from benchmarks.forms import FORMS, SDK_DICTS, wire_arrays
from benchmarks.meters import cpu_time
from benchmarks.rollouts import rollouts
from benchmarks.row import FLOOR, OURS, Case, Gate, Reading, Row, Size, Work, offer
from benchmarks.submitting import Ours, Sdk, Sink, Submitter, upload_of

SDK = "SDK client"
NUM_BATCHES = 8
_CHILD = (
    "from benchmarks.works.submit import child; child({name!r}, {url!r}, {num_samples}, {num_tokens}, {num_batches})"
)


class Submitted:
    """A contender's work, with what its like in a process of its own needs to know.

    Attributes:
        size: of the batch.
        sink: the service.
        body: the bytes that are uploaded, of the floor; else empty.
    """

    def __init__(self, size: Size, sink: Sink, work: Work, body: bytes = b"") -> None:
        self.size, self.sink, self.body, self._work = size, sink, body, work

    def __call__(self) -> Sink:
        """Do it."""
        self._work()
        return self.sink


def _prepare(size: Size) -> Case:
    sink = Sink()
    contenders, skipped = offer(
        {
            OURS: lambda: _submitting(OURS, size, Ours, sink),
            FLOOR: lambda: _floor(size, sink),
            SDK: lambda: _submitting(SDK, size, Sdk, sink),
        }
    )
    return Case(contenders, normal, skipped)


def _submitting(name: str, size: Size, client: type[Submitter], sink: Sink) -> Work:
    submitter, samples = client(sink.url), _samples(name, size)
    return Submitted(size, sink, lambda: submitter.submit(samples))


def _floor(size: Size, sink: Sink) -> Work:
    _submitting(OURS, size, Ours, sink)()
    body = sink.largest()
    return Submitted(size, sink, upload_of(body, sink.url), body)


def _samples(name: str, size: Size) -> list[Any]:
    build = FORMS[OURS if name == OURS else SDK_DICTS]()
    return [build(rollout) for rollout in rollouts(size)]


def normal(name: str, sink: Sink) -> list[dict[str, list[float]]]:
    """Read the batch that arrived, as lists by name."""
    del name
    return [wire_arrays(sample) for sample in json.loads(sink.largest())["samples"]]


def cpu_time_apart(contenders: Mapping[str, Work], rounds: int) -> dict[str, list[float]]:
    """Measure the CPU seconds of a process's first batches, so that no contender's memory is laid out by another's."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, work in contenders.items():
            found[name].append(_in_child(name, work, NUM_BATCHES)[0])
    return found


def peak_memory(contenders: Mapping[str, Work], rounds: int) -> dict[str, list[float]]:
    """Measure the largest memory of a process that builds a batch and submits it, bytes; it hardly varies."""
    del rounds
    return {name: [_in_child(name, work, 1)[1]] for name, work in contenders.items()}


def _in_child(name: str, work: Work, num_batches: int) -> tuple[float, float]:
    assert isinstance(work, Submitted)
    code = _CHILD.format(name=name, url=work.sink.url, num_batches=num_batches, **vars(work.size))
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, input=work.body)
    seconds, peak = map(float, done.stdout.split())
    return seconds, peak


def child(name: str, url: str, num_samples: int, num_tokens: int, num_batches: int) -> None:
    """Submit a batch several times in this process; print its CPU seconds, and the peak of resident memory in bytes."""
    submit = _submit_in_child(name, url, Size(num_samples, num_tokens))
    start = process_time()
    for _ in range(num_batches):
        submit()
    print(process_time() - start, _peak())


def _submit_in_child(name: str, url: str, size: Size) -> Work:
    if name == FLOOR:
        return upload_of(sys.stdin.buffer.read(), url)
    client: Submitter = Ours(url) if name == OURS else Sdk(url)
    samples = _samples(name, size)
    return lambda: client.submit(samples)


def _peak() -> int:
    """Read this process's peak; on Linux getrusage would also tell of the process that started it."""
    status = Path("/proc/self/status")
    if status.exists() and (found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return int(found[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


ROW = Row(
    key="submit",
    work="submit end to end, prebuilt",
    prepare=_prepare,
    readings=[
        Reading("CPU time", cpu_time, (Gate(SDK, 12), Gate(FLOOR, 5, "floor"))),
        Reading("CPU time, processes apart", cpu_time_apart, (Gate(FLOOR, 5, "floor"),), (FLOOR,)),
        Reading("peak memory of the process", peak_memory, (Gate(SDK, 0.35, "floor"),), (SDK,)),
    ],
)
