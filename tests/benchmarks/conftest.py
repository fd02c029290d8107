"""Let `benchmarks`, which is not installed with the package, be imported however pytest is started."""

import sys
from pathlib import Path

import pytest

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.insert(1, ROOT)


@pytest.fixture(autouse=True)
def _short_rounds(monkeypatch):
    monkeypatch.setattr("benchmarks.meters.SHORTEST_SECONDS", 0.0)
