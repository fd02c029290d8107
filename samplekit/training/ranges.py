"""Settings that are numbers, each held to a range."""

from __future__ import annotations

from samplekit.errors import SampleError
from samplekit.sample.kinds import is_number, is_whole_number, shown

# Within these a float32 and its inverse are finite.
LEAST, MOST = 1e-30, 1e30


def refuse_outside(name: str, value: object, advice: str, *, low: float = LEAST, high: float = MOST) -> None:
    """Refuse a setting that is no number of a range.

    Args:
        name: of the setting, for the error.
        value: what was given; a bool is no number.
        advice: what to pass instead.
        low: the least that is taken.
        high: the most.

    Raises:
        SampleError: the value is no number, or lies outside.
    """
    if not (is_number(value) and low <= value <= high):
        kind = "finite number above 0, of" if low > 0 else "number of"
        raise SampleError(f"{name} is {shown(value)}, expected a {kind} {low:g} to {high:g}: {advice}")


def refuse_uncountable(name: str, value: object, advice: str, *, low: int = 1) -> None:
    """Refuse a setting that is no whole number of ``low`` or more.

    Args:
        name: of the setting, for the error.
        value: what was given; a bool is no number.
        advice: what to pass instead.
        low: the least that is taken.

    Raises:
        SampleError: the value is no such number.
    """
    if not is_whole_number(value) or value < low:
        raise SampleError(f"{name} is {shown(value)}, expected a whole number of {low} or more: {advice}")
