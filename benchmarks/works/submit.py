"""Row "submit": a batch of samples that are there already goes to the service."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.forms import FORMS, SDK_DICTS, wire_arrays
from benchmarks.meters import cpu_time
from benchmarks.rollouts import rollouts
from benchmarks.row import FLOOR, OURS, Case, Gate, Reading, Row, Size, Work, offer
from benchmarks.submitting import Ours, Sdk, Sink, Submitter, upload_of

SDK = "SDK client"
_CHILD = "from benchmarks.works.submit import child; child({name!r}, {url!r}, {num_samples}, {num_tokens})"


class Submitted:
    """A contender's work, with what its like in a process of its own needs to know."""

    def __init__(self, size: Size, sink: Sink, work: Work) -> None:
        self.size, self.sink, self._work = size, sink, work

    def __call__(self) -> Any:
        """Do it."""
        return self._work()


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

    def work() -> Sink:
        submitter.submit(samples)
        return sink

    return Submitted(size, sink, work)


def _floor(size: Size, sink: Sink) -> Work:
    _submitting(OURS, size, Ours, sink)()
    return Submitted(size, sink, upload_of(sink.largest(), sink))


def _samples(name: str, size: Size) -> list[Any]:
    build = FORMS[OURS if name == OURS else SDK_DICTS]()
    return [build(rollout) for rollout in rollouts(size)]


def normal(name: str, sink: Sink) -> list[dict[str, list[float]]]:
    """Read the batch that arrived, as lists by name."""
    del name
    return [wire_arrays(sample) for sample in json.loads(sink.largest())["samples"]]


def peak_memory(contenders: Mapping[str, Work], rounds: int) -> dict[str, list[float]]:
    """Measure the largest memory of a process that builds a batch and submits it, bytes; it hardly varies."""
    del rounds
    return {name: [_peak_of_child(name, work)] for name, work in contenders.items()}


def _peak_of_child(name: str, work: Work) -> float:
    assert isinstance(work, Submitted)
    size = work.size
    code = _CHILD.format(name=name, url=work.sink.url, num_samples=size.num_samples, num_tokens=size.num_tokens)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)


def child(name: str, url: str, num_samples: int, num_tokens: int) -> None:
    """Build and submit a batch in this process, and print its peak of resident memory in bytes."""
    client: Submitter = Ours(url) if name == OURS else Sdk(url)
    client.submit(_samples(name, Size(num_samples, num_tokens)))
    print(_peak())


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
        Reading("peak memory of the process", peak_memory, (Gate(SDK, 0.35, "floor"),), (SDK,)),
    ],
)
