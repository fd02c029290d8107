"""What a row of the table is made of: contenders, readings of them, and the gates they are held to."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, TypeAlias

OURS = "ours"
FLOOR = "floor"

Work: TypeAlias = Callable[[], Any]
Meter: TypeAlias = Callable[[Mapping[str, Work], int], dict[str, list[float]]]
Sense: TypeAlias = Literal["peer", "floor", "value"]


@dataclass(frozen=True)
class Size:
    """How much work a row does.

    Attributes:
        num_samples: samples in the batch.
        num_tokens: tokens of each full sequence.
        rounds: how often every contender runs, interleaved; five or more.
    """

    num_samples: int = 512
    num_tokens: int = 2048
    rounds: int = 7


FULL = Size()
QUICK = Size(num_samples=64, num_tokens=512, rounds=5)


@dataclass(frozen=True)
class Gate:
    """What one ratio is held to.

    Attributes:
        versus: the contender it is measured against.
        limit: what performance.md asks for; None only shows the ratio.
        sense: ``"peer"``: the peer's cost over ours, at least limit. ``"floor"``: our cost over the other's, at most
            limit. ``"value"``: our cost itself in `unit`, at most limit.
        unit: what a value is counted in.
        of: the contender that is held to the limit, where it is not `OURS`.
    """

    versus: str
    limit: float | None = None
    sense: Sense = "peer"
    unit: str = ""
    of: str = OURS


@dataclass(frozen=True)
class Reading:
    """One quantity measured of every contender, and its gates.

    Attributes:
        quantity: what is measured, such as ``"CPU time"``.
        meter: measures the contenders, round by round.
        gates: what is compared, in the order it is shown.
        only: the contenders that are measured; empty for all.
    """

    quantity: str
    meter: Meter
    gates: tuple[Gate, ...]
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """A row's work, ready to run at one size.

    Attributes:
        contenders: what each does, by name; `OURS` is one of them. Each does the same work.
        normal: brings a contender's result to the form in which all results are equal.
        skipped: contenders that cannot run here, and why.
    """

    contenders: dict[str, Work]
    normal: Callable[[str, Any], Any]
    skipped: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A row of the table: one file of `benchmarks.works` defines one as ROW.

    Attributes:
        key: what ``--row`` takes.
        work: what is done, in a few words.
        prepare: builds the inputs and gives the contenders.
        readings: what is measured of them.
    """

    key: str
    work: str
    prepare: Callable[[Size], Case]
    readings: Sequence[Reading]


def offer(contenders: Mapping[str, Callable[[], Work]]) -> tuple[dict[str, Work], dict[str, str]]:
    """Load every contender; one whose package is missing is skipped by name.

    Args:
        contenders: by name, what imports the contender's package, prepares its inputs and gives its work.

    Returns:
        The contenders that can run, and why the others cannot.
    """
    ready: dict[str, Work] = {}
    skipped: dict[str, str] = {}
    for name, load in contenders.items():
        try:
            ready[name] = load()
        except ImportError as error:
            if name == OURS:
                raise
            skipped[name] = str(error)
    return ready, skipped


def require(*packages: str) -> None:
    """Raise ImportError, naming the package, unless all of them can be imported."""
    for package in packages:
        try:
            import_module(package)
        except ImportError as error:
            root = re.split(r"\W", package)[0]
            raise ImportError(f"{root} is not installed ({error}): pip install 'samplekit[bench]'") from error
