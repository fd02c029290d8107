"""Row "import": a new interpreter imports the package and ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from functools import partial

from benchmarks.meters import child_cpu_time
from benchmarks.row import FLOOR, OURS, Case, Gate, Reading, Row, Size, Work, offer, require

BUILD_AND_CHECK = "ours, build and check resolved"
_STATEMENTS: Mapping[str, str] = {
    OURS: "import samplekit",
    BUILD_AND_CHECK: "from samplekit import Sample, build_sample, check",
    FLOOR: "import sys",
    "tinker": "import tinker",
    "together": "import together",
}


def _prepare(size: Size) -> Case:
    del size
    contenders, skipped = offer({name: partial(_work, statement) for name, statement in _STATEMENTS.items()})
    return Case(contenders, lambda _name, exit_code: exit_code, skipped)


def _work(statement: str) -> Work:
    require(statement.split()[1])
    return lambda: subprocess.run([sys.executable, "-c", statement], check=True).returncode


ROW = Row(
    key="import",
    work="import samplekit",
    prepare=_prepare,
    readings=[
        Reading("CPU time of the child", child_cpu_time, (
            Gate("tinker", 5), Gate("together"), Gate(BUILD_AND_CHECK, None, "floor"), Gate(FLOOR, None, "floor"),
        )),
    ],
)  # fmt: skip
